"""How many threads work on a row, and on how many rows at once."""

from __future__ import annotations

from dataclasses import dataclass

from ..analysis.extents import Extent

#: With fewer rows than this a row gets more threads: the GPU would idle otherwise.
_FEW_ROWS = 264

#: Threads of a block that holds several rows, or that works flat.
_BLOCK = 128
_FLAT_BLOCK = 256

#: For rows of symbolic length: threads, rows of a block, and the longest row.
_SYMBOLIC_SHAPES = ((32, 4, 256), (256, 1, 4096))

#: Threads for rows that no bound is known of.
_UNBOUNDED_THREADS = 512

#: Vectors of one thread from which on a row that is not kept is better left to fewer threads: they
#: have more registers, and NVIDIA's compiler keeps what it can load early in them.
_MOST_STEPS = 8

#: Threads of a warp.
WARP_THREADS = 32

#: Bytes that one load or store moves at most.
VECTOR_BYTES = 16

#: Elements of a vector at most.
MAX_VECTOR = 8


@dataclass(frozen=True)
class Launch:
    """How the threads of a block divide the work.

    Parameters
    ----------
    threads : int
        Threads that work on one row.
    rows : int
        Rows of a block.
    vector : int
        Elements of a vector.
    chunk : int
        Points of a row that a block takes; 0: all.
    bound : int
        Points of a row at most where their number is symbolic; 0: no bound.
    """

    threads: int
    rows: int
    vector: int
    chunk: int = 0
    bound: int = 0


def row_launches(
    points: int, rows: Extent, vector: int, max_threads: int, elements: int
) -> list[Launch]:
    """Launch shapes for rows that are contiguous in memory, from the preferred to the largest.

    Parameters
    ----------
    points : int
        Points of the longest nest in a row.
    rows : Extent
        Number of rows.
    vector : int
        Elements of a vector.
    max_threads : int
        Threads that a block may have.
    elements : int
        Elements that one thread takes of a row that is not too long.
    """
    vectors = -(-points // vector)
    if vectors <= 32:
        threads = _power_of_two(vectors)
        return [Launch(threads, _rows_per_block(rows, _BLOCK // threads), vector)]
    each = max(1, elements // vector)
    if rows.static is not None and rows.static <= _FEW_ROWS:
        each = max(1, each // 4)
    wanted = min(max_threads, _warps(-(-vectors // each)))
    shapes = []
    while True:
        threads = min(max_threads, _warps(-(-vectors // -(-vectors // wanted))))
        several = _rows_per_block(rows, _BLOCK // threads) if threads == 32 else 1
        shapes.append(Launch(threads, several, vector))
        if wanted >= max_threads:
            if vectors > _MOST_STEPS * max_threads:
                shapes.append(Launch(max_threads // 2, 1, vector))
            return list(dict.fromkeys(shapes))
        wanted = min(max_threads, wanted * 2)


def symbolic_row_launches(vector: int, max_threads: int) -> list[Launch]:
    """Launch shapes for rows of symbolic length, from the shortest rows to those without bound.

    Parameters
    ----------
    vector : int
        Elements of a vector.
    max_threads : int
        Threads that a block may have.
    """
    shapes = [
        Launch(threads, rows, vector, bound=bound)
        for threads, rows, bound in _SYMBOLIC_SHAPES
        if threads * rows <= max_threads
    ]
    return [*shapes, Launch(min(max_threads, _UNBOUNDED_THREADS), 1, vector)]


def column_launches(
    points: int, rows: Extent, contiguous: Extent, lanes: int, max_threads: int
) -> list[Launch]:
    """Launch shapes where neighbouring rows are contiguous in memory.

    Parameters
    ----------
    points : int
        Points of the longest nest in a row.
    rows : Extent
        Number of rows, lanes counted as one.
    contiguous : Extent
        How many rows lie next to each other.
    lanes : int
        Rows that one thread takes as a vector.
    max_threads : int
        Threads that a block may have.
    """
    across = _power_of_two(min(contiguous.static or _BLOCK, _BLOCK))
    shapes = []
    few = rows.estimate() < 64 * 1024
    threads = 1
    while threads <= 32 and threads * 32 <= max_threads:
        serial = points // threads
        if threads == 1:
            width = min(across, 32) if few else across
            shapes.append(Launch(1, max(1, width), lanes))
        elif points >= threads:
            shapes.append(Launch(threads, min(32, max(1, across)), lanes))
        if few and serial >= 64 and shapes:
            shapes.pop()  # more threads a row while the GPU would idle
        threads *= 2
    if not shapes:
        shapes.append(Launch(32, min(32, max(1, across)), lanes))
    return shapes


def flat_launch(points: Extent, rows: Extent, vector: int) -> Launch:
    """Launch shape of a pointwise group.

    Parameters
    ----------
    points : Extent
        Points of a row.
    rows : Extent
        Number of rows.
    vector : int
        Elements of a vector.
    """
    total = points * rows
    block = _FLAT_BLOCK
    while block > 64 and total.estimate() // (vector * block) < 2 * _FEW_ROWS:
        block //= 2
    number = points.static
    if number is None or number >= vector * block:
        if number is not None and number % (vector * block) and number <= 4 * vector * block:
            pieces = -(-number // (vector * block))
            block = _warps(-(-number // (vector * pieces)))
        return Launch(block, 1, vector, vector * block)
    vectors = -(-number // vector)
    if vectors > 32:
        return Launch(_warps(vectors), 1, vector)
    threads = _power_of_two(vectors)
    return Launch(threads, _rows_per_block(rows, block // threads), vector)


def _rows_per_block(rows: Extent, most: int) -> int:
    """At most ``most`` rows, none of them idle where rows are few."""
    count = rows.static
    if count is None or count >= 64 * most:
        return max(1, most)
    several = max(1, min(most, count))
    while count % several:
        several -= 1
    return several


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def _warps(threads: int) -> int:
    """Rounded up to whole warps."""
    return -(-threads // 32) * 32
