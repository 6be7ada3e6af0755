"""One kernel from one group: schedule rules, and the checks on what they make."""

from .kernel import Kernel, dynamic_shared_bytes, launch_refusal
from .rules import candidates
from .stitched import Stitched

__all__ = ["Kernel", "Stitched", "candidates", "dynamic_shared_bytes", "launch_refusal"]
