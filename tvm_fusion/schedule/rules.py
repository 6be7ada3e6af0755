"""The schedule rules in the order they are tried: TVM's own, and ours where those fall short.

There is a guard around what TVM's rules are known to do wrong.

``docs/internals.md`` lists the errors with their upstream issues; ``tests/test_tvm_errors.py``
shows them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import dlight as dl

from ..analysis.blocks import iter_params, reduces, static_product
from ..limits import Limits
from ..planning.kernel_plan import KernelPlan
from .accumulators import accumulates_directly
from .bfloat16_constants import without_bfloat16_infinities
from .bool_vectors import without_bool_vectors
from .kernel import Kernel, inspect
from .separate import Separate
from .stitched import Stitched

_LOG = logging.getLogger("tvm_fusion.schedule")

#: Rows of a thread block in dlight's GEMV for CUDA (``dlight/gpu/gemv.py``, ``TS``).
_GEMV_ROWS = 16

#: The last architecture without tensor cores: dlight's Matmul then never tries to use them.
_NO_TENSOR_CORES = "sm_61"


def candidates(
    func: tirx.PrimFunc,
    target: tvm.target.Target,
    as_stock: bool = False,
    limits: Limits | None = None,
    plan: KernelPlan | None = None,
) -> Iterator[Kernel]:
    """Schedule a PrimFunc by each rule in turn and yield what those that apply make of it.

    Parameters
    ----------
    func : tirx.PrimFunc
        An unscheduled PrimFunc. It is not changed.
    target : tvm.target.Target
        A GPU target.
    as_stock : bool
        Yield at most what TVM's own pipeline will make of the function: the result of the first
        of its rules that applies, and nothing where that raises or is known to be wrong.
    limits : Limits, optional
        Budgets of the kernel, for the rule that plans.
    plan : KernelPlan, optional
        What it planned for this function before.

    Yields
    ------
    Kernel
        In the order in which TVM's default pipeline tries its rules. Rules that raise are passed
        over: what one of them cannot do must not end a build.
    """
    stitched = Stitched(limits, plan)
    for name, rule, applies in _rules(stitched):
        if as_stock and not name.startswith("dlight."):
            continue
        if not as_stock and not applies(func):
            continue
        try:
            space = rule(func, target)
        except Exception as error:  # TVM's rules fail by assertions, attribute and value errors
            _LOG.info("%s failed: %s", name, str(error).strip().splitlines()[-1:])
            if as_stock:
                return
            continue
        if space is None:
            continue
        made = (space[0] if isinstance(space, list) else space).mod["main"]
        mended = without_bfloat16_infinities(without_bool_vectors(made))
        by_tvm = name != _STITCHED
        if by_tvm and accumulates_directly(func) and not accumulates_directly(made):
            _LOG.info("%s inlined what follows a reduction into it", name)
        elif not as_stock or (mended.same_as(made) and applies(func)):
            finished = mended.with_attr("tirx.is_scheduled", True)
            yield inspect(finished, name, stitched.plan if name == _STITCHED else None)
        if as_stock:
            return


def _matmul(func: tirx.PrimFunc, target: tvm.target.Target) -> Any:
    """Dlight's matmul, without tensor cores where its rules for them crash the process."""
    if any(str(p.ty.dtype) in ("float16", "int8") for p in iter_params(func)):
        attrs = {**dict(target.export()), "arch": _NO_TENSOR_CORES}
        attrs.pop("tag", None)
        target = tvm.target.Target(attrs)
    return dl.gpu.Matmul().apply(func, target, False)


def _gemv(func: tirx.PrimFunc, target: tvm.target.Target) -> Any:
    return dl.gpu.GEMV().apply(func, target, False)


def _gemv_applies(func: tirx.PrimFunc) -> bool:
    """Whether dlight's GEMV has something to do, and stays inside of its output.

    It stores whole tiles of rows. Before it sees that a function reduces nothing, it tries to
    inline block after block, which takes minutes for hundreds of them.
    """
    if not reduces(func):
        return False
    outputs = list(iter_params(func))[-1:]
    count = static_product(outputs[0].ty.shape) if outputs else None
    return count is None or count % _GEMV_ROWS == 0


def _apply(rule: Any) -> Callable[[tirx.PrimFunc, tvm.target.Target], Any]:
    return lambda func, target: rule().apply(func, target, False)


def _always(_func: tirx.PrimFunc) -> bool:
    return True


_Rule = Callable[[tirx.PrimFunc, tvm.target.Target], Any]

#: Name of the rule that plans.
_STITCHED = "tvm_fusion.Stitched"


def _rules(
    stitched: Stitched,
) -> tuple[tuple[str, _Rule, Callable[[tirx.PrimFunc], bool]], ...]:
    """TVM's default order (``relax/backend/cuda/pipeline.py``), with ours in between."""
    return (
        ("dlight.Matmul", _matmul, _always),
        ("dlight.GEMV", _gemv, _gemv_applies),
        (_STITCHED, lambda func, target: stitched.apply(func, target, False), _always),
        ("dlight.Reduction", _apply(dl.gpu.Reduction), _always),
        ("dlight.GeneralReduction", _apply(dl.gpu.GeneralReduction), _always),
        ("dlight.Fallback", _apply(dl.gpu.Fallback), _always),
        ("tvm_fusion.Separate", _apply(Separate), _always),
    )
