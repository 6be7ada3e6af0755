"""Checks on options that several passes share."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable

import tvm

from ..analysis import Op
from ..codegen import Compiler, find_compiler
from ..codegen.compilers import COMPILER_VARIABLE
from ..errors import CompilerError, LimitsError
from ..limits import FEEDBACK, OF_COMPILED_KERNELS, Limits

#: What ``no_fuse`` takes: names, or a predicate.
Excluded = Iterable[str] | Callable[[Op], bool]


def check_feedback(feedback: str, limits: Limits | None = None) -> None:
    """Refuse a feedback mode that does not exist, or that leaves limits unchecked, or no limits.

    Raises
    ------
    LimitsError
    """
    if limits is not None and not isinstance(limits, Limits):
        raise LimitsError(f"limits is of type {type(limits).__name__}: give tvm_fusion.Limits(...)")
    if feedback not in FEEDBACK:
        raise LimitsError(f"unknown feedback {feedback!r}: use one of {', '.join(FEEDBACK)}")
    unchecked = [n for n in OF_COMPILED_KERNELS if limits and getattr(limits, n) is not None]
    if feedback == "off" and unchecked:
        raise LimitsError(
            f"Limits.{unchecked[0]} is checked against the CUDA compiler's figures: it needs "
            f"feedback='compiler' or 'auto'"
        )


def check_no_fuse(no_fuse: Excluded) -> tuple[str, ...] | Callable[[Op], bool]:
    """The names to leave alone as a tuple, or the predicate; a single name may stand by itself."""
    if isinstance(no_fuse, str):
        return (no_fuse,)
    return no_fuse if callable(no_fuse) else tuple(no_fuse)


def choose_compiler(target: tvm.target.Target, quiet: bool) -> tuple[Compiler | None, str]:
    """The compiler that feedback asks, and the architecture it compiles for.

    Warns where there is none, or none for the architecture that the target names; figures are
    estimates then.

    Parameters
    ----------
    target : tvm.target.Target
        A CUDA target.
    quiet : bool
        Do not warn.
    """
    arch = str(target.attrs.get("arch") or "")
    why = ""
    compiler: Compiler | None = None
    try:
        compiler = find_compiler()
        if compiler is None and os.environ.get(COMPILER_VARIABLE) != "none":
            why = "no CUDA compiler is installed: pip install 'tvm-fusion[cuda]'"
        elif compiler is not None and not compiler.supports(arch):
            why = f"{compiler.name} makes no code for {arch or 'a target without an architecture'}"
    except CompilerError as error:
        why = str(error)
    # Of a target that says nothing of itself, which TVM takes for sm_50, one warning is enough.
    is_bare = target.attrs.get("max_threads_per_block") is None
    if why and not quiet and not is_bare:
        warnings.warn(f"registers and occupancy of kernels are estimates: {why}", stacklevel=2)
    return (None if why else compiler), arch
