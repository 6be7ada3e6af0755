"""Rows of all lengths and counts through the rule `Stitched`: right, one launch, within limits."""

from __future__ import annotations

import math

import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, flatten
from tvm import relax
from written import (
    GROUP,
    SHARED,
    Written,
    arrays_for,
    as_group,
    extents_of,
    module,
    prepared,
    row_groups,
    side_by_side,
    symbols_of,
    with_kernel,
    write,
)

from tvm_fusion import emulator
from tvm_fusion.codegen import emit_cuda, parse_kernels
from tvm_fusion.schedule import Stitched

LENGTHS = (1, 7, 32, 100, 768, 1000, 1024, 4096, 5000, 12288, 33000, 131072)
COUNTS = (1, 3, 128, 65537)

#: What is run; larger tensors are compiled only.
MOST_ELEMENTS = 1 << 21

PAIRS = [(rows, length) for length in LENGTHS for rows in COUNTS]
RUN = [(rows, length) for rows, length in PAIRS if rows * length <= MOST_ELEMENTS]
COMPILED = [pair for pair in PAIRS if pair not in RUN]
FEW = [(3, 1), (128, 7), (3, 100), (3, 1000), (1, 5000)]
FEW_COMPILED = [(65537, 32), (128, 131072)]

#: Largest difference over the largest element. Both sides keep every value in the same type, and
#: add up a row in another order: LLVM one by one, the kernel in a tree of threads. The error of the
#: first grows with the length, up to some hundred units in the last place for 131,072 terms. The
#: norms add up in float32 whatever the type is; what is left are two roundings at the end.
TOLERANCE = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}
LONG, TOLERANCE_OF_LONG = 5000, 2e-4

#: The groups whose sums are float32 whatever the type is. The others add up halves, one by one on
#: the CPU: no reference for long rows, and TVM has no mean of more than 65,504 of them.
NORMS = ("layer_norm", "rms_norm", "add_norm")
LONGEST_SUM_OF_HALVES = 100


def written_rows(rows: int | str, length: int | str, dtype: str) -> dict[str, Written]:
    """All groups for one shape, by the rule."""
    made = {}
    for name, mod in row_groups(rows, length, dtype).items():
        too_long = isinstance(length, int) and length > LONGEST_SUM_OF_HALVES
        if dtype != "float32" and too_long and name not in NORMS:
            continue
        ready = prepared(mod)
        grouped = as_group(ready)
        rule = Stitched()
        schedule = rule.apply(grouped[GROUP], make_cuda_target(), False)
        assert schedule is not None, name
        made[name] = with_kernel(ready, grouped, schedule.mod["main"], rule.plan)
    return made


def run(groups: dict[str, Written], size: int, tolerance: float) -> None:
    """All groups give on the emulator, in one launch each, what they give unfused."""
    unfused = side_by_side({name: w.mod for name, w in groups.items()})
    fused = side_by_side({name: w.fused for name, w in groups.items()})
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        llvm = tvm.compile(unfused, tvm.target.Target(QUICK_LLVM))
    cuda = tvm.compile(fused, make_cuda_target())
    on_cpu = relax.VirtualMachine(llvm, tvm.cpu())
    on_gpu = relax.VirtualMachine(cuda, tvm.cuda(0), memory_cfg="naive")
    for name, written in groups.items():
        values = dict.fromkeys(symbols_of(written.mod), size)
        arrays = arrays_for(written.mod, values)
        before = emulator.launches()
        with emulator.configure(check=True):
            got = flatten(on_gpu[name](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays]))
        assert emulator.launches() == before + 1
        want = flatten(on_cpu[name](*[tvm.runtime.tensor(a) for a in arrays]))
        assert_close(got, want, tolerance)


def check_launch(written: Written, rows: int, length: int) -> None:
    """Threads, blocks and shared memory of a kernel are within limits and cover all rows."""
    plan = written.plan
    (blocks,), *threads = extents_of(written.kernel)
    assert math.prod(e for axis in threads for e in axis) == plan.threads_per_block <= 1024
    assert blocks <= 2**31 - 1
    if plan.chunk:
        assert (blocks - 1) * plan.chunk < rows * length <= blocks * plan.chunk
    else:
        assert (blocks - 1) * plan.rows_per_block < eval(plan.rows) <= blocks * plan.rows_per_block
    (kernel,) = parse_kernels(emit_cuda(written.kernel, make_cuda_target()))
    assert (kernel.threads or 1) == plan.threads_per_block  # TVM leaves out a bound of 1
    assert not kernel.uses_dynamic_shared
    assert kernel.static_shared_bytes <= SHARED


def check(rows: int, length: int, dtype: str) -> None:
    groups = written_rows(rows, length, dtype)
    for written in groups.values():
        check_launch(written, rows, length)
    long = dtype == "float32" and length > LONG
    run(groups, rows, TOLERANCE_OF_LONG if long else TOLERANCE[dtype])


@pytest.mark.parametrize(("rows", "length"), FEW)
def test_rows(rows, length, emulated):
    check(rows, length, "float32")


@pytest.mark.parametrize(("rows", "length", "dtype"), [(3, 768, "float16"), (3, 100, "bfloat16")])
def test_rows_of_halves(rows, length, dtype, emulated):
    check(rows, length, dtype)


@pytest.mark.parametrize(("rows", "length"), FEW_COMPILED)
def test_large_rows_compile(rows, length):
    for written in written_rows(rows, length, "float32").values():
        check_launch(written, rows, length)


@pytest.mark.parametrize("length", [7, 100])
def test_a_symbolic_number_of_rows(length, emulated):
    groups = written_rows("n", length, "float32")
    for size in (1, 130):
        run(groups, size, TOLERANCE["float32"])


def test_a_symbolic_length_of_rows(emulated):
    """The host chooses between kernels for short and for long rows: one launch all the same."""
    groups = written_rows(3, "n", "float32")
    for written in groups.values():
        assert written.plan.alternatives > 1
    for size in (5, 300, 3000):
        run(groups, size, TOLERANCE["float32"])


def test_a_symbolic_length_of_rows_that_threads_share(emulated):
    def build(emit, x, w, y):
        return emit(relax.op.maximum(emit(relax.op.nn.rms_norm(x, w, [-1])), y))

    written = write(module(build, (33, 12), (12,), ("n", 33, 12)))
    assert "shared" in written.plan.placement
    run({"main": written}, 3, TOLERANCE["float32"])


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "length"), [pair for pair in RUN if pair not in FEW])
def test_all_rows(rows, length, emulated):
    check(rows, length, "float32")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("rows", "length"), [p for p in RUN if p[1] <= 4096])
def test_all_rows_of_halves(rows, length, dtype, emulated):
    check(rows, length, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("rows", "length"), COMPILED)
def test_all_large_rows_compile(rows, length, dtype):
    for written in written_rows(rows, length, dtype).values():
        check_launch(written, rows, length)
