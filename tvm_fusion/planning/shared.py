"""Shared memory of a kernel: who needs an array, from when to when, and how they take turns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..analysis.blocks import element_bytes

#: Types that no shuffle takes are exchanged between threads as these.
_EXCHANGED_AS = {
    "bfloat16": "float32",
    "int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "bool": "int32",
}  # fmt: skip


def exchanged_as(dtype: str) -> str:
    """The type in which threads exchange partial results of a reduction."""
    return _EXCHANGED_AS.get(dtype, dtype)


@dataclass(frozen=True)
class SharedRequest:
    """An array that something needs for a part of the kernel.

    Parameters
    ----------
    key : hashable
        Who needs it.
    elements : int
        Its size.
    dtype : str
        Its type.
    start, end : int
        When it is touched first and last.
    """

    key: Hashable
    elements: int
    dtype: str
    start: int
    end: int


@dataclass(frozen=True)
class SharedArrays:
    """The arrays; requests with disjoint lives take turns in one.

    Parameters
    ----------
    array_of : dict
        For each request's key its array.
    sizes : tuple of int
        Elements of each array.
    dtypes : tuple of str
        Their types.
    ends : tuple of int
        When each of them is touched last.
    """

    array_of: dict[Hashable, int]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    ends: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, laid out as ptxas does it.

        They follow each other as they are declared, but those of one element, which NVIDIA's
        compiler takes for variables, come last. Each is aligned, and the last is not padded.
        """
        pairs = list(zip(self.sizes, self.dtypes, strict=True))
        pairs.sort(key=lambda pair: pair[0] == 1)
        total = 0
        for size, dtype in pairs:
            total = aligned(total) + size * element_bytes(dtype)
        return total


def aligned(nbytes: int) -> int:
    """Where the next array begins; ``CodeGenCUDA`` aligns arrays in shared memory to 64 bytes."""
    return -(-nbytes // 64) * 64


def assign(requests: Sequence[SharedRequest]) -> SharedArrays:
    """Give every request an array, the first of its type that is free."""
    array_of: dict[Hashable, int] = {}
    taken_until: list[int] = []
    sizes: list[int] = []
    dtypes: list[str] = []
    for request in sorted(requests, key=lambda r: (r.start, r.end, str(r.key))):
        array = next(
            (
                a
                for a, until in enumerate(taken_until)
                if until < request.start and dtypes[a] == request.dtype
            ),
            None,
        )
        if array is None:
            array = len(sizes)
            taken_until.append(0)
            sizes.append(0)
            dtypes.append(request.dtype)
        taken_until[array] = request.end
        sizes[array] = max(sizes[array], request.elements)
        array_of[request.key] = array
    return SharedArrays(array_of, tuple(sizes), tuple(dtypes), tuple(taken_until))
