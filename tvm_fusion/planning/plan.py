"""Plans as data, and how they travel from FuseOps through FuseTIR to Schedule.

FuseTIR drops the attributes of Primitive functions, but module attributes survive: the plans are
one JSON text in the module attribute ``tvm_fusion.plans``, keyed by function name. Absent, damaged
or foreign plans are no error: the kernel is planned anew from the PrimFunc.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import tvm

from ..limits import Limits
from .kernel_plan import KernelPlan

_LOG = logging.getLogger("tvm_fusion.planning")

#: Module attribute that holds the plans.
PLANS_ATTR = "tvm_fusion.plans"

#: Version of the format; plans of another version are planned anew.
PLAN_VERSION = 3


@dataclass(frozen=True)
class Plan:
    """What is known about the kernel of one group before it is scheduled.

    Parameters
    ----------
    ops : tuple of str
        PrimFuncs that the group calls, in order.
    kinds : tuple of str
        Their op kinds.
    rule : str
        Schedule rule that makes one kernel of the group; empty where none was tried, since no
        GPU target was current.
    threads : int
        Threads per block under that rule; 0 where none was tried.
    shared_bytes : int
        Shared memory of the generated kernel, in bytes per block.
    kernel : KernelPlan or None
        From what the kernel is written, where the rule is ``tvm_fusion.Stitched``.
    """

    ops: tuple[str, ...]
    kinds: tuple[str, ...]
    rule: str = ""
    threads: int = 0
    shared_bytes: int = 0
    kernel: KernelPlan | None = None


@dataclass(frozen=True)
class PlanSettings:
    """What the plans of a module were made under.

    Parameters
    ----------
    limits : Limits
        The budgets.
    feedback : str
        What the compiler's figures are used for.
    compiler : str
        Whose figures had a say in the plans, with version; empty: nobody's.
    """

    limits: Limits
    feedback: str = "off"
    compiler: str = ""


def attach_plans(
    mod: tvm.IRModule, plans: Mapping[str, Plan], settings: PlanSettings
) -> tvm.IRModule:
    """A module like ``mod`` that carries ``plans`` and what they were made under.

    Plans that it carries already are kept where their function is still there.
    """
    names = {gvar.name_hint for gvar in mod.functions}
    merged = {name: plan for name, plan in read_plans(mod).items() if name in names} | {**plans}
    data = {
        "version": PLAN_VERSION,
        "limits": settings.limits.as_dict(),
        "feedback": settings.feedback,
        "compiler": settings.compiler,
        "plans": {name: asdict(plan) for name, plan in merged.items()},
    }
    return mod.with_attr(PLANS_ATTR, json.dumps(data, sort_keys=True))


def read_plans(mod: tvm.IRModule) -> dict[str, Plan]:
    """The plans that a module carries; empty where there are none that can be read."""
    return _read(mod)[0]


def read_settings(mod: tvm.IRModule) -> PlanSettings | None:
    """What the plans of a module were made under; None where it cannot be read."""
    return _read(mod)[1]


def _read(mod: tvm.IRModule) -> tuple[dict[str, Plan], PlanSettings | None]:
    text = (mod.attrs or {}).get(PLANS_ATTR)
    if text is None:
        return {}, None
    try:
        data = json.loads(str(text))
        if data["version"] != PLAN_VERSION:
            raise ValueError(f"version {data['version']}, not {PLAN_VERSION}")
        plans = {str(name): _plan(entry) for name, entry in data["plans"].items()}
        limits = Limits(**data["limits"])
        return plans, PlanSettings(limits, str(data["feedback"]), str(data["compiler"]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s cannot be read (%s): planning anew", PLANS_ATTR, error)
        return {}, None


def _plan(entry: Any) -> Plan:
    return Plan(
        ops=tuple(map(str, entry["ops"])),
        kinds=tuple(map(str, entry["kinds"])),
        rule=str(entry["rule"]),
        threads=int(entry["threads"]),
        shared_bytes=int(entry["shared_bytes"]),
        kernel=None if entry["kernel"] is None else KernelPlan.from_json(entry["kernel"]),
    )
