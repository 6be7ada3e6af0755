"""What several test files share: running modules, comparing results, counting calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from conftest import QUICK_LLVM
from tvm import relax, tirx

from tvm_fusion.workloads import random_inputs

#: Largest difference allowed, relative to the largest element of the unfused result. Fusing
#: keeps every operation and its precision, but LLVM may contract or reorder across what were
#: function borders: a few units in the last place of the dtype, times the depth of the network.
TOLERANCE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2, "float64": 1e-12}


def flatten(result: Any) -> list[np.ndarray]:
    """All tensors of a result, nested tuples in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [leaf for part in result for leaf in flatten(part)]


def run(executable: Any, args: list[np.ndarray], device: Any = None, name: str = "main") -> Any:
    device = device or tvm.cpu()
    machine = relax.VirtualMachine(executable, device)
    return flatten(machine[name](*[tvm.runtime.tensor(a, device) for a in args]))


def run_llvm(
    mod: tvm.IRModule, args: list[np.ndarray], pipeline: Any = "default", name: str = "main"
) -> list[np.ndarray]:
    """Compile for LLVM by a pipeline and run one function."""
    target = tvm.target.Target(QUICK_LLVM)
    return run(tvm.compile(mod, target, relax_pipeline=pipeline), args, name=name)


def assert_close(got: list[np.ndarray], want: list[np.ndarray], tolerance: float | None = None):
    """Compare results by the largest difference over the largest element; NaN fails."""
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        if not np.issubdtype(b.dtype, np.floating) and str(b.dtype) != "bfloat16":
            np.testing.assert_array_equal(a, b)
            continue
        allowed = TOLERANCE[str(b.dtype)] if tolerance is None else tolerance
        a, b = a.astype("float64"), b.astype("float64")
        assert np.isfinite(a).all()
        assert np.isfinite(b).all()
        scale = max(float(np.abs(b).max(initial=0)), 1e-30)
        assert float(np.abs(a - b).max(initial=0)) <= allowed * scale


def check_fused(mod: tvm.IRModule, fused: tvm.IRModule, assume: Any = None, name="main") -> None:
    """A fused module computes on LLVM what the unfused one computes, on random data."""
    args = random_inputs(mod, seed=0, assume=assume)
    assert_close(run_llvm(fused, args, name=name), run_llvm(mod, args, name=name))


def calls(func: relax.Function) -> list[str]:
    """Names of the functions that a Relax function calls, in order of the bindings."""
    names: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call):
            if isinstance(expr.op, tvm.ir.GlobalVar):
                names.append(expr.op.name_hint)
            elif getattr(expr.op, "name", "").startswith("relax.call_tir"):
                names.append(expr.args[0].name_hint)

    relax.analysis.post_order_visit(func, visit)
    return names


def prim_funcs(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    return {g.name_hint: f for g, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}


def legalize(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.LegalizeOps()(mod)
