"""The pass that groups ops: Relax dataflow blocks in, Primitive functions out."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import relax

from ..analysis import Op, OpKind
from ..analysis.bindings import owned_by_others
from ..analysis.relax_graph import BlockGraph, build_block_graph, exclude_ops
from ..analysis.traffic import called_functions
from ..device import Device
from ..device.gpu import DEFAULT_TARGET
from ..limits import Limits
from ..planning import Plan, PlanSettings, attach_plans
from ..policy import DEFAULT_POLICY, Dominator, Policy, Stitch, get_policy
from ..trace import BlockRecord, GroupRecord, current_trace, log_block, phase
from .annotate_op_kind import AnnotateOpKind
from .build import Names, make_seq
from .duplicate_broadcasts import DuplicateBroadcasts
from .feedback import make_feedback
from .fuse_block import Accepted, BlockFuser, Settled
from .grouping import group_name, rebuild_block
from .inline_scalar_constants import InlineScalarConstants
from .kernels import KernelTrial
from .merge_dataflow_blocks import MergeDataflowBlocks
from .options import check_feedback, check_no_fuse
from .split_composites import SplitComposites

_LOG = logging.getLogger("tvm_fusion.FuseOps")


@tvm.transform.module_pass(opt_level=0, name="tvm_fusion.FuseOps")
class FuseOps:
    """Group ops into Primitive functions, each of which will be one kernel.

    Before the policy is asked, dataflow blocks are made where there are none, 0-d constants
    become immediates, composite ops are split into blocks and PrimFuncs are annotated. Under a
    GPU target every distinct group is scheduled on a copy; one that does not come out as a
    single launchable kernel is cut. Plans travel in the module attribute ``tvm_fusion.plans``.

    Parameters
    ----------
    policy : str or Policy
        ``"stitch"`` (default), ``"dominator"``, ``"single_chain"``, a registered name, or a policy.
    limits : Limits, optional
        Budgets of a kernel.
    no_fuse : iterable of str, or callable
        Ops to leave alone: names of variables or of PrimFuncs, or a predicate on ``Op``.
    feedback : str
        What the CUDA compiler's figures are used for. ``"auto"`` (default) or ``"compiler"``: under
        a CUDA target the kernel of every group is compiled, and one that spills, or that exceeds
        limits, is scheduled otherwise, then split. Where no compiler is installed, figures are
        estimates, with one warning. ``"off"``: nobody is asked.

    Raises
    ------
    PolicyError
        The policy is unknown.
    LimitsError
        ``feedback`` is none of these, or is off while the limits need it.

    Examples
    --------
    Before::

        lv = R.call_tir(cls.exp, (x,), out_ty=R.Tensor((8, 16), "float32"))
        gv = R.call_tir(cls.add, (lv, y), out_ty=R.Tensor((8, 16), "float32"))

    After::

        gv = cls.fused_exp_add(x, y)   # a private function with attribute Primitive
    """

    def __init__(
        self,
        policy: str | Policy = DEFAULT_POLICY,
        limits: Limits | None = None,
        no_fuse: Iterable[str] | Callable[[Op], bool] = (),
        feedback: str = "auto",
    ) -> None:
        self.policy = get_policy(policy)
        self.limits = limits or Limits()
        self.no_fuse = check_no_fuse(no_fuse)
        self.feedback = feedback
        check_feedback(feedback, self.limits)

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        """Run the pass; ``mod`` itself is left as it is."""
        with phase("FuseOps"):
            _warn_if_not_legalized(mod)
            with phase("prepare"):
                mod = _prepare(mod, () if callable(self.no_fuse) else self.no_fuse)
            run = _Run(mod, self.policy, self.limits, self.no_fuse, self.feedback)
            return run.transform()


def _prepare(mod: tvm.IRModule, no_fuse: Iterable[str]) -> tvm.IRModule:
    """Bring a module into the form that grouping works on; others' functions stay as they are."""
    left_alone = {
        gvar: func
        for gvar, func in mod.functions.items()
        if isinstance(func, relax.Function) and owned_by_others(func)
    }
    passes = [
        relax.transform.ConvertToDataflow(),
        MergeDataflowBlocks(),
        relax.transform.CanonicalizeBindings(),
        InlineScalarConstants(),
        SplitComposites(keep=no_fuse),
        DuplicateBroadcasts(),
        AnnotateOpKind(),
    ]
    made = tvm.transform.Sequential(passes)(mod)
    functions = dict(made.functions.items())
    functions.update(left_alone)
    return tvm.IRModule(functions, attrs=made.attrs, global_infos=made.global_infos)


class _Run:
    """One run of the pass over one module."""

    def __init__(
        self,
        mod: tvm.IRModule,
        policy: Policy,
        limits: Limits,
        no_fuse: Sequence[str] | Callable[[Op], bool],
        feedback: str,
    ) -> None:
        self.mod = mod
        self.limits = limits
        self.no_fuse = no_fuse
        target = tvm.target.Target.current(allow_none=True)
        self.device = Device.from_target(target or tvm.target.Target(DEFAULT_TARGET))
        trial = _trial(target, limits)
        if trial is not None and trial.as_stock and isinstance(policy, Stitch):
            policy = Dominator()  # nobody will be there to write the kernels that stitch plans
        self.policy = policy
        self.feedback = make_feedback(feedback, trial, limits)
        compiler = self.feedback.compiler if self.feedback else None
        self.settings = PlanSettings(limits, feedback, compiler.name if compiler else "")
        self.fuser = BlockFuser(mod, policy, limits, self.device, trial, self.feedback)
        self.names = Names(mod)
        self.added: dict[Any, Any] = {}  # GlobalVar -> Primitive function
        self.known: dict[Any, Any] = {}  # structure of a Primitive function -> GlobalVar
        self.plans: dict[str, Plan] = {}

    def transform(self) -> tvm.IRModule:
        functions = {}
        for gvar, func in self.mod.functions.items():
            if isinstance(func, relax.Function) and not owned_by_others(func):
                func = self._function(gvar.name_hint, func)
            functions[gvar] = func
        functions.update(self.added)
        result = tvm.IRModule(functions, attrs=self.mod.attrs, global_infos=self.mod.global_infos)
        trace = current_trace()
        if trace is not None and self.feedback is not None:
            trace.feedback += self.feedback.steps
        return attach_plans(result, self.plans, self.settings)

    def _function(self, name: str, func: relax.Function) -> relax.Function:
        body = self._body(name, func.body)
        if body is func.body:
            return func
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)

    def _body(self, name: str, body: Any) -> Any:
        if not isinstance(body, relax.SeqExpr):
            return body
        blocks = []
        for block in body.blocks:
            if isinstance(block, relax.DataflowBlock):
                blocks.append(self._block(name, block))
            else:
                blocks.append(relax.BindingBlock([self._binding(name, b) for b in block.bindings]))
        return make_seq(blocks, body.body)

    def _binding(self, name: str, binding: Any) -> Any:
        """Branches of an ``R.If`` are bodies of their own: fused inside, never across."""
        value = binding.value
        if not isinstance(binding, relax.VarBinding) or not isinstance(value, relax.If):
            return binding
        branches = [self._body(name, branch) for branch in (value.true_branch, value.false_branch)]
        made = relax.If(value.cond, *branches)
        return relax.VarBinding(binding.var, relax.BlockBuilder().normalize(made))

    def _block(self, name: str, dataflow: relax.DataflowBlock) -> relax.DataflowBlock:
        with phase("graph"):
            block = build_block_graph(
                self.mod, dataflow, self.device.threads_per_block, self.device.warp_threads
            )
            block.graph = exclude_ops(block.graph, self.no_fuse)
        settled = self.fuser.fuse(block)
        targets = [self._target(block, group) for group in settled.groups]
        self._record(name, block, settled, [gvar.name_hint for gvar in targets])
        if not targets:
            return dataflow
        with phase("rebuild"):
            return rebuild_block(block, [group.function for group in settled.groups], targets)

    def _record(self, name: str, block: BlockGraph, settled: Settled, targets: list[str]) -> None:
        """Tell the recorder and the logger what was decided on a block, if one of them listens."""
        trace = current_trace()
        if trace is None and not _LOG.isEnabledFor(logging.INFO):
            return
        record = BlockRecord(
            function=name,
            policy=self.policy.name,
            graph=block.graph,
            groups=tuple(
                GroupRecord(target, block.graph.names(group.ops))
                for target, group in zip(targets, settled.groups, strict=True)
            ),
            decisions=settled.decisions,
            siblings=settled.siblings,
            tensors=block.describe_tensors(),
        )
        if trace is not None:
            trace.blocks.append(record)
        log_block(_LOG, record)

    def _target(self, block: BlockGraph, group: Accepted) -> Any:
        """The global variable of the group's function; equal groups share one."""
        key = tvm_ffi.StructuralKey(group.function.function)
        if key not in self.known:
            called = [gvar.name_hint for gvar in group.function.callees]
            heavy = [
                block.graph.ops[op].function
                for op in group.ops
                if block.graph.ops[op].kind is OpKind.CONTRACTION
            ]
            gvar = self.names.new_var(group_name(called, heavy), group.function.function)
            self.known[key] = gvar
            self.added[gvar] = group.function.function
            self.plans[gvar.name_hint] = _plan(block, group)
        return self.known[key]


def _warn_if_not_legalized(mod: tvm.IRModule) -> None:
    """Say so where a module holds operators but no ``call_tir``: nothing could be fused."""
    if called_functions(mod):
        return
    operators = sorted(
        {
            call.op.name
            for func in mod.functions.values()
            if isinstance(func, relax.Function) and not owned_by_others(func)
            for call in _operator_calls(func)
        }
    )
    if operators:
        warnings.warn(
            f"the module calls no PrimFunc, only operators ({', '.join(operators[:4])}): "
            f"run relax.transform.LegalizeOps() first, if it has not left them",
            stacklevel=2,
        )


def _operator_calls(func: relax.Function) -> list[Any]:
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            found.append(expr)

    relax.analysis.post_order_visit(func, visit)
    return found


def _trial(target: tvm.target.Target | None, limits: Limits) -> KernelTrial | None:
    """How groups are tried: under the current GPU target, or the default one where none is."""
    if target is None:
        warnings.warn(
            f"FuseOps runs without a current Target: groups are checked for {DEFAULT_TARGET} and "
            f"are scheduled when the module is compiled; use `with target:` to be exact",
            stacklevel=2,
        )
        return KernelTrial(tvm.target.Target(DEFAULT_TARGET), limits, as_stock=True)
    if "gpu" not in target.keys:
        return None
    return KernelTrial(target, limits, as_stock=target.kind.name != "cuda")


def _plan(block: BlockGraph, group: Accepted) -> Plan:
    ops = [block.graph.ops[op] for op in group.ops]
    functions = tuple(op.function for op in ops)
    kinds = tuple(op.kind.value for op in ops)
    if group.attempt.kernel is None:
        return Plan(functions, kinds)
    kernel = group.attempt.kernel
    return Plan(
        functions, kinds, kernel.rule, kernel.threads, group.attempt.shared_bytes, kernel.plan
    )
