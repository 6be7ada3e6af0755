"""One kernel from one group: schedule rules, and the checks on what they make."""

from .kernel import Kernel, launch_refusal
from .rules import candidates

__all__ = ["Kernel", "candidates", "launch_refusal"]
