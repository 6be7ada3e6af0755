"""Which ops fuse: policies, the groups that they form, and a reason for every pair."""

from .base import Group, Partition, Policy, get_policy, policies, register_policy
from .dominator import Dominator
from .reasons import Decision, Reason
from .single_chain import SingleChain

__all__ = [
    "Decision",
    "Dominator",
    "Group",
    "Partition",
    "Policy",
    "Reason",
    "SingleChain",
    "get_policy",
    "policies",
    "register_policy",
]
