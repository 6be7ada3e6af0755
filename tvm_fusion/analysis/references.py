"""Reference figures to measure fusion against: bytes and kernels of an idealised compiler.

They are computed on the unfused module, so that no policy and no scheduler has a say in them. The
module is read as nodes, one for each op that does work, and tensors between them; ops that only
move elements are views of the tensor they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, tirx

from ..errors import TVMFusionError
from .bindings import call_args, is_call_tir, tensor_types, used_vars
from .blocks import element_bytes, iter_params, parse_blocks, static_int, vars_of
from .op_kind import OpKind
from .primfunc import OP_KIND_ATTR, describe
from .traffic import is_heavy

#: Kinds of ops that are a kernel of their own.
_OWN_KERNEL = (OpKind.CONTRACTION, OpKind.COMPOSITE, OpKind.BARRIER)


@dataclass(frozen=True)
class References:
    """What an idealised compiler would move through global memory in one call of ``main``.

    C1 and C2 are references, not strict bounds: a compiler may recompute, or fuse contractions.

    Parameters
    ----------
    c0_bytes : int
        Inputs, weights and outputs once: all intermediate values stay on the chip.
    c1_bytes : int
        A contraction, with the bias that is added to it, is a kernel of its own; so are sorts,
        top-k, external calls, and what analysis does not understand. The other ops between them
        form one kernel for each connected region: it reads what comes from outside once, and
        writes what is read outside once.
    c2_bytes : int
        The same, but a region without a reduction belongs to the kernel of a contraction that
        nothing else reads.
    c1_kernels_other, c1_kernels_heavy : int
        Kernels of C1: regions, and those of contractions, sorts and the like.
    c1_bytes_other : int
        The part of ``c1_bytes`` that the other kernels move.
    """

    c0_bytes: int
    c1_bytes: int
    c2_bytes: int
    c1_kernels_other: int
    c1_kernels_heavy: int
    c1_bytes_other: int


def references(mod: tvm.IRModule, assume: Mapping[str, int] | None = None) -> References:
    """Compute the reference figures of a module.

    Ops that only move the elements of one tensor (reshape, transpose, slice, split, broadcast) are
    free, unless what they make leaves ``main``. So is what depends on no tensor at all, as a mask
    made of positions. What depends on weights alone is taken as computed beforehand.

    Parameters
    ----------
    mod : tvm.IRModule
        A legalized module, not fused. Composite PrimFuncs should be split, and constants folded:
        a PrimFunc is an op here. The weights are constants, and the parameters of ``main`` from
        its attribute ``num_input`` on.
    assume : mapping of str to int, optional
        Values of symbolic extents by name.

    Returns
    -------
    found : References

    Raises
    ------
    TVMFusionError
        The module has no function ``main``, a tensor is of unknown shape, or a symbolic extent has
        no value in ``assume``.
    """
    mains = [func for gvar, func in mod.functions.items() if gvar.name_hint == "main"]
    if not mains or not isinstance(mains[0], relax.Function):
        raise TVMFusionError("the module has no Relax function main: name its entry so")
    nodes = _Reader(mod, dict(assume or {})).read(mains[0])
    _take_biases(nodes)
    return _count(nodes, _kernels(nodes))


@dataclass(eq=False)
class _Tensor:
    """A tensor; ``origin`` is the one whose memory a view lies in, itself for all others."""

    bytes: int
    maker: _Node | None = None
    fixed: bool = False  # a weight, or made of weights and of nothing else
    leaves: bool = False
    view_of: _Tensor | None = None
    readers: int = 0

    @property
    def origin(self) -> _Tensor:
        return self.view_of or self


@dataclass(frozen=True)
class _Callee:
    """What the references depend on of a PrimFunc, or of what else is called."""

    kind: OpKind = OpKind.BARRIER
    heavy: bool = True
    is_reshape: bool = False
    only_moves: bool = False  # copies elements of one tensor to where no data says
    adds: bool = False

    @staticmethod
    def of(name: str, func: tirx.PrimFunc) -> _Callee:
        description = describe(func)
        annotated = str((func.attrs or {}).get(OP_KIND_ATTR, ""))
        kind = next((k for k in OpKind if k.value == annotated), description.kind)
        values = [value for block in parse_blocks(func) or [] for value in block.values]
        source = next(iter_params(func), None)
        copies = [isinstance(v, tvm.ir.TensorLoad) and v.source.same_as(source) for v in values]
        moves = kind in (OpKind.INJECTIVE, OpKind.ELEMENTWISE) and bool(copies) and all(copies)
        return _Callee(
            kind,
            heavy=kind in _OWN_KERNEL and (kind is OpKind.CONTRACTION or is_heavy(name, func)),
            is_reshape=description.is_reshape,
            only_moves=moves,
            adds=len(values) == 1 and isinstance(values[0], tirx.Add),
        )


@dataclass(eq=False)
class _Node:
    """An op that does work."""

    reads: list[_Tensor]
    writes: list[_Tensor]
    callee: _Callee
    part_of: _Node | None = None

    @property
    def own_kernel(self) -> bool:
        return self.callee.kind in _OWN_KERNEL


@dataclass(eq=False)
class _Kernel:
    """Nodes of C1 that are one kernel; what it reads is kept by origin, then by view."""

    heavy: bool
    reduces: bool = False
    reads: dict[_Tensor, dict[_Tensor, int]] = field(default_factory=dict)
    written: dict[_Tensor, int] = field(default_factory=dict)

    def read(self, tensor: _Tensor) -> None:
        self.reads.setdefault(tensor.origin, {})[tensor] = tensor.bytes

    def bytes_read(self, origin: _Tensor) -> int:
        return min(origin.bytes, sum(self.reads[origin].values()))

    @property
    def bytes(self) -> int:
        return sum(map(self.bytes_read, self.reads)) + sum(self.written.values())


class _Reader:
    """Reads a Relax function into nodes, in the order of its bindings."""

    def __init__(self, mod: tvm.IRModule, assume: dict[str, int]) -> None:
        self.mod = mod
        self.assume = assume
        self.callees: dict[Any, _Callee | None] = {}
        self.tensors: dict[Any, list[_Tensor]] = {}  # variable or constant -> its tensors
        self.leaving: set[Any] = set()
        self.nodes: list[_Node] = []

    def read(self, func: relax.Function) -> list[_Node]:
        attrs = func.attrs or {}
        inputs = int(attrs.get("num_input", len(func.params)))
        for i, param in enumerate(func.params):
            self.tensors[param] = self._made(param.ty, fixed=i >= inputs)
        bindings = [binding for block in func.body.blocks for binding in block.bindings]
        self.leaving = self._leaving(func.body.body, bindings)
        for binding in bindings:
            self.tensors[binding.var] = self._binding(binding)
        for tensor in self._read_by(func.body.body):
            tensor.origin.leaves = True
        return self.nodes

    def _leaving(self, result: Any, bindings: Sequence[Any]) -> set[Any]:
        """Variables of which the function returns the value, as it is or in another shape."""
        found = set(used_vars(result))
        for binding in reversed(bindings):
            callee = self._callee(binding.value)
            makes = isinstance(binding.value, relax.Call) and not (callee and callee.is_reshape)
            if binding.var in found and not makes:
                found.update(used_vars(binding.value))
        return found

    def _callee(self, value: Any) -> _Callee | None:
        """What a ``call_tir`` calls; None for anything else."""
        if not is_call_tir(value):
            return None
        gvar = value.args[0]
        if gvar not in self.callees:
            func = self.mod.functions.get(gvar)
            prim = isinstance(func, tirx.PrimFunc)
            self.callees[gvar] = _Callee.of(gvar.name_hint, func) if prim else None
        return self.callees[gvar]

    def _binding(self, binding: Any) -> list[_Tensor]:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            whole = self._read_by(value.tuple_value)
            at, parts = 0, value.tuple_value.ty.fields
            for ty in list(parts)[: value.index]:
                at += _leaves(ty)
            return whole[at : at + _leaves(parts[value.index])]
        if isinstance(value, relax.Var | relax.Tuple | tvm.ir.GenericConst):
            return self._read_by(value)
        callee = self._callee(value)
        return self._outside(binding) if callee is None else self._op(binding, callee)

    def _read_by(self, value: Any) -> list[_Tensor]:
        """The tensors of an expression that only names values, in order."""
        if isinstance(value, relax.Tuple):
            return [tensor for item in value.fields for tensor in self._read_by(item)]
        if isinstance(value, tvm.ir.GenericConst) and value not in self.tensors:
            self.tensors[value] = self._made(value.ty, fixed=True)
        is_name = isinstance(value, relax.Var | tvm.ir.GenericConst)
        return self.tensors.get(value, []) if is_name else []

    def _outside(self, binding: Any) -> list[_Tensor]:
        """What is no call of a PrimFunc: a kernel of its own if it makes a tensor."""
        value = binding.value
        named = value.args if isinstance(value, relax.Call) else used_vars(value)
        reads = [tensor for item in named for tensor in self._read_by(item)]
        if isinstance(binding, relax.MatchCast):
            return reads
        node = _Node(reads, self._made(binding.var.ty), _Callee())
        return self._add(node) if node.writes else []

    def _op(self, binding: Any, callee: _Callee) -> list[_Tensor]:
        reads = [tensor for arg in call_args(binding.value) for tensor in self._read_by(arg)]
        leaves = binding.var in self.leaving
        if callee.is_reshape or (callee.only_moves and not leaves):
            made = self._made(binding.var.ty, fixed=reads[0].fixed)
            for tensor in made:
                tensor.view_of = reads[0].origin
                tensor.bytes = min(tensor.bytes, reads[0].bytes)
            return made
        if callee.kind is not OpKind.BARRIER and not leaves and all(t.fixed for t in reads):
            made = self._made(binding.var.ty, fixed=True)
            for tensor in made:
                tensor.bytes = tensor.bytes if any(t.bytes for t in reads) else 0
            return made
        return self._add(_Node(reads, self._made(binding.var.ty), callee))

    def _add(self, node: _Node) -> list[_Tensor]:
        for tensor in node.reads:
            tensor.origin.readers += 1
        for tensor in node.writes:
            tensor.maker = node
        self.nodes.append(node)
        return node.writes

    def _made(self, ty: Any, fixed: bool = False) -> list[_Tensor]:
        if isinstance(ty, relax.TupleType):
            return [tensor for part in tensor_types(ty) for tensor in self._made(part, fixed)]
        if not isinstance(ty, relax.TensorType):
            return []
        if getattr(ty.shape, "values", None) is None:
            raise TVMFusionError(f"a tensor of type {ty} is of unknown shape: give it one")
        size = element_bytes(ty.dtype)
        for extent in ty.shape.values:
            size *= self._extent(extent)
        return [_Tensor(size, fixed=fixed)]

    def _extent(self, extent: Any) -> int:
        value = static_int(extent)
        if value is not None:
            return value
        analyzer = tvm.sym.Analyzer()
        for var in vars_of(extent):
            if var.name not in self.assume:
                raise TVMFusionError(
                    f"the extent {var.name} is symbolic: give it a value to count with, like "
                    f"assume={{'{var.name}': 128}}"
                )
            analyzer.bind(var, tirx.const(self.assume[var.name], var.ty.dtype))
        return int(analyzer.simplify(extent))


def _leaves(ty: Any) -> int:
    """Tensors in a type."""
    if isinstance(ty, relax.TupleType):
        return sum(map(_leaves, ty.fields))
    return int(isinstance(ty, relax.TensorType))


def _take_biases(nodes: Iterable[_Node]) -> None:
    """Make the addition of a broadcast weight to a contraction part of that contraction."""
    for node in nodes:
        if not node.callee.adds or node.own_kernel or len(node.reads) != 2:
            continue
        for value, bias in (node.reads, node.reads[::-1]):
            maker = value.origin.maker
            if maker is None or maker.callee.kind is not OpKind.CONTRACTION:
                continue
            whole = value.bytes == value.origin.bytes == node.writes[0].bytes
            alone = value.origin.readers == 1 and not value.origin.leaves
            if whole and alone and bias.fixed and bias.bytes < value.bytes:
                node.part_of = maker
                maker.reads.append(bias)
                maker.writes = node.writes
                node.writes[0].maker = maker
                break


def _kernels(nodes: Iterable[_Node]) -> dict[_Node, _Kernel]:
    """The kernel of C1 that each node belongs to.

    Nodes are connected within a level, the number of own kernels on the longest path to a node.
    Kernels formed so never wait for each other in a circle.
    """
    level: dict[_Tensor, int] = {}
    above: dict[_Node, _Node] = {}

    def root(node: _Node) -> _Node:
        while above[node] is not node:
            above[node] = node = above[above[node]]
        return node

    for node in nodes:
        if node.part_of is not None:
            continue
        above[node] = node
        origins = [tensor.origin for tensor in node.reads]
        here = max((level.get(origin, 0) for origin in origins), default=0)
        level.update(dict.fromkeys(node.writes, here + node.own_kernel))
        if node.own_kernel:
            continue
        for origin in origins:
            maker = origin.maker
            if maker is not None and not maker.own_kernel and level[origin] == here:
                above[root(maker)] = root(node)
    made: dict[_Node, _Kernel] = {}
    of: dict[_Node, _Kernel] = {}
    for node in above:
        of[node] = made.setdefault(root(node), _Kernel(node.callee.heavy))
        of[node].reduces |= node.callee.kind not in (OpKind.ELEMENTWISE, OpKind.INJECTIVE)
    return of


def _count(nodes: Iterable[_Node], of: Mapping[_Node, _Kernel]) -> References:
    """Add up what each kernel moves."""
    outside = _Kernel(heavy=False)
    readers: dict[_Tensor, set[_Kernel]] = {}
    for node, kernel in of.items():
        for tensor in node.writes:
            if tensor.leaves:
                outside.written[tensor] = kernel.written[tensor] = tensor.bytes
        for tensor in node.reads:
            maker = tensor.origin.maker
            if maker is None:
                outside.read(tensor)
            elif of[maker] is kernel:
                continue
            else:
                of[maker].written[tensor.origin] = tensor.origin.bytes
                readers.setdefault(tensor.origin, set()).add(kernel)
            kernel.read(tensor)
    kernels = list(dict.fromkeys(of.values()))
    saved: dict[_Kernel, int] = {}
    for tensor, read_by in readers.items():
        region = next(iter(read_by))
        made_by = tensor.maker.callee.kind if tensor.maker is not None else None
        if made_by is not OpKind.CONTRACTION or tensor.leaves or len(read_by) > 1:
            continue
        if not region.reduces:
            less = tensor.bytes + region.bytes_read(tensor)
            saved[region] = max(saved.get(region, 0), less)
    c1 = sum(kernel.bytes for kernel in kernels)
    heavy = [kernel for kernel in kernels if kernel.heavy]
    return References(
        c0_bytes=outside.bytes,
        c1_bytes=c1,
        c2_bytes=c1 - sum(saved.values()),
        c1_kernels_other=len(kernels) - len(heavy),
        c1_kernels_heavy=len(heavy),
        c1_bytes_other=c1 - sum(kernel.bytes for kernel in heavy),
    )
