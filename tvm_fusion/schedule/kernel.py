"""What a schedule made of a PrimFunc, and whether the target can launch it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from ..analysis.blocks import element_bytes, root_nests, static_int, static_product
from ..device.gpu import MAX_BLOCK, MAX_GRID
from ..planning.kernel_plan import KernelPlan
from ..policy.reasons import OverLimit, Reason

_AXES = ("x", "y", "z")


@dataclass(frozen=True)
class Kernel:
    """A scheduled PrimFunc and its figures.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled and marked so.
    rule : str
        The schedule rule that made it.
    kernels : int
        Launches it takes.
    threads : int
        Threads per block of its largest kernel; 0 where symbolic.
    plan : KernelPlan or None
        What it was written from, if it was.
    """

    func: tirx.PrimFunc
    rule: str
    kernels: int
    threads: int
    plan: KernelPlan | None = None


def inspect(func: tirx.PrimFunc, rule: str, plan: KernelPlan | None = None) -> Kernel:
    """Read the figures off a scheduled PrimFunc."""
    nests = root_nests(func)
    launches = [launch for nest in nests for launch in _launches(nest)]
    threads = max((_threads(_extents(launch)) for launch in launches), default=0)
    return Kernel(func, rule, len(nests), threads, plan)


def launch_refusal(func: tirx.PrimFunc, max_threads: int, max_args: int) -> Reason | None:
    """The first launch limit that a scheduled PrimFunc exceeds, or None.

    Parameters
    ----------
    func : tirx.PrimFunc
        A scheduled PrimFunc.
    max_threads : int
        Threads per block.
    max_args : int
        Arguments of one kernel.
    """
    if len(func.params) > max_args:
        return OverLimit("kernel arguments", len(func.params), max_args)
    for launch in (launch for nest in root_nests(func) for launch in _launches(nest)):
        extents = _extents(launch)
        if _threads(extents) > max_threads:
            return OverLimit("threads per block", _threads(extents), max_threads)
        for axis, grid, block in zip(_AXES, MAX_GRID, MAX_BLOCK, strict=True):
            for tag, what, most in (
                (f"blockIdx.{axis}", f"thread blocks along {axis}", grid),
                (f"threadIdx.{axis}", f"threads along {axis}", block),
            ):
                if extents.get(tag, 1) > most:
                    return OverLimit(what, extents[tag], most)
    return None


def _launches(nest: Any) -> list[Any]:
    """The kernels of which the host launches one: the sides of a host-level branch."""
    if not isinstance(nest, tirx.IfThenElse):
        return [nest]
    sides = [side for side in (nest.then_case, nest.else_case) if side is not None]
    return [launch for side in sides for launch in _launches(side)]


def _threads(extents: dict[str, int]) -> int:
    return math.prod(extents.get(f"threadIdx.{axis}", 1) for axis in _AXES)


def _extents(nest: Any) -> dict[str, int]:
    """Constant extents of one kernel by thread tag."""
    extents: dict[str, int] = {}

    def visit_loop(loop: Any) -> None:
        if loop.kind == tirx.ForKind.THREAD_BINDING:
            _record(str(loop.thread_binding.thread_tag), loop.extent)

    def visit_attr(attr: Any) -> None:
        if attr.attr_key == "thread_extent":
            _record(str(attr.node.thread_tag), attr.value)

    def _record(tag: str, extent: Any) -> None:
        value = static_int(extent)
        if value is not None:
            extents[tag] = max(extents.get(tag, 1), value)

    tvm_ffi.structural_walk(nest, [(tirx.For, visit_loop), (tirx.AttrStmt, visit_attr)])
    return extents


def dynamic_shared_bytes(func: tirx.PrimFunc) -> int:
    """Shared memory that a scheduled PrimFunc asks for at launch, in bytes per block at most."""
    arrays: list[Any] = []

    def visit(block: Any) -> None:
        arrays.extend(b for b in block.alloc_buffers if b.scope() == "shared.dyn")

    tvm_ffi.structural_walk(func.body, (s_tir.SBlock, visit))
    most = 0
    for launch in (launch for nest in root_nests(func) for launch in _launches(nest)):
        stored: set[Any] = set()
        tvm_ffi.structural_walk(launch, (tirx.BufferStore, lambda s, to=stored: to.add(s.buffer)))
        sizes = (static_product(b.shape) or 0 for b in arrays if b in stored)
        types = (element_bytes(b.dtype) for b in arrays if b in stored)
        most = max(most, sum(size * width for size, width in zip(sizes, types, strict=True)))
    return most
