"""Figures of the CUDA compiler: read right, asked once, by either compiler; occupancy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest
from conftest import make_cuda_target
from test_cuda_compiler import nvcc
from written import GROUPS, row_groups, write

import tvm_fusion as tf
from tvm_fusion import codegen, toolchain
from tvm_fusion.codegen import compilers, resources
from tvm_fusion.codegen.resources import KernelResources, parse_log
from tvm_fusion.device import Device
from tvm_fusion.toolchain import cuda_tool

HEADERS = ("cuda.h", "cuda_fp16.h", "cuda_fp8.h", "cuda_occupancy.h", "crt/host_defines.h")

NAMES = ("softmax", "layer_norm", "add_rms_norm", "bias_gelu", "group_norm_silu", "scan")

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) scale(float* x) { x[threadIdx.x] *= 2.0f; }
extern "C" __global__ void __launch_bounds__(64) turn(float* x) {
  __shared__ float kept[64];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = kept[63 - threadIdx.x];
}
"""

#: 64 sums that live through the loop, in 32 registers.
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 2) many(float* x, int n) {
  float sums[64];
  #pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = x[threadIdx.x + 1024 * i];
  for (int k = 0; k < n; ++k) {
    #pragma unroll
    for (int i = 0; i < 64; ++i) sums[i] = sums[i] * x[k] + sums[(i + 1) % 64];
  }
  #pragma unroll
  for (int i = 0; i < 64; ++i) x[threadIdx.x * 64 + i] = sums[i];
}
"""


@pytest.fixture(autouse=True)
def any_compiler(monkeypatch):
    """The suite asks none unless a test wants it."""
    monkeypatch.delenv("TVM_FUSION_CUDA_COMPILER")


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """A cache of its own."""
    monkeypatch.setenv("TVM_FUSION_CACHE", str(tmp_path))
    return tmp_path


@cache
def twenty_kernels(arch: str) -> tuple[str, ...]:
    """CUDA sources of kernels of all kinds."""
    written = [write(GROUPS[name]()) for name in NAMES]
    for length, dtype in ((100, "float32"), (4096, "float16"), (33000, "float32")):
        written += [write(mod) for mod in row_groups(3, length, dtype).values()]
    target = make_cuda_target(arch)
    return tuple(codegen.emit_cuda(one.kernel, target) for one in written[:20])


def one_of(source: str, name: str | None = None, arch: str = "sm_80") -> dict[str, KernelResources]:
    compiler = codegen.find_compiler(name)
    (found,) = codegen.compile_resources([source], arch, compiler)
    assert isinstance(found, dict), found
    return found


@pytest.mark.parametrize("name", ["nvrtc", "nvcc"])
def test_figures_of_two_kernels(name, fresh_cache):
    found = one_of(SOURCE, name)
    assert set(found) == {"scale", "turn"}
    assert found["turn"].static_shared_bytes == 256
    assert found["turn"].barriers == 1
    for figures in found.values():
        assert 4 <= figures.registers <= 16
        assert figures.spill_bytes == figures.stack_bytes == 0
        assert re.fullmatch(rf"{name} 13\.0\.\d+", figures.compiler)


def test_spills_are_seen(fresh_cache):
    figures = one_of(SPILLING)["many"]
    assert figures.registers == 32
    assert figures.spill_store_bytes > 100
    assert figures.spill_load_bytes > 100
    assert figures.spill_bytes == figures.spill_store_bytes + figures.spill_load_bytes
    facts = codegen.instruction_facts(codegen.find_compiler().compile(SPILLING, "sm_80").code)
    assert facts["many"].local_accesses > 50


@pytest.mark.parametrize(("arch", "count"), [("sm_80", 20), ("sm_90a", 5)])
def test_figures_equal_those_that_nvcc_prints(arch, count, tmp_path, fresh_cache):
    sources = twenty_kernels(arch)[:count]
    assert len(sources) == count
    found = codegen.compile_resources(sources, arch, codegen.find_compiler("nvcc"))
    for number, (source, figures) in enumerate(zip(sources, found, strict=True)):
        (tmp_path / "k.cu").write_text(source)
        command = [nvcc(), "-cubin", f"-arch={arch}", "-O3", "--use_fast_math", "-w"]
        command += ["-Xptxas", "-v,--register-usage-level=10", "-o", str(tmp_path / "k.cubin")]
        done = subprocess.run(
            [*command, str(tmp_path / "k.cu")], capture_output=True, text=True, check=True
        )
        (ours,) = figures.values()
        assert f"Used {ours.registers} registers" in done.stderr, number
        spills = f"{ours.spill_store_bytes} bytes spill stores, {ours.spill_load_bytes} bytes"
        assert f"{ours.stack_bytes} bytes stack frame, {spills}" in done.stderr, number
        shared = re.search(r"(\d+) bytes smem", done.stderr)
        assert ours.static_shared_bytes == (int(shared[1]) if shared else 0), number


def test_nvrtc_and_the_code_it_makes_agree_on_registers(fresh_cache):
    """The count is in the code as well: ``SHI_REGISTERS``."""
    compiler = codegen.find_compiler("nvrtc")
    for source in twenty_kernels("sm_80"):
        made = compiler.compile(source, "sm_80")
        (fresh_cache / "k.cubin").write_bytes(made.code)
        command = [str(cuda_tool("nvdisasm")), str(fresh_cache / "k.cubin")]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        (figures,) = parse_log(made.log, "nvrtc").values()
        assert f"SHI_REGISTERS={figures.registers}" in text


def test_both_compilers_agree_but_for_few_registers(fresh_cache):
    """Addresses in shared memory have 64 bits with nvrtc and 32 with nvcc."""
    sources = twenty_kernels("sm_80")
    both = [
        codegen.compile_resources(sources, "sm_80", codegen.find_compiler(name))
        for name in ("nvrtc", "nvcc")
    ]
    for one, other in zip(*both, strict=True):
        (a,), (b,) = one.values(), other.values()
        assert abs(a.registers - b.registers) <= 8
        assert (a.static_shared_bytes, a.spill_bytes) == (b.static_shared_bytes, b.spill_bytes)


def test_the_compiler_that_tvm_uses_is_asked(monkeypatch):
    assert codegen.find_compiler().name.startswith("nvrtc")
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    assert codegen.find_compiler().name.startswith("nvcc")
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "nvrtc")
    assert codegen.find_compiler().name.startswith("nvrtc")
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "none")
    assert codegen.find_compiler() is None
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "clang")
    with pytest.raises(tf.CompilerError, match="'clang': choose one of nvrtc, nvcc, none"):
        codegen.find_compiler()
    monkeypatch.setattr(compilers, "nvcc", lambda: None)
    with pytest.raises(tf.CompilerError, match=r"nvcc is not installed: pip install"):
        codegen.find_compiler("nvcc")


@pytest.mark.parametrize("name", ["nvrtc", "nvcc"])
def test_architectures(name):
    compiler = codegen.find_compiler(name)
    assert compiler.supports("sm_90a")
    assert compiler.supports("sm_75")
    assert not compiler.supports("sm_70")  # CUDA 13 dropped Volta
    assert not compiler.supports("compute")


def test_a_source_that_is_wrong_does_not_keep_the_others_from_being_compiled(fresh_cache):
    found = codegen.compile_resources(["int f(", SOURCE], "sm_80", codegen.find_compiler())
    assert isinstance(found[0], tf.CompilerError)
    assert "does not take the source" in str(found[0])
    assert set(found[1]) == {"scale", "turn"}


def test_what_was_compiled_is_not_compiled_again(fresh_cache, monkeypatch):
    first = one_of(SOURCE)
    monkeypatch.setattr(resources, "_compile", lambda *_: pytest.fail("compiled again"))
    assert one_of(SOURCE) == first


def test_architecture_flags_and_compiler_tell_entries_apart(fresh_cache, monkeypatch):
    one_of(SOURCE)
    one_of(SOURCE, arch="sm_90")
    one_of(SOURCE, "nvcc")
    monkeypatch.setenv("TVM_CUDA_PTXAS_REG_LEVEL", "5")
    one_of(SOURCE)
    assert len(list(fresh_cache.glob("resources-*.json"))) == 4


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"scale": {"registers": 3}}', '{"scale": 3}', "null values"]
)
def test_a_damaged_entry_is_made_anew(text, fresh_cache):
    first = one_of(SOURCE)
    (entry,) = fresh_cache.glob("resources-*.json")
    whole = entry.read_text()
    entry.write_text(re.sub(r": \d+", ": null", whole) if text == "null values" else text)
    assert one_of(SOURCE) == first
    assert entry.read_text() == whole


def test_a_cache_that_cannot_be_written_is_done_without(fresh_cache, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr(resources, "cached", refuse)
    assert set(one_of(SOURCE)) == {"scale", "turn"}


def test_two_processes_share_the_cache(fresh_cache):
    code = f"""
from tvm_fusion import codegen
from tvm_fusion.codegen import resources
made = []
compile = resources._compile
resources._compile = lambda *a: made.append(a) or compile(*a)
sources = [{SOURCE!r}.replace("scale", f"scale{{i}}") for i in range(6)]
found = codegen.compile_resources(sources, "sm_80", codegen.find_compiler())
assert all(len(one) == 2 for one in found)
print(len(made))
"""
    command, env = [sys.executable, "-c", code], {**os.environ}
    both = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) for _ in "12"]
    assert [process.wait() for process in both] == [0, 0]
    third = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert third.stdout.split() == ["0"]


# -- occupancy ----------------------------------------------------------------------------------


def device_of(arch: str) -> Device:
    return Device.from_target(make_cuda_target(arch))


@pytest.mark.parametrize(
    ("arch", "registers", "threads", "shared", "blocks", "limiter"),
    [
        # A100: 65,536 registers, 64 warps, 32 blocks, 164 KiB of shared memory, 1 KiB a block gone.
        ("sm_80", 64, 256, 0, 4, "registers"),  # 65,536 / (64 * 256)
        ("sm_80", 32, 256, 0, 8, "registers, warps"),  # both 8
        ("sm_80", 16, 32, 0, 32, "blocks"),
        ("sm_80", 16, 256, 40 * 1024, 4, "shared memory"),  # 164 // 41
        ("sm_80", 33, 256, 0, 6, "registers"),  # 33 is rounded up to 40: 65,536 // 10,240
        ("sm_80", 255, 1024, 0, 0, "registers"),  # cannot run
        # T4: 32 warps, 16 blocks. RTX 4090: 48 warps, 24 blocks.
        ("sm_75", 32, 1024, 0, 1, "warps"),
        ("sm_89", 32, 64, 0, 24, "warps, blocks"),
        ("sm_90", 128, 384, 0, 1, "registers"),  # 65,536 // 49,152
    ],
)
def test_occupancy_worked_by_hand(arch, registers, threads, shared, blocks, limiter):
    device = device_of(arch)
    found = codegen.occupancy(device, registers, threads, shared)
    assert found.blocks == blocks
    assert found.limiter == limiter
    assert found.warps == blocks * threads // 32
    assert found.fraction == found.warps * 32 / device.max_threads_per_multiprocessor


def blocks_by_formula(device: Device, registers: int, threads: int, shared: int) -> int:
    """Resident blocks by the rules of the CUDA C++ Programming Guide, without NVIDIA's code.

    Registers are granted to warps in units of 256, to each of the four quarters of a
    multiprocessor by itself; shared memory in units of 128 bytes (256 before 8.0).
    """
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    by_registers = device.registers_per_multiprocessor // 4 // of_warp * 4 // warps
    unit = 128 if device.compute_capability >= 80 else 256
    of_block = -(-(shared + device.reserved_shared_memory_bytes) // unit) * unit
    of_all = device.shared_memory_per_multiprocessor_bytes
    by_shared = of_all // of_block if of_block else 10**6
    by_warps = device.max_threads_per_multiprocessor // 32 // warps
    return min(by_registers, by_shared, by_warps, device.max_blocks_per_multiprocessor)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"])
def test_occupancy_follows_the_published_rules(arch):
    device = device_of(arch)
    for registers in (16, 24, 32, 40, 48, 64, 72, 96, 128):
        for threads in (32, 64, 96, 128, 192, 256, 384, 512):
            for shared in (0, 512, 4096, 20_000, 48 * 1024):
                found = codegen.occupancy(device, registers, threads, shared)
                wanted = blocks_by_formula(device, registers, threads, shared)
                assert found.blocks == wanted, (registers, threads, shared, found)


def test_dynamic_shared_memory_counts_like_declared():
    device = device_of("sm_90")
    assert codegen.occupancy(device, 32, 128, 0, 100 * 1024).blocks == 2
    assert codegen.occupancy(device, 32, 128, 20 * 1024, 80 * 1024).blocks == 2


def test_a_gpu_that_the_calculator_does_not_know_has_no_occupancy():
    assert codegen.occupancy(replace(device_of("sm_80"), compute_capability=990), 32, 128) is None


# -- instructions -------------------------------------------------------------------------------


def test_widths_of_accesses_are_counted():
    written = write(GROUPS["add_rms_norm"]())
    source = codegen.emit_cuda(written.kernel, make_cuda_target())
    code = codegen.find_compiler().compile(source, "sm_80").code
    (facts,) = codegen.instruction_facts(code).values()
    assert set(facts.global_load_bytes) == set(facts.global_store_bytes) == {16}
    assert facts.local_accesses == facts.tensor_core_instructions == 0


def test_tensor_cores_are_seen():
    source = """
#include <mma.h>
using namespace nvcuda::wmma;
extern "C" __global__ void product(half* a, float* c) {
  fragment<matrix_a, 16, 16, 16, half, row_major> x;
  fragment<matrix_b, 16, 16, 16, half, row_major> y;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(x, a, 16);
  load_matrix_sync(y, a, 16);
  mma_sync(sum, x, y, sum);
  store_matrix_sync(c, sum, 16, mem_row_major);
}
"""
    code = codegen.find_compiler().compile(source, "sm_80").code
    assert codegen.instruction_facts(code)["product"].tensor_core_instructions > 0


def test_without_a_disassembler(monkeypatch):
    from tvm_fusion.codegen import sass

    monkeypatch.setattr(sass, "cuda_tool", lambda _name: None)
    with pytest.raises(tf.CompilerError, match=r"nvdisasm is not installed: pip install"):
        codegen.instruction_facts(b"")


# -- where things are ---------------------------------------------------------------------------


def test_a_toolkit_is_found_around_the_nvcc_on_the_path(monkeypatch, tmp_path):
    toolkit = tmp_path / "cuda-13.0"
    for file in ("bin/nvcc", "lib64/libnvrtc.so.13", *(f"include/{h}" for h in HEADERS)):
        (toolkit / file).parent.mkdir(parents=True, exist_ok=True)
        (toolkit / file).touch(mode=0o755)
    monkeypatch.setattr(toolchain, "_wheel_folders", lambda: iter(()))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(toolkit / "bin" / "nvcc")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert toolchain.cuda_headers.__wrapped__() == toolkit / "include"
    assert toolchain.nvrtc_library.__wrapped__() == toolkit / "lib64" / "libnvrtc.so.13"
    assert toolchain.cuda_tool.__wrapped__("nvcc") == toolkit / "bin" / "nvcc"
    assert toolchain.cuda_tool.__wrapped__("nvdisasm") is None
