"""The dataflow graph of a Relax dataflow block."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax, tirx

from ..errors import TVMFusionError
from .bindings import (
    CALL_TIR_INPLACE,
    TensorType,
    call_args,
    describe_type,
    is_call,
    is_call_tir,
    operator_name,
    other_device,
    symbolic_vars,
    tensor_bytes,
    tensor_types,
    used_vars,
    why_not_an_op,
)
from .blocks import iter_params
from .extents import Extent, Symbols
from .graph import DataflowGraph, Op
from .nest_reader import read_nests
from .nests import Nests, Unreadable, bind_symbols, rename
from .op_kind import OpKind
from .primfunc import OP_KIND_ATTR, ORIGIN_ATTR, contracts, describe

#: The attribute by which a finished group is known.
GROUP_ATTR = "tvm_fusion.group"


@dataclass
class BlockGraph:
    """A dataflow block, the graph of its ops, and how the two belong together.

    Parameters
    ----------
    bindings : list of relax.Binding
        The bindings of the block, in order.
    graph : DataflowGraph
        One op for each binding that does work or must keep its place. Tuple fields belong to the
        op that made the tuple; the tuple of results is no op, what it holds are outputs.
    binding_of : list of int
        For each op the index of its binding.
    fields_of : dict of int to list of int
        For each op the indices of the bindings that take fields of its result.
    uses : list of list of relax.Var
        For each binding the variables it reads.
    readers : dict of relax.Var to list of int
        For each variable the bindings that read it.
    describe_tensors : callable
        Gives the types of what the ops read and make, by the keys of ``Op.reads``.
    order : list of (int, int)
        (earlier, later) bindings that must keep their order without a value flowing.
    """

    bindings: list[Any]
    graph: DataflowGraph
    binding_of: list[int]
    fields_of: dict[int, list[int]]
    uses: list[list[Any]]
    readers: dict[Any, list[int]]
    describe_tensors: Callable[[], dict[Hashable, TensorType]]
    order: list[tuple[int, int]] = field(default_factory=list)


def build_block_graph(
    mod: tvm.IRModule,
    block: relax.DataflowBlock,
    threads_per_block: int = 1024,
    warp_threads: int = 32,
) -> BlockGraph:
    """Read a dataflow block as a graph.

    Parameters
    ----------
    mod : tvm.IRModule
        The module with the PrimFuncs that the block calls.
    block : relax.DataflowBlock
        The block.
    threads_per_block, warp_threads : int
        Figures of the device, for the shared memory of reductions.

    Returns
    -------
    BlockGraph

    Raises
    ------
    TVMFusionError
        A PrimFunc carries an op kind that does not exist, or a call refers to no function.
    """
    return _Builder(mod, list(block.bindings), threads_per_block, warp_threads).build()


class _Builder:
    def __init__(
        self, mod: tvm.IRModule, bindings: list[Any], threads_per_block: int, warp_threads: int
    ) -> None:
        self.mod = mod
        self.bindings = bindings
        self.threads_per_block = threads_per_block
        self.warp_threads = warp_threads
        self.uses = [used_vars(b.value) for b in bindings]
        self.maker: dict[Any, int] = {}  # variable -> op that makes it, itself or a field of it
        self.binding_of: list[int] = []
        self.fields_of: dict[int, list[int]] = {}
        self.readers: dict[Any, list[int]] = {}
        for i, uses in enumerate(self.uses):
            for var in dict.fromkeys(uses):
                self.readers.setdefault(var, []).append(i)
        self.outside: dict[Any, str] = {}  # variable or constant -> the name it goes by here
        self.outside_names: set[str] = set()
        self.field: dict[Any, int] = {}  # variable -> the field of a result that it stands for
        self.names: list[str] = []
        self.first_call: dict[Any, str] = {}  # function and arguments -> the op that came first
        self.symbols = Symbols()

    def build(self) -> BlockGraph:
        for i, binding in enumerate(self.bindings):
            source = self._field_source(binding)
            if source is not None:
                self.fields_of.setdefault(source, []).append(i)
                self.maker[binding.var] = source
                self.field[binding.var] = int(binding.value.index)
            elif not self._is_result_tuple(binding):
                self.maker[binding.var] = len(self.binding_of)
                self.binding_of.append(i)
        reads = [self.uses[i] for i in self.binding_of]
        self.names = _unique_names([self.bindings[i].var.name for i in self.binding_of])
        leaving: dict[int, list[Hashable]] = {}
        for var in self._visible():
            leaving.setdefault(self.maker[var], []).extend(self._tensors(var))
        ops = [
            replace(
                self._op(op, self.names[op], reads[op]),
                reads=self._reads(op),
                leaving=tuple(dict.fromkeys(leaving.get(op, ()))),
                repeats=self._repeats(op),
            )
            for op in range(len(self.binding_of))
        ]
        edges = [
            (self.maker[var], op)
            for op in range(len(ops))
            for var in reads[op]
            if var in self.maker and self.maker[var] != op
        ]
        order = self._order()
        between_ops = [(self._op_at(a), self._op_at(b)) for a, b in order]
        graph = DataflowGraph(
            ops,
            edges,
            leaving,
            [(a, b) for a, b in between_ops if a is not None and b is not None and a != b],
        )
        return BlockGraph(
            self.bindings,
            graph,
            self.binding_of,
            self.fields_of,
            self.uses,
            self.readers,
            self._tensor_types,
            order,
        )

    # -- who makes and reads what ----------------------------------------------------------

    def _field_source(self, binding: Any) -> int | None:
        """The op whose result a tuple-getitem binding takes a field of."""
        if not isinstance(binding.value, relax.TupleGetItem):
            return None
        source = self.maker.get(binding.value.tuple_value)
        if source is None:
            return None
        made = self.bindings[self.binding_of[source]]
        return source if made.var.same_as(binding.value.tuple_value) else None

    def _is_result_tuple(self, binding: Any) -> bool:
        """Whether a binding only collects values for somebody outside of the block."""
        return (
            isinstance(binding, relax.VarBinding)
            and isinstance(binding.value, relax.Tuple)
            and binding.var not in self.readers
        )

    def _op_at(self, binding: int) -> int | None:
        return self.maker.get(self.bindings[binding].var)

    def _visible(self) -> list[Any]:
        """Variables of ops that are seen outside of the block."""
        visible: list[Any] = []
        for i, binding in enumerate(self.bindings):
            if self._is_result_tuple(binding):
                visible += self.uses[i]
            elif not isinstance(binding.var, relax.DataflowVar):
                visible.append(binding.var)
        return [var for var in visible if var in self.maker]

    def _tensors(self, value: Any) -> tuple[Hashable, ...]:
        """Keys of the tensors that a variable or constant stands for."""
        op = self.maker.get(value) if isinstance(value, relax.Var) else None
        if op is None:
            return (("in", self._outside_name(value)),)
        if value in self.field:
            return (("out", self.names[op], self.field[value]),)
        return tuple(("out", self.names[op], k) for k in range(len(tensor_types(value.ty))))

    def _tensor_types(self) -> dict[Hashable, TensorType]:
        """The type of every tensor that ops read or make."""
        found: dict[Hashable, TensorType] = {}
        for op, i in enumerate(self.binding_of):
            for value in (*self._values_read(op), self.bindings[i].var):
                types = map(describe_type, tensor_types(value.ty))
                found.update(zip(self._tensors(value), types, strict=False))
        return found

    def _values_read(self, op: int) -> list[Any]:
        """Variables and constants that an op reads, once for each time."""
        value = self.bindings[self.binding_of[op]].value
        if not is_call_tir(value):
            return list(self.uses[self.binding_of[op]])
        return [arg for arg in call_args(value) if isinstance(arg.ty, relax.TensorType)]

    def _reads(self, op: int) -> tuple[Hashable, ...]:
        values = self._values_read(op)
        return tuple(dict.fromkeys(key for value in values for key in self._tensors(value)))

    def _repeats(self, op: int) -> str:
        """The earlier op that makes the same from the same; empty where there is none."""
        value = self.bindings[self.binding_of[op]].value
        if not is_call_tir(value) or len(value.args) > 2:
            return ""
        name = self.names[op]
        first = self.first_call.setdefault((value.args[0], *call_args(value)), name)
        return "" if first == name else first

    def _outside_name(self, value: Any) -> str:
        """The name of a variable or constant from outside of the block, distinct from others."""
        if value not in self.outside:
            constant = isinstance(value, tvm.ir.GenericConst)
            wanted = f"constant_{len(self.outside)}" if constant else value.name
            name, count = wanted, 0
            while name in self.outside_names:
                count += 1
                name = f"{wanted}_{count}"
            self.outside_names.add(name)
            self.outside[value] = name
        return self.outside[value]

    def _order(self) -> list[tuple[int, int]]:
        """Pairs of bindings whose order is not given by values."""
        order: list[tuple[int, int]] = []
        in_place = [i for i, b in enumerate(self.bindings) if is_call(b.value, CALL_TIR_INPLACE)]
        aliases = self._aliases() if in_place else {}
        for i in in_place:
            touched = {alias for var in self.uses[i] for alias in aliases.get(var, (var,))}
            others = {j for var in touched for j in self.readers.get(var, ()) if j != i}
            order.extend((min(i, j), max(i, j)) for j in sorted(others))
        if any(isinstance(b, relax.MatchCast) for b in self.bindings):
            order += self._shape_order()
        return order

    def _aliases(self) -> dict[Any, list[Any]]:
        """For each variable all that may share its memory: views, tuples, in-place results."""
        classes: dict[Any, list[Any]] = {}
        for i, binding in enumerate(self.bindings):
            if not self._may_alias(binding):
                continue
            members = [binding.var]
            for var in dict.fromkeys(self.uses[i]):
                members.extend(classes.get(var, [var]))
            members += classes.get(binding.var, [])
            members = list(dict.fromkeys(members))
            classes.update(dict.fromkeys(members, members))
        return classes

    def _may_alias(self, binding: Any) -> bool:
        value = binding.value
        if isinstance(value, relax.Var | relax.Tuple | relax.TupleGetItem | relax.If):
            return True
        if is_call_tir(value):
            func = self.mod.functions.get(value.args[0])
            return isinstance(func, tirx.PrimFunc) and describe(func).is_reshape
        # Operators and packed calls that are no call_tir may return views of what they are given.
        return isinstance(value, relax.Call)

    def _shape_order(self) -> list[tuple[int, int]]:
        """From each match_cast to what uses a shape variable that it binds."""
        order: list[tuple[int, int]] = []
        bound: dict[Any, int] = {}
        for i, binding in enumerate(self.bindings):
            for var in symbolic_vars(binding):
                if var in bound and bound[var] != i:
                    order.append((bound[var], i))
            if isinstance(binding, relax.MatchCast):
                for var in relax.analysis.tir_vars_in_type(binding.ty):
                    bound.setdefault(var, i)
        return order

    # -- what each op is -------------------------------------------------------------------

    def _op(self, op: int, name: str, reads: list[Any]) -> Op:
        binding = self.bindings[self.binding_of[op]]
        value = binding.value
        external = self._external_inputs(value, reads)
        if isinstance(binding, relax.MatchCast) or not is_call_tir(value):
            return Op(
                name,
                OpKind.BARRIER,
                function=operator_name(binding),
                external_inputs=external,
                blocked=why_not_an_op(binding),
            )
        gvar = value.args[0]
        func = self.mod.functions.get(gvar)
        if not isinstance(func, tirx.PrimFunc):
            raise TVMFusionError(
                f"{name} calls {gvar.name_hint}, which is no PrimFunc of the module: "
                f"run LegalizeOps first, or repair the module"
            )
        description = describe(func)
        kind = _annotated_kind(func, gvar.name_hint) or description.kind
        as_analysed = kind is description.kind
        outputs = tensor_types(value.ty_args[0])
        dead = self._dead_outputs(op, len(outputs))
        dataflow = isinstance(binding.var, relax.DataflowVar)
        nests = self._nests(name, func, value, as_analysed)
        return Op(
            name,
            kind,
            function=gvar.name_hint,
            origin=str((func.attrs or {}).get(ORIGIN_ATTR, "")),
            output_bytes=sum(tensor_bytes(ty) for ty in outputs),
            shared_bytes=description.shared_bytes(self.threads_per_block, self.warp_threads),
            is_reshape=description.is_reshape and as_analysed,
            keeps_axes=description.keeps_axes and as_analysed,
            pinned=not dataflow,
            pattern=description.pattern if as_analysed else None,
            external_inputs=external,
            num_outputs=len(outputs),
            dead_outputs=dead,
            blocked=self._why_blocked(op, func, value, outputs, dead),
            nests=nests if isinstance(nests, Nests) else None,
            unreadable=nests if isinstance(nests, str) else "",
        )

    def _nests(
        self, name: str, func: tirx.PrimFunc, call: relax.Call, as_analysed: bool
    ) -> Nests | str:
        """The nests of a call over the tensors of this block, or why they cannot be read."""
        if not as_analysed:
            return f"its kind was set by the attribute {OP_KIND_ATTR}"
        if describe(func).kind is OpKind.BARRIER and contracts(func):
            return "it gathers and contracts at once"
        try:
            nests = read_nests(func)
        except Unreadable as error:
            return str(error)
        passed = [arg for arg in call_args(call) if isinstance(arg.ty, relax.TensorType)]
        results = tensor_types(call.ty_args[0])
        if len(passed) + len(results) != len(list(iter_params(func))):
            return "its parameters are not the tensors that the call passes"
        keys: list[Hashable] = [self._tensors(arg)[0] for arg in passed]
        keys += [("out", name, k) for k in range(len(results))]
        shapes = [self._shape(ty) for ty in (*(arg.ty for arg in passed), *results)]
        keys += [("tmp", name, n) for n in range(len(keys), len(nests.tensors))]
        return rename(nests, dict(enumerate(keys)), bind_symbols(nests, shapes, name))

    def _shape(self, ty: Any) -> list[Extent]:
        """The extents of a tensor; none where its shape is unknown."""
        return [self.symbols.extent(extent) for extent in getattr(ty.shape, "values", None) or ()]

    def _external_inputs(self, value: Any, reads: list[Any]) -> tuple[str, ...]:
        """Names of what an op reads from outside of the block, constants included."""
        args = call_args(value) if is_call_tir(value) else []
        outside = [var for var in reads if var not in self.maker]
        outside += [arg for arg in args if isinstance(arg, tvm.ir.GenericConst)]
        return tuple(dict.fromkeys(map(self._outside_name, outside)))

    def _dead_outputs(self, op: int, count: int) -> int:
        if count == 1:
            return 0
        fields = [self.bindings[i] for i in self.fields_of.get(op, ())]
        live = {
            int(b.value.index)
            for b in fields
            if b.var in self.readers or not isinstance(b.var, relax.DataflowVar)
        }
        return count - len(live)

    def _can_be_passed(self, arg: Any) -> bool:
        """Whether FuseTIR takes an argument: a tensor, or an expression over shape variables."""
        if isinstance(arg.ty, relax.TensorType):
            return True
        return isinstance(arg.ty, tvm.ir.PrimType) and arg not in self.maker

    def _why_blocked(
        self, op: int, func: tirx.PrimFunc, call: relax.Call, outputs: list[Any], dead: int
    ) -> str | None:
        attrs = func.attrs or {}
        if GROUP_ATTR in attrs:
            return "is a group that was formed before"
        if attrs.get("tirx.is_scheduled"):
            return "calls a PrimFunc that is already scheduled"
        if int(attrs.get("op_pattern", -1)) == 8 and describe(func).kind is not OpKind.BARRIER:
            return "calls a PrimFunc that is marked opaque (op_pattern = 8)"
        if len(call.args) > 2:
            return "passes explicit shape arguments, which FuseTIR drops"
        if any(getattr(ty, "vdevice", None) is not None for ty in outputs):
            return "is placed on a virtual device"
        if any(not self._can_be_passed(arg) for arg in call_args(call)):
            return "takes an argument that is neither a tensor nor an expression over extents"
        if other_device(func):
            return f"calls a PrimFunc for another device ({other_device(func)})"
        if any(ty.shape is None for ty in outputs):
            return "has a result of unknown shape"
        binding = self.bindings[self.binding_of[op]]
        if len(outputs) > 1:
            fields = self.fields_of.get(op, [])
            whole = any(i not in fields for i in self.readers.get(binding.var, ()))
            if whole or not isinstance(binding.var, relax.DataflowVar):
                return "has its tuple of results used as a whole"
            if dead == len(outputs):
                return "has results that nobody reads"
        elif isinstance(binding.var, relax.DataflowVar) and binding.var not in self.readers:
            return "has a result that nobody reads"
        return None


def _annotated_kind(func: tirx.PrimFunc, name: str) -> OpKind | None:
    value = (func.attrs or {}).get(OP_KIND_ATTR)
    if value is None:
        return None
    try:
        return OpKind(str(value))
    except ValueError:
        known = ", ".join(kind.value for kind in OpKind)
        raise TVMFusionError(
            f"{name} has {OP_KIND_ATTR} = {str(value)!r}: use one of {known}"
        ) from None


def _unique_names(names: list[str]) -> list[str]:
    """The names, made distinct by a number where two are the same."""
    taken, used = set(names), dict.fromkeys(names, 0)
    result, seen = [], set()
    for name in names:
        candidate = name
        while candidate in seen or (candidate != name and candidate in taken):
            used[name] += 1
            candidate = f"{name}_{used[name]}"
        seen.add(candidate)
        result.append(candidate)
    return result


def exclude_ops(
    graph: DataflowGraph, no_fuse: Iterable[str] | Callable[[Op], bool]
) -> DataflowGraph:
    """The graph with the ops that ``no_fuse`` names marked as blocked.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    no_fuse : iterable of str, or callable
        Names of ops (variables) or of PrimFuncs, or a predicate on :class:`Op`. A PrimFunc that
        was specialised or split is also known by its former name.
    """
    if callable(no_fuse):
        excluded = [no_fuse(op) for op in graph.ops]
    else:
        names = frozenset(no_fuse)
        excluded = [not names.isdisjoint((op.name, op.function, op.origin)) for op in graph.ops]
    if not any(excluded):
        return graph
    return graph.with_ops(
        [
            replace(op, blocked="is excluded by no_fuse") if out else op
            for op, out in zip(graph.ops, excluded, strict=True)
        ]
    )
