"""The plan of a group: what is decided about its kernel before it is written."""

from .kernel_plan import CannotPlan, KernelPlan
from .plan import Plan, attach_plans, read_limits, read_plans
from .planner import plan_kernel

__all__ = [
    "CannotPlan",
    "KernelPlan",
    "Plan",
    "attach_plans",
    "plan_kernel",
    "read_limits",
    "read_plans",
]
