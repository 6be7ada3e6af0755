"""One group of a report in full: its ops, storage, figures, TVMScript and CUDA."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ..errors import ReportError
from .data import GroupEntry, KernelEntry, ReportData
from .words import amount, taken, type_of


@dataclass(frozen=True)
class GroupDetail:
    """A group with its kernel. ``print`` shows it.

    Parameters
    ----------
    entry : GroupEntry
        The group.
    kernel : KernelEntry or None
        Its scheduled PrimFunc; None for views and library calls.
    """

    entry: GroupEntry
    kernel: KernelEntry | None

    @property
    def tvmscript(self) -> str:
        """Its scheduled PrimFunc; empty where it has none."""
        return self.kernel.tvmscript if self.kernel is not None else ""

    @property
    def cuda(self) -> str:
        """Its CUDA source; empty where it has none."""
        return self.kernel.cuda if self.kernel is not None else ""

    def __str__(self) -> str:
        entry, kernel = self.entry, self.kernel
        lines = [f"{entry.name}: {entry.kind}, {len(entry.ops)} ops", f"  {', '.join(entry.ops)}"]
        if kernel is not None:
            lines.append(f"  rule {kernel.rule}")
            lines += [f"  {kernel.layout}"] if kernel.layout else []
            lines.append(f"  {taken(kernel.figures)}")
            if kernel.recompute_factor > 1:
                lines.append(f"  {kernel.recompute_factor:.2f} times the least arithmetic")
            lines += [f"  {note}" for note in kernel.notes]
        read, written = amount(entry.after.bytes_read), amount(entry.after.bytes_written)
        saved = f"{amount(entry.bytes_saved)} of {amount(entry.before.bytes)}"
        lines.append(f"  reads {read}, writes {written}, saves {saved}")
        for stored in entry.storage:
            lines.append(f"  {stored.place:9} {stored.tensor.name} {type_of(stored.tensor)}")
        return "\n".join(lines)


def group_detail(report: ReportData, name: str) -> GroupDetail:
    """The group of that name, with that kernel, or with the op of that name.

    Parameters
    ----------
    report : ReportData
        Of the build.
    name : str
        A group, a PrimFunc or an op; of several groups with one PrimFunc the first.

    Raises
    ------
    ReportError
        There is none.
    """
    for entry in report.groups:
        if name in (entry.name, entry.kernel):
            return _with_kernel(report, entry)
    for entry in report.groups:
        if name in entry.ops:
            return _with_kernel(report, entry)
    known = [n for entry in report.groups for n in (entry.name, *entry.ops)]
    near = difflib.get_close_matches(name, known, n=5) or known[:12]
    raise ReportError(f"no group, kernel or op is named {name!r}: try one of {', '.join(near)}")


def _with_kernel(report: ReportData, entry: GroupEntry) -> GroupDetail:
    kernels = {kernel.name: kernel for kernel in report.kernels}
    return GroupDetail(entry, kernels.get(entry.kernel))
