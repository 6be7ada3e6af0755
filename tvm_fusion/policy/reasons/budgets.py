"""Reasons that are a limit of :class:`tvm_fusion.Limits`, checked before anything is scheduled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .base import PairReason, Reason
from .example import Example


@dataclass(frozen=True)
class TooDeep(Reason):
    """The group would have more ops than ``max_depth``.

    Where the limits say nothing, it is 8 for ``single_chain``, and the others have no such limit.
    """

    depth: int
    max_depth: int
    code = "max_depth"
    template = "the group would have {depth} ops, the limit is {max_depth}"
    remedy = "Limits.max_depth were {depth} or more"
    scarce = "ops in a group"
    limit, needed = "max_depth", "depth"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sqrt(a)
            c = R.log(b)
            return c
        """,
        ("b", "c"),
        policy="single_chain",
        limits={"max_depth": 2},
    )
    near_miss = example.but(limits={"max_depth": 3})


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
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.nn.softmax(a, axis=1)
            c = R.nn.softmax(b, axis=1)
            return c
        """,
        ("b", "c"),
        limits={"max_group_size": 2},
    )
    near_miss = example.but(limits={"max_group_size": 3})


@dataclass(frozen=True)
class TooManyArgs(Reason):
    """The kernel would take more tensors than ``max_kernel_args``.

    Inputs and outputs count together. 512, the default, is what CUDA takes.
    """

    args: int
    max_kernel_args: int
    code = "kernel_args"
    template = "the kernel would take {args} arguments, {max_kernel_args} are allowed"
    remedy = "Limits.max_kernel_args were {args} or more"
    scarce = "kernel arguments"
    limit, needed = "max_kernel_args", "args"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), y: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.add(a, y)
            return b
        """,
        ("a", "b"),
        limits={"max_kernel_args": 2},
    )
    near_miss = example.but(limits={"max_kernel_args": 3})


@dataclass(frozen=True)
class OutOfFusions(Reason):
    """The merges that ``max_fusions`` allows in one dataflow block are spent."""

    fusions: int
    max_fusions: int
    code = "max_fusions"
    template = "this would be fusion {fusions}, max_fusions allows {max_fusions}"
    remedy = "Limits.max_fusions were {fusions} or more"
    scarce = "fusions"
    limit, needed = "max_fusions", "fusions"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.nn.softmax(a, axis=1)
            c = R.nn.softmax(b, axis=1)
            return c
        """,
        ("b", "c"),
        limits={"max_fusions": 1},
    )
    near_miss = example.but(limits={"max_fusions": 2})


def _out_of_reach(bytes_needed: int) -> str:
    """What would have to be otherwise where no limit helps."""
    return f"a thread block of this GPU could have {bytes_needed} bytes of shared memory"


@dataclass(frozen=True)
class SharedMemory(Reason):
    """A reduction needs more shared memory than a thread block may have.

    Reckoned is one partial result for each thread. Where the limits say nothing, the target does:
    name a target tag that states more.
    """

    op: str
    bytes_needed: int
    bytes_allowed: int
    attainable: bool = True
    code = "shared_memory"
    policies = ("dominator", "single_chain")
    template = "{op} needs {bytes_needed} bytes of shared memory, {bytes_allowed} are allowed"
    remedy = "Limits.shared_memory_bytes were {bytes_needed} or more"
    scarce = "shared memory"
    limit, needed = "shared_memory_bytes", "bytes_needed"
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            b = R.sum(a, axis=1)
            return b
        """,
        ("a", "b"),
        policy="dominator",
        limits={"shared_memory_bytes": 511},
    )
    near_miss = example.but(limits={"shared_memory_bytes": 512})

    @property
    def limits_needed(self) -> dict[str, Any]:
        """The limit, where the GPU grants as much."""
        return super().limits_needed if self.attainable else {}

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        return super().would_fuse_if if self.attainable else _out_of_reach(self.bytes_needed)


@dataclass(frozen=True)
class RowDoesNotFit(PairReason):
    """What the two keep in one kernel needs more shared memory than a thread block may have.

    Those are the partial results of reductions, and what other threads read. What can be evaluated
    again instead does not count.
    """

    bytes_needed: int
    bytes_allowed: int
    attainable: bool = True
    code = "shared_memory"
    policies = ("stitch",)
    template = (
        "{who} would need {bytes_needed} bytes of shared memory in one kernel, {bytes_allowed} are "
        "allowed"
    )
    remedy = "Limits.shared_memory_bytes were {bytes_needed} or more"
    scarce = "shared memory"
    limit, needed = "shared_memory_bytes", "bytes_needed"
    example = Example(
        """
        def main(x: R.Tensor((64, 512), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.exp(a)
            return b
        """,
        ("a", "b"),
        limits={"shared_memory_bytes": 15},
    )
    near_miss = example.but(limits={"shared_memory_bytes": 16})

    @property
    def limits_needed(self) -> dict[str, Any]:
        """The limit, where the GPU grants as much."""
        return super().limits_needed if self.attainable else {}

    @property
    def would_fuse_if(self) -> str:
        """What would have to be otherwise."""
        return super().would_fuse_if if self.attainable else _out_of_reach(self.bytes_needed)
