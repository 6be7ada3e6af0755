"""Reasons of ``stitch`` around contractions: products of matrices and convolutions.

A contraction takes elementwise ops behind it and index maps before it, nothing else: row work among
the tiles of a product would keep the product from being fast.
"""

from __future__ import annotations

from dataclasses import dataclass

from .base import Reason
from .example import Example

_PRODUCT = Example(
    """
    def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
        a = R.exp(x)
        b = R.matmul(a, w)
        return b
    """,
    ("a", "b"),
)


@dataclass(frozen=True)
class BeforeContraction(Reason):
    """The consumer is in the kernel of a contraction, and the producer computes what it reads.

    The contraction reads each element of its operands for many tiles.
    """

    producer: str
    reader: str
    code = "contraction"
    policies = ("stitch",)
    template = (
        "{reader} reads its operands tile by tile and would compute {producer} again each time"
    )
    remedy = "{producer} only moved elements"
    example = _PRODUCT
    near_miss = _PRODUCT.but("R.exp(x)", "R.permute_dims(x)")


@dataclass(frozen=True)
class MovedBeforeContraction(Reason):
    """The producer moves what its kernel has computed, for the contraction that reads it."""

    producer: str
    reader: str
    code = "contraction"
    policies = ("stitch",)
    template = (
        "{producer} ends a kernel that computes, and {reader} would do that again for each tile"
    )
    remedy = "everything before {producer} in its kernel only moved elements"
    example = Example(
        """
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            a = R.exp(x)
            b = R.permute_dims(a)
            c = R.matmul(b, w)
            return c
        """,
        ("b", "c"),
    )
    near_miss = example.but("R.exp(x)", "R.permute_dims(x)")


@dataclass(frozen=True)
class BehindContraction(Reason):
    """The producer is in the kernel of a contraction, and the consumer is not elementwise."""

    producer: str
    consumer: str
    kind: str
    need: str
    code = "contraction"
    policies = ("stitch",)
    template = "{consumer} ({kind}) needs {need}, and what {producer} makes comes tile by tile"
    remedy = "{consumer} were elementwise"
    example = Example(
        """
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            a = R.matmul(x, w)
            b = R.nn.softmax(a, axis=1)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("R.nn.softmax(a, axis=1)", "R.exp(a)")


@dataclass(frozen=True)
class TwoContractions(Reason):
    """Each of the two is in the kernel of a contraction of its own."""

    first: str
    second: str
    code = "contraction"
    policies = ("stitch",)
    template = "{first} and {second} are in the kernels of two contractions"
    remedy = "{second} were in no kernel of a contraction"
    example = _PRODUCT.but("R.exp(x)", "R.matmul(x, w)")
    near_miss = BehindContraction.near_miss


@dataclass(frozen=True)
class BesideContraction(Reason):
    """The two read the same tensor, and one of them is in the kernel of a contraction."""

    first: str
    second: str
    tensor: str
    code = "contraction"
    policies = ("stitch",)
    template = "{first} and {second} both read {tensor}, but a contraction has its kernel to itself"
    remedy = "neither were in the kernel of a contraction"
    example = Example(
        """
        def main(x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")):
            a = R.matmul(x, w)
            b = R.exp(x)
            return a, b
        """,
        ("a", "b"),
    )
    near_miss = example.but("R.matmul(x, w)", "R.log(x)")
