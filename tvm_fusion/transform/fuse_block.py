"""Groups of one dataflow block: asked of the policy, tried, cut where they fail."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..analysis import DataflowGraph
from ..analysis.relax_graph import BlockGraph
from ..device import Device
from ..errors import PolicyError, one_line
from ..limits import Limits
from ..policy import Decision, Group, Policy, Reason, SiblingDecision
from ..policy.base import Refusal, parting, together
from ..policy.reasons import Cyclic, Fused, ScheduleFailed, View
from ..trace import phase
from .build import Names, make_seq
from .feedback import Feedback, Verdict
from .grouping import GroupFunction, make_group_function
from .kernels import Attempt, KernelTrial, trial_context
from .split import cheapest_cuts, cut


@dataclass(frozen=True)
class Accepted:
    """A group that will be emitted, and what trying it told."""

    ops: tuple[int, ...]
    function: GroupFunction
    attempt: Attempt


@dataclass(frozen=True)
class Settled:
    """The groups of a block that are emitted, and the final decision on every pair."""

    groups: tuple[Accepted, ...]
    decisions: tuple[Decision, ...]
    siblings: tuple[SiblingDecision, ...]


class BlockFuser:
    """Forms the groups of dataflow blocks of one module.

    Parameters
    ----------
    mod : tvm.IRModule
        The module with the PrimFuncs.
    policy : Policy
        Who forms the groups.
    limits : Limits
        Budgets of a kernel.
    device : Device
        Figures of the GPU.
    trial : KernelTrial or None
        How to try a group; None: every group that FuseTIR takes is accepted.
    feedback : Feedback or None
        What looks at the kernels of groups; None: they stay as they are.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        policy: Policy,
        limits: Limits,
        device: Device,
        trial: KernelTrial | None,
        feedback: Feedback | None = None,
    ) -> None:
        self._mod = mod
        self._policy = policy
        self._limits = limits
        self._device = device
        self._trial = trial
        self._feedback = feedback
        self._tried: dict[Any, Attempt] = {}  # structure of a group's function -> outcome
        self._fused: dict[Any, tirx.PrimFunc] = {}  # the same -> what FuseTIR makes of it

    def fuse(self, block: BlockGraph) -> Settled:
        """Ask the policy for groups; keep those that are one kernel, cut those that are not.

        Raises
        ------
        PolicyError
            The policy's groups overlap, or it says of a pair that is in none that it is fused.
        """
        graph = block.graph

        def check(ops: tuple[int, ...]) -> Reason | None:
            return self._attempt(make_group_function(block, ops)).reason

        with phase("policy"):
            partition = self._policy.partition(graph, self._limits, self._device, check)
        _check_disjoint(block, partition.groups)
        refused: list[Refusal] = []
        accepted: list[Accepted] = []
        with phase("try"):
            for ops in _acyclic(block, partition.groups, refused):
                accepted.extend(self._try(block, ops, refused))
        if self._feedback is not None:
            with phase("feedback"):
                accepted = self._improved(block, accepted, refused, self._feedback)
        accepted.sort(key=lambda group: graph.position[group.ops[0]])
        member = {op: group for group in accepted for op in group.ops}
        final = _FinalReasons(graph, member, refused)
        decisions = tuple(map(final.edge, partition.decisions))
        siblings = tuple(map(final.siblings, partition.siblings))
        return Settled(tuple(accepted), decisions, siblings)

    def _try(
        self,
        block: BlockGraph,
        ops: tuple[int, ...],
        refused: list[Refusal],
        is_final: bool = True,
    ) -> list[Accepted]:
        accepted, waiting = [], [ops]
        while waiting:
            current = waiting.pop()
            if len(current) == 1 and not block.graph.ops[current[0]].dead_outputs:
                continue
            function = make_group_function(block, current)
            attempt = self._attempt(function)
            if attempt.reason is None:
                accepted.append(Accepted(current, function, attempt))
                continue
            refused.append(Refusal(attempt.reason, current))
            if is_final:
                _warn_of_failure(function, attempt.reason)
            if len(current) > 1:
                waiting.extend(_without_rim_views(block, p) for p in cut(block.graph, current))
        return accepted

    # -- feedback ---------------------------------------------------------------------------

    def _improved(
        self,
        block: BlockGraph,
        accepted: Sequence[Accepted],
        refused: list[Refusal],
        feedback: Feedback,
    ) -> list[Accepted]:
        """The groups with kernels that the compiler's figures do not speak against.

        A group with a problem that no other schedule mends is split, and its parts are looked at
        in turn; it stays as it is where no split helps.
        """
        feedback.figures([group.attempt for group in accepted])  # all at once
        done, waiting = [], list(reversed(accepted))
        while waiting:
            group = waiting.pop()
            verdict = self._judge(block, group, feedback)
            group = replace(group, attempt=verdict.attempt)
            parts: list[Accepted] | None = None
            if verdict.problem is not None:
                parts = self._split(block, group, verdict, refused, feedback)
            if parts is None:
                done.append(group)
            else:
                waiting.extend(reversed(parts))
        return done

    def _judge(self, block: BlockGraph, group: Accepted, feedback: Feedback) -> Verdict:
        func = self._prim_func(group.function)
        return feedback.judge(_name(block, group.ops), func, group.attempt)

    def _split(
        self,
        block: BlockGraph,
        group: Accepted,
        verdict: Verdict,
        refused: list[Refusal],
        feedback: Feedback,
    ) -> list[Accepted] | None:
        """The groups of a cheap cut whose kernels have no problem, or the smallest one.

        Of all cuts in the order of their costs the first is tried, then the second, fourth and so
        on until one helps.
        """
        assert verdict.problem is not None
        best: tuple[tuple[int, float], list[Accepted], list[Verdict]] | None = None
        cuts = cheapest_cuts(block.graph, group.ops)
        rank = 1
        while rank <= len(cuts) and not feedback.is_out_of_time:
            with feedback.spending():
                groups = self._groups_of(block, cuts[rank - 1])
                verdicts = [feedback.verdict(one.attempt) for one in groups]
                verdicts += self._verdicts_alone(block, group.ops, groups, feedback)
            severity = max(map(feedback.severity, verdicts), default=(0, 0.0))
            if best is None or severity < best[0]:
                best = severity, groups, verdicts
            if not any(severity):
                break
            rank *= 2
        if best is None or best[0] >= feedback.severity(verdict):
            feedback.record(_name(block, group.ops), "kept", verdict, ())
            return None
        _, groups, verdicts = best
        refused.append(Refusal(verdict.problem, group.ops))
        feedback.record(_name(block, group.ops), "split", verdict, verdicts)
        return groups

    def _groups_of(self, block: BlockGraph, parts: Sequence[tuple[int, ...]]) -> list[Accepted]:
        """The groups that the parts of a cut would be; nobody is told of those that fail."""
        bare = (_without_rim_views(block, part) for part in parts)
        return [one for part in bare for one in self._try(block, part, [], is_final=False)]

    def _verdicts_alone(
        self,
        block: BlockGraph,
        ops: Sequence[int],
        groups: Sequence[Accepted],
        feedback: Feedback,
    ) -> list[Verdict]:
        """What those of ``ops`` take that are in none of the groups; reshapes become views."""
        assert self._trial is not None
        grouped = {op for group in groups for op in group.ops}
        found = []
        for op in ops:
            if op not in grouped and not block.graph.ops[op].is_view:
                func = self._prim_func(make_group_function(block, (op,)))
                found.append(feedback.verdict(self._trial.try_op(func)))
        return found

    # -- trying -----------------------------------------------------------------------------

    def _attempt(self, function: GroupFunction) -> Attempt:
        key = tvm_ffi.StructuralKey(function.function)
        if key not in self._tried:
            self._tried[key] = self._try_kernel(function)
        return self._tried[key]

    def _prim_func(self, function: GroupFunction) -> tirx.PrimFunc:
        """The PrimFunc of a group, made once."""
        key = tvm_ffi.StructuralKey(function.function)
        if key not in self._fused:
            self._fused[key] = fused_prim_func(self._mod, function)
        return self._fused[key]

    def _try_kernel(self, function: GroupFunction) -> Attempt:
        try:
            func = self._prim_func(function)
        except Exception as error:  # FuseTIR refuses some combinations of PrimFuncs
            return Attempt(None, ScheduleFailed(f"FuseTIR: {one_line(error)}"))
        return self._trial.try_group(func) if self._trial else Attempt(None, None)


def _name(block: BlockGraph, ops: Sequence[int]) -> str:
    return ", ".join(block.graph.ops[op].name for op in ops)


def fused_prim_func(mod: tvm.IRModule, group: GroupFunction) -> tirx.PrimFunc:
    """The PrimFunc that FuseTIR makes of a group.

    Parameters
    ----------
    mod : tvm.IRModule
        The module with the PrimFuncs that the group calls.
    group : GroupFunction
        The group.
    """
    names = Names(mod)
    target = names.new_var("group", group.function)
    params = [relax.Var(p.name, p.ty) for p in group.function.params]
    call = relax.Call(target, params, ret_ty=group.function.ret_ty)
    result = relax.Var("result", group.function.ret_ty)
    body = make_seq([relax.BindingBlock([relax.VarBinding(result, call)])], result)
    caller = relax.Function(params, body, group.function.ret_ty, True)
    functions: dict[Any, Any] = {gvar: mod[gvar] for gvar in group.callees}
    functions[target] = group.function
    main = names.new_var("main", caller)
    functions[main] = caller.with_attr("global_symbol", main.name_hint)
    with trial_context():
        return relax.transform.FuseTIR()(tvm.IRModule(functions))[target.name_hint]


def _warn_of_failure(function: GroupFunction, reason: Reason) -> None:
    if isinstance(reason, ScheduleFailed):
        ops = ", ".join(gvar.name_hint for gvar in function.callees)
        warnings.warn(f"a group is emitted unfused ({ops}): {reason.message}", stacklevel=2)


def _check_disjoint(block: BlockGraph, groups: Sequence[Group]) -> None:
    seen: set[int] = set()
    for group in groups:
        twice = seen.intersection(group.ops)
        if twice:
            names = ", ".join(block.graph.ops[op].name for op in sorted(twice))
            raise PolicyError(f"the policy put {names} into two groups: an op belongs to one")
        seen.update(group.ops)


def _acyclic(
    block: BlockGraph, groups: Sequence[Group], refused: list[Refusal]
) -> list[tuple[int, ...]]:
    """The groups, cut where they could not be put into an order."""
    kept = [tuple(group.ops) for group in groups]
    while True:
        cyclic = block.graph.cyclic_groups(kept)
        if not cyclic:
            return kept
        chosen = min(cyclic)
        others = [op for group in cyclic - {chosen} for op in kept[group]]
        ops = kept.pop(chosen)
        refused.append(Refusal(_cyclic(block.graph, ops, others), ops))
        kept.extend(part for part in cut(block.graph, ops) if len(part) > 1)


def _cyclic(graph: DataflowGraph, ops: Sequence[int], others: Sequence[int]) -> Cyclic:
    """Why a group cannot be put into an order: what it waits for, by itself or as a group."""
    inside, outside = graph.detour(ops) or (ops[0], min(others, default=ops[-1]))
    return Cyclic(*graph.names((inside, outside)))


def _without_rim_views(block: BlockGraph, ops: tuple[int, ...]) -> tuple[int, ...]:
    """Leave reshapes at either end of a part outside: there they are views."""
    kept = list(ops)
    while len(kept) > 1 and block.graph.ops[kept[-1]].is_view:
        kept.pop()
    while len(kept) > 1 and block.graph.ops[kept[0]].is_view:
        kept.pop(0)
    return tuple(kept)


_Decision = TypeVar("_Decision", Decision, SiblingDecision)


class _FinalReasons:
    """The policy's decisions, corrected by what became of its groups.

    Parameters
    ----------
    graph : DataflowGraph
        The ops.
    member : dict of int to Accepted
        The emitted group of each op that is in one.
    refused : list of Refusal
        Groups that were cut, in the order of the cuts.
    """

    def __init__(
        self, graph: DataflowGraph, member: dict[int, Accepted], refused: list[Refusal]
    ) -> None:
        self.graph = graph
        self.member = member
        self.refused = refused

    def edge(self, decision: Decision) -> Decision:
        ends = self.graph.index[decision.producer], self.graph.index[decision.consumer]
        size = self._size_of_common_group(*ends)
        if size:
            return replace(decision, reason=together(self.graph, ends[0], size), tried=())
        return self._parted(decision, *ends) if decision.fused else decision

    def siblings(self, decision: SiblingDecision) -> SiblingDecision:
        ends = self.graph.index[decision.first], self.graph.index[decision.second]
        size = self._size_of_common_group(*ends)
        if size:
            return replace(decision, reason=Fused(size), tried=())
        return self._parted(decision, *ends) if decision.fused else decision

    def _parted(self, decision: _Decision, first: int, second: int) -> _Decision:
        """The decision on two ops that the policy had put into one group."""
        refusal = parting(self.refused, first, second)
        for op in (second, first):
            if op not in self.member and self.graph.ops[op].is_view:
                refusal = Refusal(View(self.graph.ops[op].name))
        if refusal is None:
            names = " and ".join(self.graph.names((first, second)))
            raise PolicyError(f"the policy says that {names} are fused: put them into one group")
        return replace(decision, reason=refusal.reason, tried=self.graph.names(refusal.ops))

    def _size_of_common_group(self, first: int, second: int) -> int:
        """Ops of the group that both are in; 0 where there is none."""
        group = self.member.get(first)
        return len(group.ops) if group is not None and group is self.member.get(second) else 0
