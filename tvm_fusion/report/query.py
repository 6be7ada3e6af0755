"""Answers why two ops are, or are not, in one kernel, in sentences."""

from __future__ import annotations

import difflib
from collections import defaultdict, deque
from collections.abc import Sequence

from ..errors import ReportError
from .data import EdgeEntry, GroupEntry, OpEntry, ReasonEntry, ReportData, SiblingEntry, TensorEntry
from .words import amount, type_of

#: Where a result lives, in words that continue "it".
_PLACES = {
    "inline": "is evaluated where it is read and stored nowhere",
    "scalar": "stays in a register, one value a row",
    "register": "stays in registers",
    "shared": "stays in shared memory",
    "global": "is written, since it is read outside as well",
}

#: Pairs that one answer tells of, and ops that it names, at most.
_MOST_PAIRS = 6
_MOST_NAMES = 12


def why(report: ReportData, first: str, second: str) -> str:
    """Why two ops are, or are not, in one kernel.

    Parameters
    ----------
    report : ReportData
        Of the build.
    first, second : str
        Names of ops, or of PrimFuncs that ops call.

    Returns
    -------
    str
        Sentences, a paragraph for each pair.

    Raises
    ------
    ReportError
        A name is not there.
    """
    return _Answer(report).why(first, second)


def find_ops(report: ReportData, name: str) -> list[OpEntry]:
    """The op of that name, or those that call the PrimFunc of that name.

    Raises
    ------
    ReportError
        There is none.
    """
    found = [op for op in report.ops if op.name == name]
    found = found or [op for op in report.ops if name in (op.function, op.origin)]
    if not found:
        known = list(dict.fromkeys(n for op in report.ops for n in (op.name, op.function)))
        near = difflib.get_close_matches(name, known, n=5) or known[:12]
        raise ReportError(f"no op or PrimFunc is named {name!r}: try one of {', '.join(near)}")
    return found


class _Answer:
    def __init__(self, report: ReportData) -> None:
        self.report = report
        self.ops = {op.name: op for op in report.ops}
        self.groups = {group.name: group for group in report.groups}

    def why(self, first: str, second: str) -> str:
        starts, ends = find_ops(self.report, first), find_ops(self.report, second)
        sides = {op.name for op in starts}, {op.name for op in ends}
        pairs = [self._edge(e) for e in self.report.edges if _joins(sides, e.producer, e.consumer)]
        pairs += [
            self._siblings(s) for s in self.report.siblings if _joins(sides, s.first, s.second)
        ]
        if pairs:
            more = len(pairs) - _MOST_PAIRS
            rest = [f"And {more} more pairs; name ops instead of PrimFuncs."] if more > 0 else []
            return "\n\n".join([*pairs[:_MOST_PAIRS], *rest])
        return self._apart(*self._nearest(starts, ends))

    def _nearest(self, starts: list[OpEntry], ends: list[OpEntry]) -> tuple[OpEntry, OpEntry]:
        """Of the ops that two names stand for, two in one kernel, or else the first with a way."""
        pairs = [(a, b) for a in starts[:_MOST_PAIRS] for b in ends[:_MOST_PAIRS]]
        for a, b in pairs:
            if a.group == b.group:
                return a, b
        return next((pair for pair in pairs if self._way(*pair)), pairs[0])

    def _way(self, first: OpEntry, second: OpEntry) -> list[EdgeEntry]:
        """A way along edges from one op to the other, in whichever direction there is one."""
        return self._path(first.name, second.name) or self._path(second.name, first.name)

    # -- pairs that pass or share a tensor --------------------------------------------------

    def _edge(self, edge: EdgeEntry) -> str:
        producer, consumer = self.ops[edge.producer], self.ops[edge.consumer]
        passed = " and ".join(map(_tensor, edge.tensors)) or "a value"
        lines = [
            f"{edge.producer} -> {edge.consumer}: {_head(edge.reason)}",
            f"{_op(producer)} passes {passed} to {_op(consumer)}.",
        ]
        if edge.reason.verdict == "refused":
            lines += self._refused(edge.reason, edge.tried)
            if edge.reason.is_refused and edge.tensors:
                lines.append(f"So it is written to global memory and read back{_twice(edge)}.")
        else:
            group = self.groups[producer.group]
            lines.append(self._fused(edge.reason, group))
            lines += self._place(edge, group)
        return "\n".join(lines)

    def _siblings(self, pair: SiblingEntry) -> str:
        first, second = self.ops[pair.first], self.ops[pair.second]
        lines = [
            f"{pair.first} | {pair.second}: {_head(pair.reason)}",
            f"{_op(first)} and {_op(second)} both read {pair.tensor}.",
        ]
        if pair.reason.verdict == "refused":
            lines += self._refused(pair.reason, pair.tried)
        else:
            lines.append(self._fused(pair.reason, self.groups[first.group]))
        return "\n".join(lines)

    def _refused(self, reason: ReasonEntry, tried: Sequence[str]) -> list[str]:
        lines = [f"Why not: {reason.message}."]
        if reason.resource:
            lines.append(f"Limited by: {reason.resource}.")
        if reason.would_fuse_if:
            lines.append(f"As far as this goes, they would fuse if {reason.would_fuse_if}.")
        if len(tried) > 2:
            names = ", ".join(tried[:_MOST_NAMES]) + (", ..." if len(tried) > _MOST_NAMES else "")
            lines.append(f"One kernel would have held {len(tried)} ops: {names}.")
        return lines

    def _fused(self, reason: ReasonEntry, group: GroupEntry) -> str:
        saved = f"{amount(group.bytes_saved)} of {amount(group.before.bytes)}"
        text = (
            f"Both are in the kernel {group.name} of {len(group.ops)} ops, which saves {saved} of "
            f"global memory traffic."
        )
        return text if reason.code == "fused" else f"{reason.message}. {text}"

    def _place(self, edge: EdgeEntry, group: GroupEntry) -> list[str]:
        """Where the tensors of a fused edge live, where the plan says so."""
        place = {entry.tensor.name: entry.place for entry in group.storage}
        return [
            f"There {tensor.name} {_PLACES[place[tensor.name]]}."
            for tensor in edge.tensors
            if place.get(tensor.name) in _PLACES
        ]

    # -- pairs that do not ------------------------------------------------------------------

    def _apart(self, first: OpEntry, second: OpEntry) -> str:
        if first.name == second.name:
            group = self.groups[first.group]
            return f"{first.name} is one op, in {group.name} with {len(group.ops)} ops in all."
        path = self._way(first, second)
        lines = []
        if first.group == second.group:
            group = self.groups[first.group]
            lines.append(
                f"{_op(first)} and {_op(second)} are in one kernel, {group.name} of "
                f"{len(group.ops)} ops, though neither reads the other."
            )
        elif not path:
            return self._unrelated(first, second)
        else:
            lines.append(f"{_op(first)} and {_op(second)} do not pass a tensor to each other.")
        if path:
            steps = [f"{e.producer} -> {e.consumer}: {_verdict(e.reason)}" for e in path]
            lines += ["On the way between them:", *(f"  {step}" for step in steps)]
        return "\n".join(lines)

    def _unrelated(self, first: OpEntry, second: OpEntry) -> str:
        common = self._reads(first) & self._reads(second)
        if common and first.block == second.block:
            return (
                f"{_op(first)} and {_op(second)} both read {min(common)}, but were not looked at "
                f"together: of many readers only near ones are, and small tensors tie nobody."
            )
        return (
            f"{_op(first)} and {_op(second)} have nothing to do with each other: no tensor flows "
            f"from one to the other, and they read none in common."
        )

    def _reads(self, op: OpEntry) -> set[str]:
        producers = {edge.producer for edge in self.report.edges if edge.consumer == op.name}
        return producers.union(op.inputs)

    def _path(self, start: str, end: str) -> list[EdgeEntry]:
        """A shortest way along edges; empty where there is none."""
        leaving: dict[str, list[EdgeEntry]] = defaultdict(list)
        for edge in self.report.edges:
            leaving[edge.producer].append(edge)
        came: dict[str, EdgeEntry] = {}
        queue = deque([start])
        while queue and end not in came:
            for edge in leaving[queue.popleft()]:
                if edge.consumer not in came and edge.consumer != start:
                    came[edge.consumer] = edge
                    queue.append(edge.consumer)
        path: list[EdgeEntry] = []
        while end in came:
            path.append(came[end])
            end = came[end].producer
        return path[::-1]


def _joins(sides: tuple[set[str], set[str]], a: str, b: str) -> bool:
    return (a in sides[0] and b in sides[1]) or (a in sides[1] and b in sides[0])


def _op(op: OpEntry) -> str:
    called = op.origin or op.function
    return f"{op.name} ({op.kind})" if called == op.name else f"{op.name} ({called}, {op.kind})"


def _tensor(tensor: TensorEntry) -> str:
    typed = type_of(tensor)
    return typed if tensor.nbytes is None else f"{typed}, {amount(tensor.nbytes)},"


def _twice(edge: EdgeEntry) -> str:
    sizes = [tensor.nbytes for tensor in edge.tensors]
    if None in sizes:
        return ""
    return f", {amount(2 * sum(n or 0 for n in sizes))} in all"


def _head(reason: ReasonEntry) -> str:
    """The verdict, and the code of the reason where it says more."""
    return reason.verdict if reason.verdict == reason.code else f"{reason.verdict} ({reason.code})"


def _verdict(reason: ReasonEntry) -> str:
    return f"{_head(reason)}, {reason.message}"
