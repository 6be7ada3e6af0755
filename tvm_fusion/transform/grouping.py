"""Turns groups of bindings into calls of Primitive functions, which FuseTIR makes PrimFuncs of."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from ..analysis.bindings import is_call_tir
from ..analysis.relax_graph import BlockGraph
from .build import make_seq

#: Names of groups longer than this are shortened.
_MAX_NAME = 96


@dataclass(frozen=True)
class GroupFunction:
    """A group as a Primitive Relax function.

    Parameters
    ----------
    function : relax.Function
        Takes what the group reads from outside, returns what others read of it.
    arguments : tuple of relax.Expr
        What the caller passes.
    results : tuple of relax.Var
        The caller's variables that the results are bound to.
    members : tuple of int
        Bindings of the block that the group takes the place of.
    callees : tuple of tvm.ir.GlobalVar
        PrimFuncs that it calls, once for each call, in order.
    """

    function: relax.Function
    arguments: tuple[Any, ...]
    results: tuple[Any, ...]
    members: tuple[int, ...]
    callees: tuple[Any, ...]


def make_group_function(block: BlockGraph, ops: Sequence[int]) -> GroupFunction:
    """Make a Primitive function of some ops of a block.

    Parameters
    ----------
    block : BlockGraph
        The block.
    ops : sequence of int
        Ops of its graph, convex.
    """
    members = sorted(i for op in ops for i in (block.binding_of[op], *block.fields_of.get(op, ())))
    return _GroupFunctionMaker(block, members).make()


class _GroupFunctionMaker:
    def __init__(self, block: BlockGraph, members: list[int]) -> None:
        self.block = block
        self.members = members
        self.params: list[Any] = []
        self.arguments: list[Any] = []
        self.param_of: dict[Any, Any] = {}
        self.inner: dict[Any, Any] = {}

    def make(self) -> GroupFunction:
        results = self._results()
        bindings, callees = [], []
        for i in self.members:
            binding = self.block.bindings[i]
            value = self._rewrite(binding.value)
            outward = any(binding.var.same_as(r) for r in results)
            made = (relax.Var if outward else relax.DataflowVar)(binding.var.name, binding.var.ty)
            self.inner[binding.var] = made
            bindings.append(relax.VarBinding(made, value))
            if is_call_tir(value):
                callees.append(value.args[0])
        inner_results = [self.inner[var] for var in results]
        body = inner_results[0] if len(inner_results) == 1 else relax.Tuple(inner_results)
        function = self._function(bindings, body)
        return GroupFunction(
            function,
            tuple(self.arguments),
            tuple(results),
            tuple(self.members),
            tuple(callees),
        )

    def _results(self) -> list[Any]:
        """Variables of the group that are read outside of it, in order."""
        inside = set(self.members)
        made = [self.block.bindings[i].var for i in self.members]
        return [
            var
            for var in made
            if not isinstance(var, relax.DataflowVar)
            or any(i not in inside for i in self.block.readers.get(var, ()))
        ]

    def _rewrite(self, value: Any) -> Any:
        if isinstance(value, relax.TupleGetItem):
            return relax.TupleGetItem(self.inner[value.tuple_value], value.index)
        args = [self._argument(arg) for arg in value.args[1].fields]
        return relax.Call(
            value.op,
            [value.args[0], relax.Tuple(args)],
            value.attrs,
            value.ty_args,
            ret_ty=value.ty,
        )

    def _argument(self, arg: Any) -> Any:
        if arg in self.inner:
            return self.inner[arg]
        if not isinstance(arg.ty, relax.TensorType):
            return arg  # a scalar expression: its shape variables are the function's own
        if arg not in self.param_of:
            name = arg.name if isinstance(arg, relax.Var) else f"constant_{len(self.params)}"
            self.param_of[arg] = relax.Var(name, arg.ty)
            self.params.append(self.param_of[arg])
            self.arguments.append(arg)
        return self.param_of[arg]

    def _function(self, bindings: list[Any], body: Any) -> relax.Function:
        block = relax.DataflowBlock(bindings)
        attrs = tvm.ir.make_node("ir.DictAttrs", Primitive=True)

        def build() -> relax.Function:
            result = make_seq([block], body)
            return relax.Function(self.params, result, result.ty, True, attrs)

        function = build()
        free = list(relax.analysis.free_symbolic_vars(function))
        if free:
            # Shape variables that no argument's shape tells: FuseTIR takes them as one more.
            self.params.append(relax.Var("shape_vars", relax.ShapeType(free)))
            self.arguments.append(relax.ShapeExpr(free))
            function = build()
        return relax.utils.copy_with_new_vars(function)


def group_name(callees: Sequence[str], contractions: Sequence[str]) -> str:
    """The name of a group, made of what it calls.

    Parameters
    ----------
    callees : sequence of str
        Names of its PrimFuncs in order.
    contractions : sequence of str
        Those of them that must be told from the name even when it is shortened.
    """
    name = "fused_" + "_".join(callees)
    if len(name) <= _MAX_NAME:
        return name
    kept = [*dict.fromkeys(contractions)] or [callees[0]]
    return f"fused_{'_'.join(kept)}_to_{callees[-1]}_{len(callees)}_ops"[:_MAX_NAME]


def rebuild_block(
    block: BlockGraph,
    groups: Sequence[GroupFunction],
    targets: Sequence[Any],
) -> relax.DataflowBlock:
    """The block with every group replaced by one call.

    Parameters
    ----------
    block : BlockGraph
        The block.
    groups : sequence of GroupFunction
        Disjoint, and acyclic when each is seen as one node.
    targets : sequence of tvm.ir.GlobalVar
        For each group the global variable of its function.
    """
    unit_of = {i: len(block.bindings) + g for g, group in enumerate(groups) for i in group.members}
    order = _order_units(block, unit_of)
    bindings: list[Any] = []
    for unit in order:
        if unit < len(block.bindings):
            bindings.append(block.bindings[unit])
        else:
            g = unit - len(block.bindings)
            bindings.extend(_call_bindings(groups[g], targets[g]))
    return relax.DataflowBlock(bindings)


def _order_units(block: BlockGraph, unit_of: Mapping[int, int]) -> list[int]:
    """A topological order of groups and single bindings that keeps close to the old one."""
    unit = [unit_of.get(i, i) for i in range(len(block.bindings))]
    place: dict[int, int] = {}
    for i, u in enumerate(unit):
        place[u] = i  # a group stands where its last member stood
    maker = {binding.var: unit[i] for i, binding in enumerate(block.bindings)}
    later: dict[int, set[int]] = {u: set() for u in place}
    waiting = dict.fromkeys(place, 0)

    def add(before: int, after: int) -> None:
        if before != after and after not in later[before]:
            later[before].add(after)
            waiting[after] += 1

    for i, uses in enumerate(block.uses):
        for var in uses:
            if var in maker:
                add(maker[var], unit[i])
    for before, after in block.order:
        add(unit[before], unit[after])
    ready = [(place[u], u) for u, count in waiting.items() if not count]
    heapq.heapify(ready)
    result = []
    while ready:
        _, current = heapq.heappop(ready)
        result.append(current)
        for after in later[current]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, (place[after], after))
    return result


def _call_bindings(group: GroupFunction, target: Any) -> list[Any]:
    """The caller's bindings of one group: a call, and a field for each of several results."""
    call = relax.Call(target, list(group.arguments), ret_ty=_result_type(group))
    if len(group.results) == 1:
        return [relax.VarBinding(group.results[0], call)]
    whole = relax.DataflowVar("fused_results", _result_type(group))
    bindings = [relax.VarBinding(whole, call)]
    for index, var in enumerate(group.results):
        bindings.append(relax.VarBinding(var, relax.TupleGetItem(whole, index)))
    return bindings


def _result_type(group: GroupFunction) -> Any:
    types = [var.ty for var in group.results]
    return types[0] if len(types) == 1 else relax.TupleType(types)
