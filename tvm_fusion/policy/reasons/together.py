"""Why a pair needs no further kernel: it is fused, or one of the two is a view."""

from __future__ import annotations

from dataclasses import dataclass

from .base import DUPLICATED, FUSED, Reason
from .example import Example


@dataclass(frozen=True)
class Fused(Reason):
    """Both ops are in one group."""

    group_size: int
    code = "fused"
    template = "in one group of {group_size} ops"
    verdict = FUSED
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.nn.softmax(x, axis=1)
            b = R.log(a)
            return b
        """,
        ("a", "b"),
    )
    near_miss = example.but("R.log(a)", "R.sort(a)")


@dataclass(frozen=True)
class Duplicated(Reason):
    """Both are in one group, and the producer is repeated for this reader.

    Another op makes the same from the same. To compute a cheap value once for each reader costs
    less than to write it for all of them. The copies have the name of the variable with a number
    behind it.
    """

    op: str
    original: str
    group_size: int
    code = "duplicated"
    template = "{op} makes again what {original} makes, in one group of {group_size} ops"
    verdict = DUPLICATED
    example = Example(
        """
        def main(
            x: R.Tensor((128,), "float32"),
            y: R.Tensor((64, 128), "float32"),
            z: R.Tensor((64, 128), "float32"),
        ):
            a = R.broadcast_to(x, (64, 128))
            b = R.add(a, y)
            c = R.multiply(a, z)
            return b, c
        """,
        ("a_1", "c"),
    )
    near_miss = example.but("R.add(a, y)", "R.exp(y)", pair=("a", "c"))


@dataclass(frozen=True)
class View(Reason):
    """One of the two is a pure reshape at the rim of a group.

    It becomes a view and costs no kernel, so nothing is to be gained by fusing it.
    """

    op: str
    code = "view"
    template = "{op} only reshapes: it becomes a view and costs no kernel"
    is_free = True
    example = Example(
        """
        def main(x: R.Tensor((64, 128), "float32"), w: R.Tensor((64, 32), "float32")):
            a = R.exp(x)
            b = R.reshape(a, (128, 64))
            c = R.matmul(b, w)
            return c
        """,
        ("a", "b"),
    )
    near_miss = example.but("R.matmul(b, w)", "R.exp(b)")
