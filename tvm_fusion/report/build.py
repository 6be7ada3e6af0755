"""Builds a module and tells about that very build: the report, and the fused module."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx

from .. import __version__
from ..analysis.blocks import iter_params, vars_of
from ..analysis.traffic import Totals, call_traffic, sum_up
from ..device import Device
from ..device.gpu import DEFAULT_TARGET
from ..errors import ModelError, TargetError
from ..limits import Limits
from ..policy import DEFAULT_POLICY, Policy, get_policy
from ..trace import Trace, phase, record
from ..transform import OperatorFusion
from ..transform.options import Excluded, check_feedback, check_no_fuse
from .assumptions import assumptions
from .data import DeviceEntry, Header
from .entries import EntryMaker
from .fusion_report import FusionReport
from .stock import stock_totals


def explain(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    policy: str | Policy = DEFAULT_POLICY,
    limits: Limits | None = None,
    no_fuse: Excluded = (),
    assume: Mapping[str, int] | None = None,
    compare_stock: bool = False,
    feedback: str = "auto",
) -> FusionReport:
    """Fuse and schedule a module, and say what was decided, why, and what it saves.

    Parameters
    ----------
    mod : tvm.IRModule
        A Relax module; it is left as it is.
    target : str or tvm.target.Target
        A CUDA target or the tag of one.
    policy, limits, no_fuse, feedback
        As for :class:`tvm_fusion.transform.FuseOps`.
    assume : mapping of str to int, optional
        Values of symbolic extents by name, for the counts.
    compare_stock : bool
        Also count what TVM's own fusion and schedules make, in a process of its own, since those
        can end the process. Where they fail a note says so.

    Returns
    -------
    FusionReport

    Raises
    ------
    TVMFusionError
        ``no_fuse`` or ``assume`` name what is not there, a symbolic extent has no value in
        ``assume``, or the target is no CUDA GPU.

    Examples
    --------
    >>> mod = tvm_fusion.workloads.WORKLOADS["llama_block"]()  # doctest: +SKIP
    >>> report = tvm_fusion.explain(mod, "nvidia/nvidia-a100")  # doctest: +SKIP
    >>> print(report.why("matmul", "silu"))  # doctest: +SKIP
    """
    options = (policy, limits, no_fuse, assume, compare_stock, feedback)
    report, _ = build_and_explain(mod, target, *options)
    return report


def build_and_explain(
    mod: tvm.IRModule,
    target: str | tvm.target.Target,
    policy: str | Policy = DEFAULT_POLICY,
    limits: Limits | None = None,
    no_fuse: Excluded = (),
    assume: Mapping[str, int] | None = None,
    compare_stock: bool = False,
    feedback: str = "auto",
    progress: Callable[[str], None] = lambda _phase: None,
) -> tuple[FusionReport, tvm.IRModule]:
    """As :func:`explain`, with the module that was made.

    Parameters
    ----------
    mod, target, policy, limits, no_fuse, assume, compare_stock, feedback
        As for :func:`explain`.
    progress : callable, optional
        Called with the name of each phase when it starts.

    Returns
    -------
    report : FusionReport
    fused : tvm.IRModule
        The fused and scheduled module.
    """
    if not isinstance(mod, tvm.IRModule):
        raise ModelError(f"the model is of type {type(mod).__name__}: give an IRModule")
    chosen = get_policy(policy)
    check_feedback(feedback, limits)
    limits = limits or Limits()
    no_fuse = check_no_fuse(no_fuse)
    gpu = _cuda_target(target)
    totals: dict[str, Totals | None] = {"unfused": None, "stock": None, "ours": None}
    with record() as trace:
        progress("legalize")
        with phase("legalize"), gpu:
            passes = [*relax.pipeline.library_dispatch_passes(gpu), relax.transform.LegalizeOps()]
            legal = tvm.transform.Sequential(passes)(mod)
        progress("fuse")
        with phase("fuse"), gpu:
            fused = _run(OperatorFusion(chosen, limits, no_fuse, feedback), legal)
        if not callable(no_fuse):
            _check_names(no_fuse, trace)
        if assume:
            _check_extents(assume, legal)
        progress("unfused")
        with phase("unfused"), record():
            unfused = _unfused(legal, gpu, chosen)
        if compare_stock:
            progress("stock")
            with phase("stock"):
                totals["stock"], failure = stock_totals(legal, gpu, assume)
            if failure is not None:
                trace.notes.append(failure)
    after, before = call_traffic(fused, assume), call_traffic(unfused, assume)
    totals.update(unfused=sum_up(before), ours=sum_up(after))
    made = EntryMaker(trace, fused, before, after)
    ops, kernels = made.ops(), made.kernels()
    header = Header(
        versions=_versions(),
        target=target if isinstance(target, str) else str(target),
        device=_device(gpu, limits),
        policy=chosen.name,
        limits=limits.as_dict(),
        no_fuse=("(a predicate)",) if callable(no_fuse) else no_fuse,
        assume=dict(assume or {}),
        feedback=feedback,
        compiler=", ".join(dict.fromkeys(filter(None, (k.figures.compiler for k in kernels)))),
        totals=totals,
        seconds=trace.seconds,
    )
    report = FusionReport(
        header=header,
        ops=ops,
        edges=made.edges(),
        siblings=made.siblings(),
        groups=made.groups,
        kernels=kernels,
        feedback=tuple(trace.feedback),
        assumptions=assumptions(header, ops),
        notes=(*trace.notes, *made.notes()),
        spans=tuple(trace.spans),
    )
    return report, fused


def _cuda_target(target: str | tvm.target.Target) -> tvm.target.Target:
    try:
        made = tvm.target.Target(target) if isinstance(target, str) else target
    except Exception:  # TVM raises several kinds, with long texts
        raise TargetError(
            f"unknown target {target!r}: give a tag like {DEFAULT_TARGET!r}"
        ) from None
    if not isinstance(made, tvm.target.Target):
        raise TargetError(f"{target!r} is no target: give a tag like {DEFAULT_TARGET!r}")
    if made.kind.name != "cuda":
        raise TargetError(
            f"a report is made for CUDA GPUs, and {made.kind.name!r} is none: give a tag like "
            f"{DEFAULT_TARGET!r}"
        )
    return made


def _device(target: tvm.target.Target, limits: Limits) -> DeviceEntry:
    device = Device.from_target(target, quiet=True)
    return DeviceEntry(
        name=device.name,
        source=Device.source(target),
        shared_memory_bytes=device.shared_memory_budget(limits),
        multiprocessors=device.multiprocessors,
        memory_bytes_per_second=device.memory_bytes_per_second,
    )


def _unfused(legal: tvm.IRModule, target: tvm.target.Target, policy: Policy) -> tvm.IRModule:
    """The same module with a kernel for each op, and nothing repeated."""
    alone = OperatorFusion(policy, Limits(), lambda _op: True, feedback="off")
    current = tvm.transform.PassContext.current()
    without = tvm.transform.PassContext(
        opt_level=current.opt_level,
        required_pass=list(current.required_pass),
        disabled_pass=[*current.disabled_pass, "tvm_fusion.DuplicateBroadcasts"],
        config=dict(current.config),
    )
    with target, without, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what cannot be scheduled was said of our own build
        return _run(alone, legal)


def _run(step: tvm.transform.Pass, mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.transform.Sequential([step])(mod)


def _versions() -> dict[str, str]:
    """Versions of everything that decides what a build comes out as."""
    return {
        "tvm": str(tvm.__version__),
        "tvm_ffi": str(tvm_ffi.__version__),
        "tvm_fusion": __version__,
        "python": platform.python_version(),
    }


def _check_extents(assume: Mapping[str, int], mod: tvm.IRModule) -> None:
    """Refuse a value for an extent that is not there: most likely its name is misspelt."""
    known: dict[str, None] = {}
    for func in mod.functions.values():
        symbols: list[Any] = []
        if isinstance(func, relax.Function):
            symbols += relax.analysis.defined_symbolic_vars(func)
        elif isinstance(func, tirx.PrimFunc):
            extents = (extent for param in iter_params(func) for extent in param.ty.shape)
            symbols += (var for extent in extents for var in vars_of(extent))
        known.update((symbol.name, None) for symbol in symbols)
    for name in assume:
        if name not in known:
            some = ", ".join(known) or "none"
            raise ModelError(f"no symbolic extent is named {name!r}: the model has {some}")


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
