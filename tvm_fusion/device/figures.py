"""What a roofline model of fused kernels needs to know of a GPU, by product and architecture.

Two tables and an estimate. `ARCHITECTURES` holds what all GPUs of one compute capability share,
`PRODUCTS` what is a matter of the product; `LAUNCH_SECONDS` is one estimate for all. The peak rates
come from the clock and both tables, and equal those of the datasheets (the tests compare them).

Sources, by the short names used below:

* Guide: CUDA C++ Programming Guide 13.0, table "Technical Specifications per Compute Capability";
  for 7.0 and 7.2, which 13.0 no longer lists, the same table of release 12.9. Equal to the traits
  of ``cuda/__device/arch_traits.h`` in NVIDIA's CCCL, which has no entry for 7.2.
* Throughput: CUDA C++ Best Practices Guide, table "Throughput of Native Arithmetic Instructions".
* Whitepapers: NVIDIA's architecture whitepapers (Volta V100, Turing, A100, GA102, Ada, H100,
  RTX Blackwell). Datasheets: NVIDIA's product datasheets and Jetson module data sheets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

#: 32-bit registers of a multiprocessor, and most that one thread gets, on every architecture from
#: 7.0 on. Source: Guide.
REGISTERS_PER_MULTIPROCESSOR = 65536
MAX_REGISTERS_PER_THREAD = 255

#: Results per clock and multiprocessor of the special function unit (MUFU: reciprocal, reciprocal
#: square root, exp2, log2, sine, cosine). Source: Throughput, 16 for every capability from 7.0 on.
#: NVIDIA says that Blackwell Ultra (10.3) doubles exp2; that is left out, to err on the slow side.
SPECIAL_RESULTS_PER_CLOCK = 16

#: What one kernel adds to a stream of short kernels launched back to back, in seconds. NOT a figure
#: of any datasheet but an estimate, the same for all products, since the host and the driver set it
#: as much as the GPU. Published measurements lie around it: about 2.1e-6 on an H100 (1.3e-6 in a
#: CUDA graph; Hazy Research, "Look Ma, No Bubbles!", 2025), and on a V100 3.8e-6 per kernel of
#: 2.9e-6, that is 0.9e-6 where the launch hides behind a kernel (NVIDIA Technical Blog, "Getting
#: Started with CUDA Graphs", 2019). Measure it where it decides something.
LAUNCH_SECONDS = 2.5e-6


@dataclass(frozen=True)
class Architecture:
    """What all GPUs of one compute capability share, per multiprocessor.

    Parameters
    ----------
    fp32_lanes : int
        32-bit floating-point multiply-adds per clock. Source: Throughput.
    shared_memory_kib : int
        Shared memory, in KiB. Source: Guide.
    max_threads, max_blocks : int
        Most resident threads and thread blocks. Source: Guide.
    product : str
        The entry of `PRODUCTS` that stands for a target which names only the architecture.
    """

    fp32_lanes: int
    shared_memory_kib: int
    max_threads: int
    max_blocks: int
    product: str


@dataclass(frozen=True)
class Product:
    """What the architecture leaves open.

    Parameters
    ----------
    capability : int
        Compute capability, times ten.
    multiprocessors : int
        Streaming multiprocessors that are enabled.
    boost_hertz : float
        Boost clock. The sustained clock may be lower, and so may the peak rates.
    memory_bytes_per_second : float
        Peak bandwidth of the device memory. Kernels see less of it.
    l2_cache_bytes : int
        Size of the L2 cache.
    """

    capability: int
    multiprocessors: int
    boost_hertz: float
    memory_bytes_per_second: float
    l2_cache_bytes: int


#: By compute capability times ten.
ARCHITECTURES = {
    70: Architecture(64, 96, 2048, 32, "nvidia/nvidia-v100"),
    72: Architecture(64, 96, 2048, 32, "nvidia/jetson-agx-xavier"),
    75: Architecture(64, 64, 1024, 16, "nvidia/nvidia-t4"),
    80: Architecture(64, 164, 2048, 32, "nvidia/nvidia-a100"),
    86: Architecture(128, 100, 1536, 16, "nvidia/nvidia-a10"),
    87: Architecture(128, 164, 1536, 16, "nvidia/jetson-agx-orin-64gb"),
    89: Architecture(128, 100, 1536, 24, "nvidia/geforce-rtx-4090"),
    90: Architecture(128, 228, 2048, 32, "nvidia/nvidia-h100"),
    100: Architecture(128, 228, 2048, 32, "nvidia/nvidia-b200"),
    103: Architecture(128, 228, 2048, 32, "nvidia/nvidia-b300"),
    110: Architecture(128, 228, 1536, 24, "nvidia/jetson-agx-thor"),
    120: Architecture(128, 100, 1536, 24, "nvidia/geforce-rtx-5090"),
    121: Architecture(128, 100, 1536, 24, "nvidia/nvidia-gb10"),
}

#: By tag. Those that TVM 0.27 lacks (``UNTAGGED``) stand for an architecture, or are recognized by
#: their L2 cache, or serve whoever registers the tag. ``nvidia/nvidia-b100`` is missing on purpose:
#: NVIDIA prints neither its clock nor its multiprocessors, so that the B200 stands for it.
PRODUCTS = {
    # V100 SXM2. Volta whitepaper.
    "nvidia/nvidia-v100": Product(70, 80, 1.530e9, 900e9, 6 * MIB),
    # Jetson AGX Xavier module data sheet; L2 from the Xavier technical brief.
    "nvidia/jetson-agx-xavier": Product(72, 8, 1.377e9, 136.5e9, 512 * KIB),
    # Turing whitepaper (the T4's datasheet rounds 320 GB/s down to 300).
    "nvidia/nvidia-t4": Product(75, 40, 1.590e9, 320e9, 4 * MIB),
    # Reference card, not the Founders Edition. Turing whitepaper.
    "nvidia/geforce-rtx-2080-ti": Product(75, 68, 1.545e9, 616e9, 5632 * KIB),
    # A100 SXM4 40 GB. A100 whitepaper. The tag does not tell the 80 GB card (2039 GB/s).
    "nvidia/nvidia-a100": Product(80, 108, 1.410e9, 1555e9, 40 * MIB),
    # A30 datasheet; L2 as the driver reports it.
    "nvidia/nvidia-a30": Product(80, 56, 1.440e9, 933e9, 24 * MIB),
    # GA102 whitepaper. The RTX 3080 is that of 10 GB.
    "nvidia/geforce-rtx-3090": Product(86, 82, 1.695e9, 936e9, 6 * MIB),
    "nvidia/geforce-rtx-3080": Product(86, 68, 1.710e9, 760e9, 5 * MIB),
    "nvidia/geforce-rtx-3070": Product(86, 46, 1.725e9, 448e9, 4 * MIB),
    # Datasheets of A10, A40 and RTX A6000; L2 of the GA102 whitepaper.
    "nvidia/nvidia-a10": Product(86, 72, 1.695e9, 600e9, 6 * MIB),
    "nvidia/nvidia-a40": Product(86, 84, 1.740e9, 696e9, 6 * MIB),
    "nvidia/rtx-a6000": Product(86, 84, 1.800e9, 768e9, 6 * MIB),
    # Jetson AGX Orin technical brief (power mode MAXN).
    "nvidia/jetson-agx-orin-64gb": Product(87, 16, 1.300e9, 204.8e9, 4 * MIB),
    "nvidia/jetson-agx-orin-32gb": Product(87, 14, 0.930e9, 204.8e9, 4 * MIB),
    # Ada whitepaper.
    "nvidia/geforce-rtx-4090": Product(89, 128, 2.520e9, 1008e9, 72 * MIB),
    # L4 and L40S datasheets; L2 of the Ada whitepaper on data center GPUs.
    "nvidia/nvidia-l4": Product(89, 58, 2.040e9, 300e9, 48 * MIB),
    "nvidia/nvidia-l40s": Product(89, 142, 2.520e9, 864e9, 96 * MIB),
    # H100 SXM5 80 GB datasheet (67 TFLOPS at the 1980 MHz that the driver reports); the PCIe card
    # is slower: 114 multiprocessors, 2 TB/s. L2 of the H100 whitepaper.
    "nvidia/nvidia-h100": Product(90, 132, 1.980e9, 3350e9, 50 * MIB),
    # H200 SXM datasheet. L2 is not in it: 60 MB is that of GH100 with all memory controllers on
    # (H100 whitepaper), as six HBM stacks need.
    "nvidia/nvidia-h200": Product(90, 132, 1.980e9, 4800e9, 60 * MIB),
    # HGX B200 datasheet, per GPU (75 TFLOPS, 7.7 TB/s); multiprocessors and clock as the driver
    # reports them; L2 of the Blackwell Tuning Guide.
    "nvidia/nvidia-b200": Product(100, 148, 1.965e9, 7700e9, 126 * MIB),
    # HGX B300 datasheet, per GPU (75 TFLOPS, 8 TB/s). The clock is what makes 75 TFLOPS, and the
    # L2 that of the B200: the least certain entry.
    "nvidia/nvidia-b300": Product(103, 148, 1.980e9, 8000e9, 126 * MIB),
    # Jetson T5000 module data sheet (8.06 TFLOPS, 273 GB/s); L2 as TVM's tag has it.
    "nvidia/jetson-agx-thor": Product(110, 20, 1.575e9, 273e9, 32 * MIB),
    # RTX Blackwell whitepaper (RTX 5090); product page and TVM's tag (RTX 5060 Ti).
    "nvidia/geforce-rtx-5090": Product(120, 170, 2.407e9, 1792e9, 96 * MIB),
    "nvidia/geforce-rtx-5060-ti": Product(120, 36, 2.572e9, 448e9, 32 * MIB),
    # DGX Spark data sheet (6144 CUDA cores, 273 GB/s); the clock is what makes the 31 TFLOPS, and
    # L2 the figure, of NVIDIA's talk at Hot Chips 2025.
    "nvidia/nvidia-gb10": Product(121, 48, 2.520e9, 273e9, 24 * MIB),
}  # fmt: skip

#: The products whose tags TVM 0.27 does not define.
UNTAGGED = frozenset(
    f"nvidia/{name}"
    for name in (
        "nvidia-l4", "nvidia-l40s", "nvidia-h200", "nvidia-b200", "nvidia-b300",
        "geforce-rtx-5090", "nvidia-gb10",
    )
)  # fmt: skip

#: Stands in for a target that names no product and no architecture of these tables.
DEFAULT_PRODUCT = "nvidia/nvidia-a100"


@dataclass(frozen=True)
class Figures:
    """The peak rates and the sizes of one GPU; `tvm_fusion.device.Device` documents the fields."""

    multiprocessors: int
    memory_bytes_per_second: float
    fp32_flops_per_second: float
    special_ops_per_second: float
    launch_seconds: float
    registers_per_multiprocessor: int
    shared_memory_per_multiprocessor_bytes: int
    max_threads_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    max_registers_per_thread: int
    l2_cache_bytes: int


def compute_capability(arch: str) -> int | None:
    """Compute capability times ten of an ``arch`` like ``sm_90a``; None where it is none."""
    match = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    return int(match[1]) if match else None


def find_product(tag: str = "", arch: str = "", l2_cache_bytes: int | None = None) -> str:
    """Name the entry of `PRODUCTS` that fits a target best.

    TVM 0.27 forgets the tag of ``Target("nvidia/nvidia-a10")`` and keeps what the tag stands for
    (only ``Target({"tag": ...})`` keeps it). The architecture, and the L2 cache where the target
    tells it, then have to do.

    Parameters
    ----------
    tag : str
        The target's tag. One that `PRODUCTS` has overrides the rest.
    arch : str
        Like ``sm_80``, with or without a letter behind.
    l2_cache_bytes : int or None
        The L2 cache that the target claims; it picks among the products of ``arch``.

    Returns
    -------
    str
        `DEFAULT_PRODUCT` where nothing fits.
    """
    if tag in PRODUCTS:
        return tag
    capability = compute_capability(arch)
    if capability not in ARCHITECTURES:
        return DEFAULT_PRODUCT
    usual = ARCHITECTURES[capability].product
    if l2_cache_bytes in (None, PRODUCTS[usual].l2_cache_bytes):
        return usual
    alike = (
        name
        for name, product in PRODUCTS.items()
        if (product.capability, product.l2_cache_bytes) == (capability, l2_cache_bytes)
    )
    return next(alike, usual)


def figures_of(name: str) -> Figures:
    """Give the figures of the product that `PRODUCTS` lists as ``name``."""
    product = PRODUCTS[name]
    architecture = ARCHITECTURES[product.capability]
    clocks = product.multiprocessors * product.boost_hertz
    return Figures(
        multiprocessors=product.multiprocessors,
        memory_bytes_per_second=product.memory_bytes_per_second,
        fp32_flops_per_second=clocks * architecture.fp32_lanes * 2,
        special_ops_per_second=clocks * SPECIAL_RESULTS_PER_CLOCK,
        launch_seconds=LAUNCH_SECONDS,
        registers_per_multiprocessor=REGISTERS_PER_MULTIPROCESSOR,
        shared_memory_per_multiprocessor_bytes=architecture.shared_memory_kib * KIB,
        max_threads_per_multiprocessor=architecture.max_threads,
        max_blocks_per_multiprocessor=architecture.max_blocks,
        max_registers_per_thread=MAX_REGISTERS_PER_THREAD,
        l2_cache_bytes=product.l2_cache_bytes,
    )
