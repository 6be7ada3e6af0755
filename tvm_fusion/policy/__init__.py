"""Which ops fuse: policies, the groups that they form, and a reason for every pair."""

from .base import DEFAULT_POLICY, Group, Partition, Policy, get_policy, policies, register_policy
from .dominator import Dominator
from .reasons import Decision, Reason, SiblingDecision
from .single_chain import SingleChain
from .stitch import Stitch

__all__ = [
    "DEFAULT_POLICY",
    "Decision",
    "Dominator",
    "Group",
    "Partition",
    "Policy",
    "Reason",
    "SiblingDecision",
    "SingleChain",
    "Stitch",
    "get_policy",
    "policies",
    "register_policy",
]
