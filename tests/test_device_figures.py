"""The rates and sizes of GPUs: sane, as the datasheets print them, and found by tag or arch."""

import dataclasses
import warnings

import pytest
import tvm
from tvm.target import list_tags

from tvm_fusion.device import Device
from tvm_fusion.device.figures import (
    ARCHITECTURES,
    DEFAULT_PRODUCT,
    KIB,
    MIB,
    PRODUCTS,
    UNTAGGED,
    Figures,
    compute_capability,
    figures_of,
    find_product,
)
from tvm_fusion.device.gpu import OPT_IN_SHARED_KIB

#: 32-bit TFLOPS outside the tensor cores, as NVIDIA prints them.
PUBLISHED_TFLOPS = {
    "nvidia/nvidia-v100": 15.7,
    "nvidia/jetson-agx-xavier": 1.41,
    "nvidia/nvidia-t4": 8.1,
    "nvidia/geforce-rtx-2080-ti": 13.4,
    "nvidia/nvidia-a100": 19.5,
    "nvidia/nvidia-a30": 10.3,
    "nvidia/geforce-rtx-3090": 35.6,
    "nvidia/geforce-rtx-3080": 29.8,
    "nvidia/geforce-rtx-3070": 20.3,
    "nvidia/nvidia-a10": 31.2,
    "nvidia/nvidia-a40": 37.4,
    "nvidia/rtx-a6000": 38.7,
    "nvidia/jetson-agx-orin-64gb": 5.3,
    "nvidia/jetson-agx-orin-32gb": 3.33,
    "nvidia/geforce-rtx-4090": 82.6,
    "nvidia/nvidia-l4": 30.3,
    "nvidia/nvidia-l40s": 91.6,
    "nvidia/nvidia-h100": 67,
    "nvidia/nvidia-h200": 67,
    "nvidia/nvidia-b200": 75,
    "nvidia/nvidia-b300": 75,
    "nvidia/jetson-agx-thor": 8.064,
    "nvidia/geforce-rtx-5090": 104.8,
    "nvidia/geforce-rtx-5060-ti": 23.7,
    "nvidia/nvidia-gb10": 31,
}


def figures_in(device: Device) -> Figures:
    """Those fields of ``device`` that the tables fill."""
    return Figures(**{f.name: getattr(device, f.name) for f in dataclasses.fields(Figures)})


def of_target(**attributes: object) -> Device:
    """The device of a CUDA target with those attributes."""
    return Device.from_target(tvm.target.Target({"kind": "cuda", **attributes}), quiet=True)


# -- the tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_every_figure_has_its_unit_and_fits_the_others(name):
    figures = figures_of(name)
    assert 8 <= figures.multiprocessors <= 192
    assert 1e11 < figures.memory_bytes_per_second < 1e13
    assert 1e12 < figures.fp32_flops_per_second < 2e14
    assert 0.9e9 < PRODUCTS[name].boost_hertz < 3e9
    assert 512 * KIB <= figures.l2_cache_bytes <= 128 * MIB
    assert figures.l2_cache_bytes % (128 * KIB) == 0
    assert 1e-6 < figures.launch_seconds < 1e-5
    # one result of the special function unit takes the time of 4 or 8 multiply-adds
    ratio = figures.fp32_flops_per_second / figures.special_ops_per_second
    assert ratio in (pytest.approx(8), pytest.approx(16))
    # a launch costs as much as moving at least 0.2 MB: fusion pays for small tensors everywhere
    assert figures.launch_seconds * figures.memory_bytes_per_second > 2e5
    # no product computes fewer than 6 or more than 130 operations in the time of one byte
    assert 6 < figures.fp32_flops_per_second / figures.memory_bytes_per_second < 130


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_rate_that_the_tables_make_is_the_one_that_nvidia_prints(name):
    assert figures_of(name).fp32_flops_per_second == pytest.approx(
        PUBLISHED_TFLOPS[name] * 1e12, rel=0.01
    )


@pytest.mark.parametrize("capability", ARCHITECTURES)
def test_every_architecture_grants_what_its_blocks_may_ask_for(capability):
    architecture = ARCHITECTURES[capability]
    opt_in_kib = OPT_IN_SHARED_KIB[capability]
    # from 8.0 on, the system takes 1 KiB of every block
    assert architecture.shared_memory_kib == opt_in_kib + (1 if capability >= 80 else 0)
    assert architecture.max_threads in (1024, 1536, 2048)
    assert architecture.max_blocks in (16, 24, 32)
    assert architecture.max_threads <= architecture.max_blocks * 1024
    assert architecture.fp32_lanes == (64 if capability <= 80 else 128)
    assert PRODUCTS[architecture.product].capability == capability


def test_the_architectures_are_those_with_a_limit_of_shared_memory():
    assert set(ARCHITECTURES) == set(OPT_IN_SHARED_KIB)
    assert {product.capability for product in PRODUCTS.values()} == set(ARCHITECTURES)


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ("nvidia-v100", "nvidia-a100"),
        ("nvidia-a100", "nvidia-h100"),
        ("nvidia-h100", "nvidia-b200"),
        ("nvidia-t4", "nvidia-a10"),
        ("nvidia-a30", "nvidia-a100"),
        ("nvidia-a40", "rtx-a6000"),
        ("nvidia-l4", "nvidia-l40s"),
        ("geforce-rtx-3070", "geforce-rtx-3080"),
        ("geforce-rtx-3080", "geforce-rtx-3090"),
        ("geforce-rtx-3090", "geforce-rtx-4090"),
        ("geforce-rtx-4090", "geforce-rtx-5090"),
        ("geforce-rtx-5060-ti", "geforce-rtx-5090"),
        ("jetson-agx-xavier", "jetson-agx-orin-64gb"),
        ("jetson-agx-orin-64gb", "jetson-agx-thor"),
    ],
)
def test_the_faster_product_is_faster_in_every_rate(slower, faster):
    a, b = figures_of(f"nvidia/{slower}"), figures_of(f"nvidia/{faster}")
    assert a.memory_bytes_per_second < b.memory_bytes_per_second
    assert a.fp32_flops_per_second < b.fp32_flops_per_second
    assert a.l2_cache_bytes <= b.l2_cache_bytes


def test_products_go_by_the_tags_of_tvm_where_it_has_one():
    known = {str(tag) for tag in list_tags()}
    assert set(PRODUCTS) - known == UNTAGGED, "TVM has other tags now: mend UNTAGGED"


@pytest.mark.parametrize("name", sorted(set(PRODUCTS) - UNTAGGED))
def test_a_tag_has_the_architecture_and_the_cache_that_the_table_says(name):
    attrs = tvm.target.Target(name).attrs
    assert compute_capability(str(attrs["arch"])) == PRODUCTS[name].capability
    said = attrs.get("l2_cache_size_bytes")
    assert said in (None, PRODUCTS[name].l2_cache_bytes)
    assert int(attrs["registers_per_block"]) == figures_of(name).registers_per_multiprocessor


def test_the_tables_cannot_be_changed_by_accident():
    for entry, field in (
        (ARCHITECTURES[80], "max_blocks"),
        (PRODUCTS[DEFAULT_PRODUCT], "multiprocessors"),
        (figures_of(DEFAULT_PRODUCT), "l2_cache_bytes"),
        (Device(), "multiprocessors"),
    ):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(entry, field, 1)


# -- the choice ----------------------------------------------------------------------------


def test_the_default_device_is_an_a100():
    assert figures_in(Device()) == figures_of("nvidia/nvidia-a100")
    device = Device()
    assert device.multiprocessors == 108
    assert device.memory_bytes_per_second == 1555e9
    assert device.fp32_flops_per_second == pytest.approx(19.5e12, rel=1e-3)
    assert device.special_ops_per_second == pytest.approx(2.44e12, rel=2e-3)
    assert device.shared_memory_per_multiprocessor_bytes == 164 * KIB
    assert device.max_threads_per_multiprocessor == 2048
    assert device.max_blocks_per_multiprocessor == 32
    assert device.max_registers_per_thread == 255
    assert device.l2_cache_bytes == 40 * MIB


def test_a_device_is_made_as_before_and_each_figure_by_keyword():
    assert Device("sm_80", 1, 2, 3, 4).warp_threads == 4
    assert Device(multiprocessors=7, launch_seconds=1e-6).multiprocessors == 7


@pytest.mark.parametrize("capability", ARCHITECTURES)
@pytest.mark.parametrize("letter", ["", "a"])
def test_an_architecture_alone_gets_the_product_that_stands_for_it(capability, letter):
    device = of_target(arch=f"sm_{capability}{letter}")
    assert figures_in(device) == figures_of(ARCHITECTURES[capability].product)


@pytest.mark.parametrize("arch", ["sm_61", "sm_999", "gfx90a", ""])
def test_an_unknown_architecture_gets_the_a100(arch):
    assert find_product(arch=arch) == DEFAULT_PRODUCT


def test_targets_that_the_tables_do_not_know_get_the_a100_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pascal = Device.from_target(tvm.target.Target("nvidia/tesla-p100"))
        host = Device.from_target(tvm.target.Target("llvm"))
    assert figures_in(pascal) == figures_in(host) == figures_of(DEFAULT_PRODUCT)


@pytest.mark.parametrize("name", sorted(set(PRODUCTS) - UNTAGGED))
def test_a_tag_that_the_target_keeps_gives_its_product(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device = Device.from_target(tvm.target.Target({"tag": name}))
    assert figures_in(device) == figures_of(name)
    assert device.name == name


def test_a_tag_overrides_the_architecture():
    device = of_target(tag="nvidia/nvidia-h100", arch="sm_86")
    assert figures_in(device) == figures_of("nvidia/nvidia-h100")
    assert find_product("nvidia/nvidia-l4", "sm_90", 50 * MIB) == "nvidia/nvidia-l4"


def test_a_tag_that_the_tables_do_not_know_leaves_it_to_the_architecture():
    device = Device.from_target(tvm.target.Target({"tag": "nvidia/nvidia-a16"}))
    assert figures_in(device) == figures_of("nvidia/nvidia-a10")
    assert device.name == "nvidia/nvidia-a16"


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("nvidia/nvidia-v100", "nvidia/nvidia-v100"),
        ("nvidia/nvidia-t4", "nvidia/nvidia-t4"),
        ("nvidia/nvidia-a100", "nvidia/nvidia-a100"),
        ("nvidia/nvidia-h100", "nvidia/nvidia-h100"),
        ("nvidia/nvidia-a10", "nvidia/nvidia-a10"),
        ("nvidia/geforce-rtx-4090", "nvidia/geforce-rtx-4090"),
        ("nvidia/geforce-rtx-5060-ti", "nvidia/geforce-rtx-5060-ti"),
        ("nvidia/jetson-agx-orin-64gb", "nvidia/jetson-agx-orin-64gb"),
        ("nvidia/jetson-agx-thor", "nvidia/jetson-agx-thor"),
        # TVM forgets these tags, and nothing else in the target tells the product
        ("nvidia/geforce-rtx-3090", "nvidia/nvidia-a10"),
        ("nvidia/nvidia-a30", "nvidia/nvidia-a100"),
    ],
)
def test_a_target_made_from_a_tag_by_its_name(name, product):
    target = tvm.target.Target(name)
    assert not target.tag, "TVM keeps the tag now: expect the tag's own product in every case"
    assert figures_in(Device.from_target(target)) == figures_of(product)


@pytest.mark.parametrize(
    ("arch", "l2_mib", "product"),
    [
        ("sm_89", 48, "nvidia/nvidia-l4"),
        ("sm_89", 96, "nvidia/nvidia-l40s"),
        ("sm_80", 24, "nvidia/nvidia-a30"),
        ("sm_90a", 60, "nvidia/nvidia-h200"),
        ("sm_86", 6, "nvidia/nvidia-a10"),
        ("sm_86", 7, "nvidia/nvidia-a10"),
    ],
)
def test_the_cache_that_a_target_tells_picks_among_the_products(arch, l2_mib, product):
    device = of_target(arch=arch, l2_cache_size_bytes=l2_mib * MIB)
    assert device.multiprocessors == PRODUCTS[product].multiprocessors
    assert device.memory_bytes_per_second == PRODUCTS[product].memory_bytes_per_second
    assert device.l2_cache_bytes == l2_mib * MIB, "what the target says is believed"
