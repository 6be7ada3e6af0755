"""The kinds of ops that fusion rules are written in."""

from __future__ import annotations

from enum import Enum, IntEnum


class ClassicKind(Enum):
    """What the classic single-chain rule sees in an op."""

    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    VIEW = "view"
    BARRIER = "barrier"


class OpKind(Enum):
    """What an op does, from the structure of its PrimFunc."""

    ELEMENTWISE = "ELEMENTWISE"
    """Every output element from the same or a broadcast element of the inputs."""
    INJECTIVE = "INJECTIVE"
    """Moves elements by static index maps: reshape, transpose, slice, split, concat, gather."""
    REDUCTION = "REDUCTION"
    """One reducing block, possibly with elementwise work before or after."""
    ROW_NORM = "ROW_NORM"
    """Reductions and elementwise work over the same rows: softmax, layer norm."""
    CONTRACTION = "CONTRACTION"
    """A matrix product or convolution, possibly with elementwise work around it."""
    COMPOSITE = "COMPOSITE"
    """Several of the above that no single kernel can hold."""
    BARRIER = "BARRIER"
    """Anything else: data-dependent indices, sort, external calls, what is not understood."""

    def classic(self, is_reshape: bool = False) -> ClassicKind:
        """The classic rule's name for this kind.

        Parameters
        ----------
        is_reshape : bool
            The op is a pure reshape: the same elements in the same order.
        """
        if self is OpKind.ELEMENTWISE:
            return ClassicKind.ELEMENTWISE
        if self is OpKind.REDUCTION:
            return ClassicKind.REDUCTION
        if self is OpKind.INJECTIVE and is_reshape:
            return ClassicKind.VIEW
        return ClassicKind.BARRIER


class FusePattern(IntEnum):
    """How an op may take part in post-dominator fusion: TVM's ladder of op patterns.

    The numbers are those of ``relax::OpPatternKind`` (TVM, include/tvm/relax/op_attr_types.h).
    """

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    ANCHOR = 4
    OPAQUE = 8


#: The pattern of an op of which nothing but its kind is known.
DEFAULT_PATTERN = {
    OpKind.ELEMENTWISE: FusePattern.ELEMENTWISE,
    OpKind.INJECTIVE: FusePattern.INJECTIVE,
    OpKind.REDUCTION: FusePattern.REDUCTION,
    OpKind.ROW_NORM: FusePattern.ANCHOR,
    OpKind.CONTRACTION: FusePattern.ANCHOR,
    OpKind.COMPOSITE: FusePattern.OPAQUE,
    OpKind.BARRIER: FusePattern.OPAQUE,
}
