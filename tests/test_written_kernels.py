"""What NVIDIA's compiler makes of written kernels: no spills, wide accesses, shared memory."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import tvm
import tvm_ffi
from conftest import make_cuda_target
from test_cuda_compiler import nvcc
from tvm import relax, s_tir
from written import GROUPS, Written, group_func, module, row_groups, side_by_side, write

import tvm_fusion as tf
from tvm_fusion.analysis.blocks import element_bytes
from tvm_fusion.analysis.nest_reader import read_nests
from tvm_fusion.planning import CannotPlan, KernelPlan, plan_kernel

KIB = 1024


@dataclass(frozen=True)
class Compiled:
    """What ptxas says of a kernel."""

    spilled_bytes: int
    shared_bytes: int
    registers: int


def source_of(written: dict[str, Written], arch: str) -> str:
    """The CUDA source of several groups; the kernel of one is `group_NAME_kernel`."""
    mod = side_by_side({name: w.fused for name, w in written.items()})
    return tf.codegen.cuda_source(tvm.compile(mod, make_cuda_target(arch)))


def nvcc_run(source: str, folder: Path, *arguments: str) -> str:
    """Compile to `folder/out`; returns what the compiler says."""
    (folder / "kernels.cu").write_text(source)
    command = [nvcc(), "--use_fast_math", *arguments, "-o", str(folder / "out")]
    done = subprocess.run(
        [*command, str(folder / "kernels.cu")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stderr


def ptxas(written: dict[str, Written], arch: str, folder: Path) -> dict[str, Compiled]:
    """Figures of the kernel of each group."""
    source = source_of(written, arch)
    text = nvcc_run(source, folder, "-cubin", f"-arch={arch}", "-Xptxas", "-v")
    entries = re.split(r"Compiling entry function 'group_(\w+)_kernel'", text)[1:]
    found = {}
    for name, said in zip(entries[::2], entries[1::2], strict=True):
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", said)
        registers = re.search(r"Used (\d+) registers", said)
        assert spills
        assert registers
        shared = re.search(r"(\d+) bytes smem", said)
        found[name] = Compiled(
            int(spills[1]) + int(spills[2]), int(shared[1]) if shared else 0, int(registers[1])
        )
    assert set(found) == set(written)
    return found


def dynamic_shared_bytes(written: Written) -> int:
    """What a launch asks for: all arrays whose size the source does not declare."""
    sizes = []

    def visit(block: s_tir.SBlock) -> None:
        for buffer in block.alloc_buffers:
            if buffer.scope() == "shared.dyn":
                sizes.append(int(buffer.shape[0]) * element_bytes(buffer.dtype))

    tvm_ffi.structural_walk(written.kernel.body, (s_tir.SBlock, visit))
    return sum(sizes)


def named_groups() -> dict[str, Written]:
    return {name: write(build()) for name, build in GROUPS.items()}


def rows_of(dtype: str, *lengths: int) -> dict[str, Written]:
    return {
        f"{name}_{length}": write(mod)
        for length in lengths
        for name, mod in row_groups(3, length, dtype).items()
    }


#: Bytes of spills that are known: of the 80 registers that a block of 768 threads can have ptxas
#: takes 40, so that two blocks fit a multiprocessor, and spills a few words for that.
KNOWN_SPILLS = {("sm_90", "masked_softmax_12288"): 96, ("sm_90", "softmax_12288"): 16}


def check_spills(written: dict[str, Written], arch: str, folder: Path) -> None:
    for name, found in ptxas(written, arch, folder).items():
        assert found.spilled_bytes <= KNOWN_SPILLS.get((arch, name), 0), (name, found)
        threads = written[name].plan.threads_per_block
        assert found.registers * (-(-threads // 32) * 32) <= 65536, (name, found)


def test_nothing_is_spilled_for_an_a100(tmp_path):
    check_spills(named_groups() | rows_of("float32", 12288, 131072), "sm_80", tmp_path)


def test_nothing_is_spilled_for_an_h100(tmp_path):
    check_spills(named_groups() | rows_of("float16", 4096, 12288), "sm_90", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("length", [1, 7, 32, 100, 768, 1000, 4096, 5000, 12288, 33000, 131072])
def test_nothing_is_spilled_in_rows_of_floats(length, arch, tmp_path):
    check_spills(rows_of("float32", length), arch, tmp_path)


def test_nothing_is_spilled_where_a_row_is_read_again(tmp_path):
    """16 vectors a thread: NVIDIA's compiler holds what the first pass loads for the second."""
    check_spills(rows_of("float32", 65536), "sm_80", tmp_path)


#: Bits of the types that PTX names.
_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.\w+)*)\.[a-z](\d+)\s")
_ENTRY = re.compile(r"\.entry group_(\w+)_kernel\(")


def access_bytes(ptx: str) -> dict[str, list[int]]:
    """Width of each access to global memory, by kernel."""
    parts = _ENTRY.split(ptx)[1:]
    found = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        found[name] = []
        for _, modifiers, bits in _ACCESS.findall(text):
            vector = re.search(r"\.v(\d)", modifiers)
            found[name].append(int(bits) // 8 * (int(vector[1]) if vector else 1))
    return found


def test_every_access_to_global_memory_is_16_bytes_wide(tmp_path):
    names = ["add_layer_norm", "add_rms_norm", "softmax", "bias_gelu", "group_norm_silu"]
    written = {name: write(GROUPS[name]()) for name in names}
    nvcc_run(source_of(written, "sm_80"), tmp_path, "-ptx", "-arch=sm_80")
    found = access_bytes((tmp_path / "out").read_text())
    assert set(found) == set(names)
    for name in names:
        nests = read_nests(written[name].func)
        tensors = len(nests.inputs) + len(nests.outputs)
        assert len(found[name]) >= tensors, name
        assert set(found[name]) == {16}, (name, found[name])


LIMITS = (96 * KIB, 48 * KIB, 16 * KIB, KIB)


def _shifted(emit, x):
    """Neighbours of a normalized row: all threads read what others wrote."""
    width = int(x.ty.shape[1])
    y = emit(relax.op.nn.softmax(x, -1))
    parts = [emit(relax.op.strided_slice(y, [1], [b], [b + width - 1])) for b in (0, 1)]
    return emit(relax.op.subtract(*parts))


def _both_axes(emit, x):
    columns = emit(relax.op.sum(x, [1], keepdims=True))
    return emit(relax.op.add(emit(relax.op.nn.softmax(x, -1)), columns))


#: Groups that need shared memory, and how much: some of each kind.
SHARING = {
    **{name: GROUPS[name] for name in ("softmax_heads_mask", "group_norm_silu", "scan")},
    **{f"shifted_{n}": lambda n=n: module(_shifted, (4, n)) for n in (900, 9000, 18000)},
    **{f"axes_{n}": lambda n=n: module(_both_axes, (256, n, 64)) for n in (30, 250)},
    "column_sum": GROUPS["column_sum"],
}


def plan_or_none(func: tvm.tirx.PrimFunc, limit: int) -> KernelPlan | None:
    try:
        return plan_kernel(read_nests(func), limit)
    except CannotPlan:
        return None


@pytest.mark.parametrize("limit", LIMITS)
def test_kernels_stay_within_the_shared_memory_that_is_allowed(limit, tmp_path):
    written = {}
    for name, build in SHARING.items():
        if plan_or_none(group_func(build()), limit) is not None:
            written[name] = write(build(), limit)
    assert len(written) >= 6
    if limit > 48 * KIB:
        assert any(dynamic_shared_bytes(w) > 48 * KIB for w in written.values())
    for name, found in ptxas(written, "sm_80", tmp_path).items():
        total = found.shared_bytes + dynamic_shared_bytes(written[name])
        assert total <= limit, (name, found, written[name].plan.shared_bytes)


@pytest.mark.parametrize("name", SHARING)
def test_what_fits_into_less_shared_memory_fits_into_more(name):
    func = group_func(SHARING[name]())
    plans = [plan_or_none(func, limit) for limit in sorted(LIMITS)]
    answers = [plan is not None for plan in plans]
    assert answers == sorted(answers)
    assert answers[-1]
    factors = [plan.recompute_factor for plan in plans if plan is not None]
    assert factors == sorted(factors, reverse=True)  # more memory, less to evaluate again
