"""What the GPU grants: figures with units in their names and a source per entry."""

from .gpu import Device

__all__ = ["Device"]
