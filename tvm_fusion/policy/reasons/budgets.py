"""Reasons that are a limit of :class:`tvm_fusion.Limits`, checked before anything is scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import PairReason, Reason


@dataclass(frozen=True)
class TooDeep(Reason):
    """The group would have more ops than ``max_depth``."""

    depth: int
    max_depth: int
    code = "max_depth"
    template = "the group would have {depth} ops, the limit is {max_depth}"
    remedy = "Limits.max_depth were {depth} or more"
    scarce = "ops in a group"
    limit, needed = "max_depth", "depth"


@dataclass(frozen=True)
class TooManyOps(Reason):
    """The group would have more ops than ``max_group_size``."""

    ops: int
    max_group_size: int
    code = "max_group_size"
    template = "the group would have {ops} ops, max_group_size is {max_group_size}"
    remedy = "Limits.max_group_size were {ops} or more"
    scarce = "ops in a group"
    limit, needed = "max_group_size", "ops"


@dataclass(frozen=True)
class TooManyArgs(Reason):
    """The kernel would take more tensors than ``max_kernel_args``; 512 is what CUDA takes."""

    args: int
    max_kernel_args: int
    code = "kernel_args"
    template = "the kernel would take {args} arguments, {max_kernel_args} are allowed"
    remedy = "Limits.max_kernel_args were {args} or more"
    scarce = "kernel arguments"
    limit, needed = "max_kernel_args", "args"


@dataclass(frozen=True)
class OutOfFusions(Reason):
    """The merges that ``max_fusions`` allows are spent."""

    fusions: int
    max_fusions: int
    code = "max_fusions"
    template = "this would be fusion {fusions}, max_fusions allows {max_fusions}"
    remedy = "Limits.max_fusions were {fusions} or more"
    scarce = "fusions"
    limit, needed = "max_fusions", "fusions"


def _shared_memory_needed(bytes_needed: int, attainable: bool) -> dict[str, Any]:
    return {"shared_memory_bytes": bytes_needed} if attainable else {}


def _shared_memory_remedy(bytes_needed: int, attainable: bool) -> str:
    if attainable:
        return f"Limits.shared_memory_bytes were {bytes_needed} or more"
    return f"a thread block of this GPU could have {bytes_needed} bytes of shared memory"


@dataclass(frozen=True)
class SharedMemory(Reason):
    """The reduction needs more shared memory than a thread block may have."""

    op: str
    bytes_needed: int
    bytes_allowed: int
    attainable: bool = True
    code = "shared_memory"
    template = "{op} needs {bytes_needed} bytes of shared memory, {bytes_allowed} are allowed"
    scarce = "shared memory"

    @property
    def limits_needed(self) -> dict[str, Any]:
        """The limit, where the GPU grants as much."""
        return _shared_memory_needed(self.bytes_needed, self.attainable)

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        return _shared_memory_remedy(self.bytes_needed, self.attainable)


@dataclass(frozen=True)
class RowDoesNotFit(PairReason):
    """What lies between the two needs more shared memory than a thread block may have."""

    bytes_needed: int
    bytes_allowed: int
    attainable: bool = True
    code = "shared_memory"
    template = (
        "what lies between {first} and {second} needs {bytes_needed} bytes of shared memory, "
        "{bytes_allowed} are allowed"
    )
    scarce = "shared memory"

    @property
    def limits_needed(self) -> dict[str, Any]:
        """The limit, where the GPU grants as much."""
        return _shared_memory_needed(self.bytes_needed, self.attainable)

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        return _shared_memory_remedy(self.bytes_needed, self.attainable)
