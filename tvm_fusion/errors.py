"""The errors that tvm_fusion raises on bad input, in one place."""

from __future__ import annotations


class TVMFusionError(Exception):
    """Base class: the input cannot be handled; the message names the thing and the remedy."""


class GraphError(TVMFusionError, ValueError):
    """A hand-built dataflow graph is not a directed acyclic graph over known ops."""


class LimitsError(TVMFusionError, ValueError):
    """A limit has a value that no kernel can meet, or that this version cannot check."""


class PolicyError(TVMFusionError, ValueError):
    """A fusion policy is unknown, registered twice, or returned groups that are not legal."""


class TargetError(TVMFusionError, ValueError):
    """A pass needs a GPU target and none is current, or the target is of another kind."""


class ModelError(TVMFusionError):
    """A model cannot be imported or compiled."""
