"""``tvm-fusion demo``: a built-in block, compiled as any model is, and run on the CPU."""

from __future__ import annotations

import warnings

import numpy as np
import tvm
from tvm import relax

from ..policy import get_policy
from ..transform import AnnotateOpKind, FuseOps, Schedule
from ..workloads import random_inputs
from .compile import build, progress
from .options import Settings

_MODEL = "gpt2_block"

#: Largest difference allowed, relative to the largest output: float32 on both sides, where a sum
#: of 3,072 products in another order differs by some 1e-6. (TVM keeps the order on the CPU.)
_TOLERANCE = 1e-4


def demo(settings: Settings) -> int:
    """Run the command.

    Parameters
    ----------
    settings : Settings
        The options.

    Returns
    -------
    int
        The exit status: 1 where fused and unfused results differ by more than the tolerance.
    """
    made = build(_MODEL, settings)
    with progress() as say:
        say("run fused and unfused on the CPU")
        arrays = random_inputs(made.imported)
        with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
            unfused = run_on_cpu(tvm.compile(made.imported, "llvm"), arrays)
        fused = run_on_cpu(compile_for_cpu(made.imported, settings), arrays)
    difference = float(np.abs(fused - unfused).max())
    allowed = _TOLERANCE * float(np.abs(unfused).max())
    print(
        f"fused against unfused on the CPU: largest difference {difference:.2e}, "
        f"allowed {allowed:.2e}"
    )
    return 0 if difference <= allowed else 1


def compile_for_cpu(mod: tvm.IRModule, settings: Settings) -> relax.VMExecutable:
    """Compile a module for the CPU with the groups that it gets on the GPU.

    Parameters
    ----------
    mod : tvm.IRModule
        A Relax module.
    settings : Settings
        The options: target, policy, limits and exclusions of the groups.
    """
    grouping = [
        relax.transform.LegalizeOps(),
        AnnotateOpKind(),
        relax.transform.FoldConstant(),
        FuseOps(get_policy(settings.policy), settings.limits, settings.no_fuse, settings.feedback),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
    ]
    with tvm.target.Target(settings.target), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same was said when it was compiled for the GPU
        grouped = tvm.transform.Sequential(grouping)(mod)
    cpu = tvm.target.Target("llvm")
    with cpu:
        marked = tvm.transform.Sequential([Schedule()])(
            grouped
        )  # a CPU keeps the loops; the groups are marked as finished
    return tvm.compile(marked, cpu)


def run_on_cpu(executable: relax.VMExecutable, arrays: list[np.ndarray]) -> np.ndarray:
    """The result of ``main`` on the CPU."""
    machine = relax.VirtualMachine(executable, tvm.cpu())
    result: np.ndarray = machine["main"](*map(tvm.runtime.tensor, arrays)).numpy()
    return result
