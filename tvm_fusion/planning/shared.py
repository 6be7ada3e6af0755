"""Shared memory of a kernel: who needs an array, from when to when, and how they take turns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ..analysis.blocks import element_bytes


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
        The first and the last nest that touches it.
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
    """

    array_of: dict[Hashable, int]
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, each aligned as TVM's code generator does it."""
        pairs = zip(self.sizes, self.dtypes, strict=True)
        return sum(aligned(size * element_bytes(dtype)) for size, dtype in pairs)


def aligned(nbytes: int) -> int:
    """Bytes that an array takes up; ``CodeGenCUDA`` aligns arrays in shared memory to 64."""
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
    return SharedArrays(array_of, tuple(sizes), tuple(dtypes))
