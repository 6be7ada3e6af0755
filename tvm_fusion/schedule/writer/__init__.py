"""Writes the TIR of one kernel from a group's PrimFunc and its plan."""

from .kernel import write_kernel

__all__ = ["write_kernel"]
