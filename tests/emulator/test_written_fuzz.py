"""Random groups as one kernel each: planned, written, run in check mode, compared with LLVM.

A random part of a random module is a group. That no kernel is planned for it is an answer; one that
is written has to run without a report of the emulator in three thread orders, and to be right.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from random_modules import random_module
from support import assert_close, flatten
from tvm import relax
from written import (
    ORDERS,
    SHARED,
    Written,
    arrays_for,
    as_group,
    compile_written,
    expected,
    launch,
    module,
    part,
    prepared,
    random_group_module,
    side_by_side,
    symbols_of,
    write,
    write_prepared,
)

from tvm_fusion import emulator
from tvm_fusion.analysis.nests import Unreadable
from tvm_fusion.planning import CannotPlan

#: Largest difference over the largest element, or over 0.1 where sums cancel to less: sums are
#: added up in another order, and a select or a variance near zero can enlarge that. A wrong element
#: is off by about 1.
TOLERANCE = {"float32": 2e-4, "float16": 3e-2}
LEAST_SCALE = 0.1

#: Of the elements of a result of type bool, or of one in float16 that a comparison selects: what
#: is compared may be equal but for rounding.
MOST_DIFFERENT = 0.02

#: Shared memory for the intermediates: what a block has, and less, so that results are let go.
LIMITS = (SHARED, SHARED, SHARED, 8192, 1024)

#: Seeds of groups that were wrong: a reduction over one element (146, 160), pieces of an axis that
#: do not divide it (69, 294, 1364), a square tensor read both ways (311), an input that a block
#: loads in another order than it lies (779), two gathers with indices of one name (1118), no
#: barrier behind an input that some rows load for all (2102), a concat within a concat (2969), a
#: slice behind a reshape (3664). One whose result in shared memory was read back for an output
#: could not be built (2306).
FOUND = (69, 146, 160, 294, 311, 779, 1118, 1364, 2102, 2306, 2969, 3664)
SIZE = 8
FEW, MANY = 3, 500  # batches


def random_group(seed: int) -> Written | None:
    """A written group, or None where the module is not made or no kernel is planned."""
    rng = random.Random(seed * 7 + 1)
    dtype = "float16" if seed % 4 == 3 else "float32"
    try:
        mod = random_module(seed) if seed % 10 == 5 else random_group_module(seed, dtype)
        ready = part(rng, prepared(mod), rng.choice([1.0, 1.0, 0.5, 0.3]))
    except (tvm.error.InternalError, IndexError):
        return None  # TVM does not legalize it
    if ready is None:
        return None
    try:
        return write_prepared(ready, as_group(ready), rng.choice(LIMITS))
    except (CannotPlan, Unreadable):
        return None


def check(seeds: range | tuple[int, ...]) -> None:
    written = {f"main_{s}": w for s in seeds if (w := random_group(s)) is not None}
    assert len(written) > len(seeds) // 2
    unfused = side_by_side({key: w.mod for key, w in written.items()})
    fused = side_by_side({key: w.fused for key, w in written.items()})
    llvm = tvm.compile(unfused, tvm.target.Target(QUICK_LLVM))
    cuda = tvm.compile(fused, make_cuda_target())
    on_cpu = relax.VirtualMachine(llvm, tvm.cpu())
    on_gpu = relax.VirtualMachine(cuda, tvm.cuda(0), memory_cfg="naive")
    wrong = [text for key, w in written.items() if (text := compare(key, w, on_cpu, on_gpu))]
    assert not wrong, "\n".join(wrong)


def compare(key: str, written: Written, on_cpu, on_gpu) -> str:
    """What is wrong with a kernel; empty if nothing is."""
    names = symbols_of(written.mod)
    for size in (1, 3) if names else (1,):
        values = {name: size + 2 * i for i, name in enumerate(names)}
        arrays = arrays_for(written.mod, values)
        want = flatten(on_cpu[key](*[tvm.runtime.tensor(a) for a in arrays]))
        held = [tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays]
        for order in ORDERS:
            before = emulator.launches()
            try:
                with emulator.configure(check=True, **order):
                    got = flatten(on_gpu[key](*held))
            except emulator.EmulatorError as error:
                return f"{key} {values} {order}: {error}"
            if emulator.launches() != before + 1:
                return f"{key}: several launches"
            loose = "float16" in written.func.script()
            for number, (a, b) in enumerate(zip(got, want, strict=True)):
                if text := difference(a, b, loose):
                    return f"{key} {values} {order} result {number}: {text}"
    return ""


def difference(got: np.ndarray, want: np.ndarray, loose: bool) -> str:
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype} {got.shape} for {want.dtype} {want.shape}"
    if want.dtype == bool:
        share = float((got != want).mean()) if want.size else 0.0
        return f"{share:.0%} of the elements differ" if share > MOST_DIFFERENT else ""
    a, b = got.astype("float64"), want.astype("float64")
    if not np.isfinite(b).all():
        return ""  # an overflow on both sides, or none: nothing to compare
    if not np.isfinite(a).all():
        return "not finite"
    off = np.abs(a - b) / max(LEAST_SCALE, float(np.abs(b).max(initial=0)))
    allowed = TOLERANCE["float16" if loose else "float32"]
    if loose and float((off > allowed).mean()) <= MOST_DIFFERENT:
        return ""  # a select on a sum in float16, which LLVM adds up one by one
    most = float(off.max(initial=0))
    return f"off by {most:.1e} of the largest element" if most > allowed else ""


def test_groups_that_were_wrong(emulated):
    check(FOUND)


def test_a_kept_result_read_backwards(emulated):
    """Why the random modules reverse no axis: TVM drops a constant in divisions of `c - v`."""

    def build(emit, x, ids):
        wide = emit(relax.op.exp(emit(relax.op.concat([x, x, x], 1))))
        rows = emit(relax.op.take(wide, ids, 0, mode="clip"))
        return [wide, emit(relax.op.flip(rows, 1))]

    written = write(module(build, (17, 5), ((32,), "int32")))
    arrays = arrays_for(written.mod, {})
    got = launch(compile_written(written), arrays, check=True)
    assert_close(got, expected(written.mod, arrays))


@pytest.mark.parametrize("batch", range(FEW))
def test_random_groups(batch, emulated):
    check(range(batch * SIZE, (batch + 1) * SIZE))


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(FEW, MANY))
def test_many_random_groups(batch, emulated):
    check(range(batch * SIZE, (batch + 1) * SIZE))
