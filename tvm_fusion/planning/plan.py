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

_LOG = logging.getLogger("tvm_fusion.planning")

#: Module attribute that holds the plans.
PLANS_ATTR = "tvm_fusion.plans"

#: Version of the format; plans of another version are planned anew.
PLAN_VERSION = 1


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
        Statically declared shared memory of the generated source, in bytes per block.
    """

    ops: tuple[str, ...]
    kinds: tuple[str, ...]
    rule: str = ""
    threads: int = 0
    shared_bytes: int = 0


def attach_plans(mod: tvm.IRModule, plans: Mapping[str, Plan]) -> tvm.IRModule:
    """A module like ``mod`` that carries ``plans`` besides those that it carries already."""
    merged = {**read_plans(mod), **plans}
    text = json.dumps(
        {"version": PLAN_VERSION, "plans": {name: asdict(plan) for name, plan in merged.items()}},
        sort_keys=True,
    )
    return mod.with_attr(PLANS_ATTR, text)


def read_plans(mod: tvm.IRModule) -> dict[str, Plan]:
    """The plans that a module carries; empty where there are none that can be read."""
    text = (mod.attrs or {}).get(PLANS_ATTR)
    if text is None:
        return {}
    try:
        data = json.loads(str(text))
        if data["version"] != PLAN_VERSION:
            raise ValueError(f"version {data['version']}, not {PLAN_VERSION}")
        return {str(name): _plan(entry) for name, entry in data["plans"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.warning("%s cannot be read (%s): planning anew", PLANS_ATTR, error)
        return {}


def _plan(entry: Any) -> Plan:
    return Plan(
        ops=tuple(map(str, entry["ops"])),
        kinds=tuple(map(str, entry["kinds"])),
        rule=str(entry["rule"]),
        threads=int(entry["threads"]),
        shared_bytes=int(entry["shared_bytes"]),
    )
