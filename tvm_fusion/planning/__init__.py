"""The plan of a group: what is decided about its kernel before it is written."""

from .kernel_plan import CannotPlan, KernelPlan
from .plan import Plan, PlanSettings, attach_plans, read_plans, read_settings
from .planner import plan_kernel

__all__ = [
    "CannotPlan",
    "KernelPlan",
    "Plan",
    "PlanSettings",
    "attach_plans",
    "plan_kernel",
    "read_plans",
    "read_settings",
]
