"""How reports write numbers and names."""

from __future__ import annotations

from ..codegen import KernelFigures
from .data import TensorEntry

#: Decimal units of bytes, from the largest.
_UNITS = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))

_GAP = "\N{HORIZONTAL ELLIPSIS}"


def amount(count: int) -> str:
    """Bytes with three digits, like "5.52 MB"."""
    sign, size = ("\N{MINUS SIGN}", -count) if count < 0 else ("", count)
    for unit, factor in _UNITS:
        if size >= factor:
            value = size / factor
            digits = 2 if value < 10 else 1 if value < 100 else 0
            return f"{sign}{value:.{digits}f} {unit}"
    return f"{sign}{size} B"


def binary(count: int) -> str:
    """Bytes of shared memory, which comes in units of 1024."""
    return f"{count / 1024:.4g} KiB" if count >= 1024 else f"{count} B"


def change(before: int, after: int) -> str:
    """How much less or more, like "-58 %"; empty where there was nothing."""
    if not before:
        return ""
    percent = round(100 * (after - before) / before)
    sign = "\N{MINUS SIGN}" if percent < 0 else "+" if percent > 0 else "\N{PLUS-MINUS SIGN}"
    return f"{sign}{abs(percent)} %"


def duration(seconds: float) -> str:
    """Seconds as "1.25 s" or "18.9 ms"."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1000 * seconds:.1f} ms"


def shortened(name: str, longest: int) -> str:
    """A name without its middle where it is too long."""
    if len(name) <= longest:
        return name
    head = (longest - 1) * 2 // 3
    return name[:head] + _GAP + name[len(name) - (longest - 1 - head) :]


def wrapped(names: tuple[str, ...], width: int, most_lines: int) -> list[str]:
    """Names on lines of a width; a line more says how many are left out."""
    lines: list[str] = []
    for i, name in enumerate(names):
        part = shortened(name, width)
        if lines and len(lines[-1]) + len(part) + 3 <= width:
            lines[-1] += f" \N{MIDDLE DOT} {part}"
        elif len(lines) < most_lines:
            lines.append(part)
        else:
            return [*lines, f"{_GAP} and {len(names) - i} more"]
    return lines


def kind_words(kind: str) -> str:
    """An op kind as words, like "row norm"."""
    return kind.lower().replace("_", " ")


def type_of(tensor: TensorEntry) -> str:
    """Element type and shape: ``float32[1, 128]``; a shape that is not known is left out."""
    return f"{tensor.dtype}[{', '.join(tensor.shape)}]" if tensor.shape else tensor.dtype


def known(number: int | None) -> str:
    """A number, or a dash where it is not known."""
    return "-" if number is None else str(number)


def taken(figures: KernelFigures) -> str:
    """What a kernel takes of a multiprocessor, and who says so."""
    parts = [] if figures.threads is None else [f"{figures.threads} threads"]
    if figures.registers is not None:
        parts.append(f"{figures.registers} registers a thread")
    if figures.spill_bytes is not None:
        parts.append(f"{figures.spill_bytes} bytes spilled")
    parts.append(f"{figures.shared_bytes} bytes of shared memory")
    if figures.occupancy is not None:
        parts.append(f"occupancy {figures.occupancy:.0%}, limited by {figures.limiter}")
    source = f"compiled by {figures.compiler}" if figures.is_compiled else "estimated"
    return f"{', '.join(parts)} ({source})"
