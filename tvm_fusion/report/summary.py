"""Builds a model and tells about that very build: the fused module, the executable, the summary."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tvm
from tvm import relax

from ..analysis import Op
from ..analysis.traffic import Totals, total
from ..errors import ModelError
from ..limits import Limits
from ..policy import DEFAULT_POLICY, Policy, get_policy
from ..trace import Trace, record
from ..transform import OperatorFusion
from .data import Summary, edge_summaries, group_summaries, versions
from .stock import stock_totals

_Excluded = Iterable[str] | Callable[[Op], bool]


def summarise(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    policy: str | Policy = DEFAULT_POLICY,
    limits: Limits | None = None,
    no_fuse: _Excluded = (),
    assume: Mapping[str, int] | None = None,
    compare_stock: bool = False,
    feedback: str = "auto",
    progress: Callable[[str], None] = lambda _phase: None,
) -> tuple[Summary, tvm.IRModule, Any]:
    """Fuse, schedule and compile a module, and count it against its unfused and stock builds.

    Parameters
    ----------
    mod : tvm.IRModule
        A Relax module.
    target : str or tvm.target.Target
        A CUDA target or the tag of one.
    policy, limits, no_fuse, feedback
        As for :class:`tvm_fusion.transform.FuseOps`.
    assume : mapping of str to int, optional
        Values of symbolic extents by name, for the counts.
    compare_stock : bool
        Also build with TVM's own fusion and schedules, in a process of its own, since those can
        end the process. Where they fail the summary says so.
    progress : callable, optional
        Called with the name of each phase when it starts.

    Returns
    -------
    summary : Summary
    fused : tvm.IRModule
        The fused and scheduled module.
    executable : tvm.relax.VMExecutable
        ``fused`` compiled for ``target``.

    Raises
    ------
    TVMFusionError
        ``no_fuse`` names what is not there, or a symbolic extent has no value in ``assume``.

    Examples
    --------
    >>> mod = tvm_fusion.workloads.WORKLOADS["softmax_chain"]()  # doctest: +SKIP
    >>> summary, fused, executable = summarise(mod, "nvidia/nvidia-a100")  # doctest: +SKIP
    """
    chosen = get_policy(policy)
    limits = limits or Limits()
    no_fuse = no_fuse if callable(no_fuse) else tuple(no_fuse)
    gpu = tvm.target.Target(target) if isinstance(target, str) else target
    clock = _Clock(progress)
    totals: dict[str, Totals | None] = {"unfused": None, "stock": None, "ours": None}
    notes: list[str] = []

    with clock.phase("legalize"), gpu:
        passes = [*relax.pipeline.library_dispatch_passes(gpu), relax.transform.LegalizeOps()]
        legal = tvm.transform.Sequential(passes)(mod)
    with clock.phase("fuse"), gpu, record() as trace:
        fused = _run(OperatorFusion(chosen, limits, no_fuse, feedback), legal)
    if not callable(no_fuse):
        _check_names(no_fuse, trace)
    totals["ours"] = total(fused, assume)
    with clock.phase("unfused"), gpu, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be scheduled was said of our own build
        alone = OperatorFusion(chosen, Limits(), lambda _op: True, feedback="off")
        unfused = _run(alone, legal)
        totals["unfused"] = total(unfused, assume)
    if compare_stock:
        with clock.phase("stock"):
            totals["stock"], failure = stock_totals(legal, gpu, assume)
        if failure is not None:
            notes.append(failure)
    with clock.phase("compile"):
        executable = tvm.compile(fused, gpu if gpu.host is not None else gpu.with_host("llvm"))
    summary = Summary(
        versions=versions(),
        target=target if isinstance(target, str) else str(target),
        policy=chosen.name,
        limits=limits.as_dict(),
        totals=totals,
        groups=group_summaries(trace, fused, assume),
        edges=edge_summaries(trace),
        kernels=trace.kernels,
        feedback=tuple(trace.feedback),
        notes=(*trace.notes, *notes),
        seconds={**clock.seconds, **trace.seconds},
    )
    return summary, fused, executable


def _run(step: tvm.transform.Pass, mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.transform.Sequential([step])(mod)


class _Clock:
    """Announces phases and keeps their times."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self.progress(name)
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def _check_names(no_fuse: Iterable[str], trace: Trace) -> None:
    """Refuse a name that excludes nothing: most likely it is misspelt."""
    ops = [op for block in trace.blocks for op in block.graph.ops]
    functions = list(dict.fromkeys(op.origin or op.function for op in ops))
    known = {name for op in ops for name in (op.name, op.function, op.origin)}
    for name in no_fuse:
        if name not in known:
            some = ", ".join(functions[:12]) + (", ..." if len(functions) > 12 else "")
            raise ModelError(
                f"no op or PrimFunc is named {name!r}: exclude one of {some}, or a variable of "
                f"the legalized module"
            )
