"""The errors that tvm_fusion raises on bad input, in one place."""

from __future__ import annotations

from typing import TypeVar

import tvm_ffi

_Error = TypeVar("_Error", bound=type)


def _registered(cls: _Error) -> _Error:
    """Let an error keep its class when it passes through TVM's C++ pass manager."""
    tvm_ffi.register_error(f"tvm_fusion.{cls.__name__}", cls)
    return cls


@_registered
class TVMFusionError(Exception):
    """Base class: the input cannot be handled; the message names the thing and the remedy."""


@_registered
class GraphError(TVMFusionError, ValueError):
    """A hand-built dataflow graph is not a directed acyclic graph over known ops."""


@_registered
class LimitsError(TVMFusionError, ValueError):
    """A limit has a value that no kernel can meet, or that this version cannot check."""


@_registered
class PolicyError(TVMFusionError, ValueError):
    """A fusion policy is unknown, registered twice, or returned groups that are not legal."""


@_registered
class TargetError(TVMFusionError, ValueError):
    """A pass needs a GPU target and none is current, or the target is of another kind."""


@_registered
class ModelError(TVMFusionError):
    """A model cannot be imported or compiled."""


@_registered
class EmulatorError(TVMFusionError):
    """The emulator cannot run, or found an error in a kernel; the message says where."""


@_registered
class CompilerError(TVMFusionError):
    """A CUDA compiler is not there, or does not take a source."""


@_registered
class ReportError(TVMFusionError, ValueError):
    """A report cannot be read, or does not hold what it is asked for."""


def one_line(error: BaseException) -> str:
    """The line of an error's message that says what is wrong, after the kind of the error.

    TVM's messages hold backtraces, and source with markers below it.
    TVMScript's say it in a line that starts with ``error:``, all others in the last.

    Parameters
    ----------
    error : BaseException
        Any error.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    marked = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    return ": ".join([type(error).__name__, *(marked or lines)[-1:]])
