"""What is different between the reports of two builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .data import EdgeEntry, GroupEntry, KernelEntry, ReasonEntry, ReportData, SiblingEntry
from .words import amount, taken


@dataclass(frozen=True)
class Change:
    """Something that was one thing in the old build and is another in the new one."""

    what: str
    old: str
    new: str


@dataclass(frozen=True)
class ReportDiff:
    """What changed from an old build to a new one. ``print`` shows it.

    Parameters
    ----------
    settings : tuple of Change
        Versions, target, policy, limits.
    totals : tuple of Change
        Kernels and bytes.
    pairs : tuple of Change
        Producers and consumers, and readers of one tensor, whose decision or reason changed.
    groups_lost, groups_gained : tuple of tuple of str
        Fused groups, by their ops, that only the old or only the new build has.
    kernels : tuple of Change
        Kernels of the same name that take something else.
    ops_lost, ops_gained : tuple of str
        Ops that only one of the builds has: the models are not the same.
    """

    settings: tuple[Change, ...]
    totals: tuple[Change, ...]
    pairs: tuple[Change, ...]
    groups_lost: tuple[tuple[str, ...], ...]
    groups_gained: tuple[tuple[str, ...], ...]
    kernels: tuple[Change, ...]
    ops_lost: tuple[str, ...]
    ops_gained: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing changed but times."""
        return not any(asdict(self).values())

    def __str__(self) -> str:
        if self.is_empty:
            return "nothing changed"
        lines: list[str] = []
        for title, changes in (
            ("Settings", self.settings),
            ("Kernels and bytes", self.totals),
            ("Decisions", self.pairs),
            ("Figures of kernels", self.kernels),
        ):
            if changes:
                lines.append(f"{title}:")
                lines += [f"  {c.what}: {c.old} -> {c.new}" for c in changes]
        for title, names in (
            ("Groups that are gone", self.groups_lost),
            ("Groups that are new", self.groups_gained),
        ):
            if names:
                lines.append(f"{title}:")
                lines += [f"  {', '.join(ops)}" for ops in names]
        for title, ops in (("Ops that are gone", self.ops_lost), ("New ops", self.ops_gained)):
            if ops:
                lines.append(f"{title}: {', '.join(ops)}")
        return "\n".join(lines)


def diff(old: ReportData, new: ReportData) -> ReportDiff:
    """What changed from ``old`` to ``new``; ops are matched by name.

    Parameters
    ----------
    old, new : ReportData
        Reports of two builds, most useful of the same model.
    """
    old_ops, new_ops = ({op.name: None for op in report.ops} for report in (old, new))
    old_groups, new_groups = _fused(old), _fused(new)
    return ReportDiff(
        settings=_changes(_settings(old), _settings(new)),
        totals=_changes(_totals(old), _totals(new)),
        pairs=_changes(_pairs(old), _pairs(new), only_common=True),
        groups_lost=tuple(ops for ops in old_groups if ops not in new_groups),
        groups_gained=tuple(ops for ops in new_groups if ops not in old_groups),
        kernels=_changes(_kernels(old), _kernels(new), only_common=True),
        ops_lost=tuple(name for name in old_ops if name not in new_ops),
        ops_gained=tuple(name for name in new_ops if name not in old_ops),
    )


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], only_common: bool = False
) -> tuple[Change, ...]:
    keys = [key for key in old if key in new] if only_common else dict.fromkeys([*old, *new])
    return tuple(
        Change(key, str(old.get(key, "-")), str(new.get(key, "-")))
        for key in keys
        if old.get(key, "-") != new.get(key, "-")
    )


def _settings(report: ReportData) -> dict[str, Any]:
    header = report.header
    versions = {f"version of {name}": version for name, version in header.versions.items()}
    limits = {f"Limits.{name}": value for name, value in header.limits.items()}
    named = {
        "target": header.target,
        "policy": header.policy,
        "feedback": header.feedback,
        "compiler": header.compiler or "none",
        "no_fuse": ", ".join(header.no_fuse) or "none",
        "assume": ", ".join(f"{n} = {v}" for n, v in sorted(header.assume.items())) or "none",
    }
    return {**versions, **named, **limits}


def _totals(report: ReportData) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way, totals in report.header.totals.items():
        if totals is not None:
            found[f"kernels, {way}"] = totals.kernels
            found[f"bytes, {way}"] = amount(totals.bytes)
    return found


def _pairs(report: ReportData) -> dict[str, Any]:
    edges = {_edge(edge): _verdict(edge.reason) for edge in report.edges}
    return {**edges, **{_sibling(pair): _verdict(pair.reason) for pair in report.siblings}}


def _edge(edge: EdgeEntry) -> str:
    return f"{edge.producer} -> {edge.consumer}"


def _sibling(pair: SiblingEntry) -> str:
    return f"{pair.first} | {pair.second}"


def _verdict(reason: ReasonEntry) -> str:
    return reason.verdict if reason.verdict != "refused" else f"refused, {reason.message}"


def _fused(report: ReportData) -> dict[tuple[str, ...], GroupEntry]:
    return {group.ops: group for group in report.groups if group.kind == "fused"}


def _kernels(report: ReportData) -> dict[str, Any]:
    return {kernel.name: _figures(kernel) for kernel in report.kernels}


def _figures(kernel: KernelEntry) -> str:
    return f"{kernel.rule}, {taken(kernel.figures)}"
