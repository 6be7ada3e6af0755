"""Counts kernels and modelled global-memory bytes of PrimFuncs and of whole modules.

A kernel is a root-level statement of a PrimFunc (a host-level branch counts its larger side); it
moves every distinct global buffer that it touches once, and never more than it accesses. Pure
reshapes are free once ``RewriteDataflowReshape`` made views of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax, s_tir, tirx

from ..errors import TVMFusionError
from .blocks import element_bytes, iter_params, loads_of, root_nests, static_int, vars_of
from .op_kind import OpKind
from .primfunc import OP_KIND_ATTR

#: Names that mark a kernel as heavy where no op kind says so: library-made and scheduled ones.
_HEAVY_NAMES = ("matmul", "conv", "dense", "einsum", "gemm", "topk", "sort")


@dataclass(frozen=True)
class Traffic:
    """Kernels of one PrimFunc, and the bytes they read and write in global memory."""

    kernels: int
    bytes_read: int
    bytes_written: int

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Totals:
    """Kernels and bytes of one call of a module's functions, heavy ops apart from the others.

    Heavy are matrix products, convolutions, sorts and top-k.
    """

    kernels_other: int = 0
    kernels_heavy: int = 0
    bytes_other: int = 0
    bytes_heavy: int = 0

    @property
    def kernels(self) -> int:
        """All kernels."""
        return self.kernels_other + self.kernels_heavy

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.bytes_other + self.bytes_heavy


def measure(func: tirx.PrimFunc, assume: Mapping[str, int] | None = None) -> Traffic:
    """Count the kernels of a PrimFunc and the global-memory bytes they move.

    Parameters
    ----------
    func : tirx.PrimFunc
        Scheduled or not; each root-level statement counts as one kernel.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.

    Returns
    -------
    Traffic

    Raises
    ------
    TVMFusionError
        A symbolic extent has no value in ``assume``.
    """
    shape_vars = {v for p in iter_params(func) for e in p.ty.shape for v in vars_of(e)}
    counter = _Counter(dict(assume or {}), shape_vars)
    read = written = kernels = 0
    for nest in root_nests(func):
        kernels += 1
        sides = [nest]
        if isinstance(nest, tirx.IfThenElse):
            sides = [side for side in (nest.then_case, nest.else_case) if side is not None]
        moved = max((counter.count(side) for side in sides), key=sum)
        read += moved[0]
        written += moved[1]
    return Traffic(kernels, read, written)


@dataclass(frozen=True)
class CallTraffic:
    """A call of a PrimFunc in a Relax function, and what it costs.

    Parameters
    ----------
    owner : str
        The Relax function.
    variable : str
        Name of the variable that the result is bound to.
    function : str
        The PrimFunc.
    is_heavy : bool
        It holds a contraction, a sort or a top-k.
    traffic : Traffic
        Of this call.
    """

    owner: str
    variable: str
    function: str
    is_heavy: bool
    traffic: Traffic


def called_functions(mod: tvm.IRModule) -> list[str]:
    """Names of the PrimFuncs that the Relax functions call, once for each call."""
    return [call.args[0].name_hint for _, _, call in _calls(mod)]


def _calls(mod: tvm.IRModule) -> list[tuple[str, str, relax.Call]]:
    """Every call of a PrimFunc with the function that it stands in and the variable it binds."""
    found: list[tuple[str, str, relax.Call]] = []
    ops = [tvm.ir.Op.get("relax.call_tir"), tvm.ir.Op.get("relax.call_tir_inplace")]

    def visit(owner: str, body: Any) -> None:
        for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
            for binding in block.bindings:
                value = getattr(binding, "value", None)
                if isinstance(value, relax.If):
                    visit(owner, value.true_branch)
                    visit(owner, value.false_branch)
                elif isinstance(value, relax.Call) and value.op in ops:
                    found.append((owner, str(binding.var.name), value))

    for gvar, func in mod.functions.items():
        if isinstance(func, relax.Function) and not (func.attrs and "Primitive" in func.attrs):
            visit(gvar.name_hint, func.body)
    return found


def call_traffic(mod: tvm.IRModule, assume: Mapping[str, int] | None = None) -> list[CallTraffic]:
    """What every call costs that the module's Relax functions make.

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose PrimFuncs are scheduled.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.

    Raises
    ------
    TVMFusionError
        A symbolic extent has no value in ``assume``.
    """
    funcs = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, tirx.PrimFunc)}
    measured: dict[Any, Traffic] = {}
    found = []
    for owner, variable, call in _calls(mod):
        name = call.args[0].name_hint
        if name not in funcs:
            continue
        extents = {**(assume or {}), **_told_extents(funcs[name], call, assume or {})}
        key = (name, *extents.values())
        if key not in measured:
            measured[key] = measure(funcs[name], extents)
        heavy = is_heavy(name, funcs[name])
        found.append(CallTraffic(owner, variable, name, heavy, measured[key]))
    return found


def sum_up(calls: Iterable[CallTraffic]) -> Totals:
    """The sum over calls."""
    sums = {"kernels_other": 0, "kernels_heavy": 0, "bytes_other": 0, "bytes_heavy": 0}
    for call in calls:
        weight = "heavy" if call.is_heavy else "other"
        sums[f"kernels_{weight}"] += call.traffic.kernels
        sums[f"bytes_{weight}"] += call.traffic.bytes
    return Totals(**sums)


def total(mod: tvm.IRModule, assume: Mapping[str, int] | None = None) -> Totals:
    """Sum the kernels and bytes over every call that the module's Relax functions make.

    Parameters
    ----------
    mod : tvm.IRModule
        A module whose PrimFuncs are scheduled.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.
    """
    return sum_up(call_traffic(mod, assume))


def _told_extents(
    func: tirx.PrimFunc, call: relax.Call, assume: Mapping[str, int]
) -> dict[str, int]:
    """Values of the shape variables of a PrimFunc that the arguments of a call tell."""
    told: dict[str, int] = {}
    results = call.ty_args[0]
    types = [arg.ty for arg in call.args[1].fields]
    types += list(results.fields) if isinstance(results, relax.TupleType) else [results]
    for param, ty in zip(iter_params(func), types, strict=False):
        shape = getattr(ty, "shape", None)
        for extent, value in zip(param.ty.shape, getattr(shape, "values", ()), strict=False):
            if not isinstance(extent, tirx.Var):
                continue
            known = {v: assume[v.name] for v in vars_of(value) if v.name in assume}
            if len(known) == len(set(vars_of(value))):
                analyzer = tvm.sym.Analyzer()
                for var, number in known.items():
                    analyzer.bind(var, tirx.const(number, var.ty.dtype))
                told[extent.name] = int(analyzer.simplify(value))
    return told


def is_heavy(name: str, func: tirx.PrimFunc) -> bool:
    """Whether a function holds a contraction, a sort or a top-k."""
    kind = func.attrs.get(OP_KIND_ATTR) if func.attrs else None
    if kind is not None and str(kind) == OpKind.CONTRACTION.value:
        return True
    return any(word in name for word in _HEAVY_NAMES)


class _Counter:
    """Walks one kernel and adds up what it touches."""

    def __init__(self, assume: dict[str, int], shape_vars: set[Any]) -> None:
        self.assume = assume
        self.shape_vars = shape_vars
        self.reads: dict[Any, int] = {}
        self.writes: dict[Any, int] = {}
        self.domains: dict[Any, int] = {}  # loop and thread variables -> extents

    def count(self, stmt: Any) -> tuple[int, int]:
        """Bytes read and bytes written by one statement. A buffer it writes is not read."""
        self.reads, self.writes = {}, {}
        self._visit(stmt, 1)
        written = sum(self.writes.values())
        return sum(n for b, n in self.reads.items() if b not in self.writes), written

    def _extent(self, expr: Any) -> int:
        """The value of an extent; its upper bound where it depends on loops, threads or data."""
        value = static_int(expr)
        if value is not None:
            return value
        analyzer = tvm.sym.Analyzer()
        for var in vars_of(expr):
            if var in self.domains:
                analyzer.bind(var, tvm.ir.Range(0, self.domains[var]))
            elif var in self.shape_vars:
                analyzer.bind(var, tirx.const(self._assumed(var.name), var.ty.dtype))
        return int(analyzer.const_int_bound(expr).max_value)

    def _assumed(self, name: str) -> int:
        if name not in self.assume:
            raise TVMFusionError(
                f"the extent {name} is symbolic: give it a value to count with, like "
                f"assume={{'{name}': 128}} or --assume {name}=128"
            )
        return self.assume[name]

    def _touch(self, table: dict[Any, int], buffer: Any, times: int) -> None:
        if buffer.scope() != "global":
            return
        size = element_bytes(buffer.dtype)
        whole = size
        for extent in buffer.shape:
            whole *= self._extent(extent)
        table[buffer] = min(whole, table.get(buffer, 0) + times * size)

    def _loads(self, expr: Any, times: int) -> None:
        for load in loads_of(expr):
            self._touch(self.reads, load.source, times)

    def _visit(self, node: Any, times: int) -> None:
        if isinstance(node, tirx.For):
            extent = self._extent(node.extent)
            self.domains[node.loop_var] = extent
            self._visit(node.body, times * extent)
        elif isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent":
            self.domains[node.node.var] = self._extent(node.value)
            self._visit(node.body, times)
        elif isinstance(node, tirx.SeqStmt):
            for child in node.seq:
                self._visit(child, times)
        elif isinstance(node, s_tir.SBlockRealize):
            self._visit(node.block, times)
        elif isinstance(node, s_tir.SBlock):
            if node.init is not None:
                self._visit(node.init, times)
            self._visit(node.body, times)
        elif isinstance(node, tirx.IfThenElse):
            self._loads(node.condition, times)
            self._visit(node.then_case, times)
            if node.else_case is not None:
                self._visit(node.else_case, times)
        elif isinstance(node, tirx.BufferStore):
            self._touch(self.writes, node.buffer, times)
            self._loads(node.value, times)
            for index in node.indices:
                self._loads(index, times)
        elif type(node).__name__ in ("Evaluate", "Bind"):
            self._loads(node.value, times)
        elif hasattr(node, "body"):
            self._visit(node.body, times)
