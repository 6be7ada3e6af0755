"""The plan of a group: what is decided about its kernel before it is written."""

from .plan import Plan, attach_plans, read_limits, read_plans

__all__ = ["Plan", "attach_plans", "read_limits", "read_plans"]
