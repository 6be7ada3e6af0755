"""A CUDA emulator: runs the CUDA C++ that TVM generates on the CPU, through TVM's own runtime.

>>> from tvm_fusion import emulator
>>> emulator.install()  # from now on there is a device tvm.cuda(0)  # doctest: +SKIP
>>> with emulator.configure(check=True):  # doctest: +SKIP
...     machine["main"](x)  # data races, bounds, overflow: exceptions that name the line

See ``docs/emulator.md`` for what it checks and what it cannot see. It is for Linux on x86-64, and
needs g++ and the extra ``emulator``; nothing of it is loaded before :func:`install` is called.
"""

from __future__ import annotations

from ..errors import EmulatorError
from .config import configure
from .install import install, is_active, launches, source_entry
from .profile import ArgumentProfile, KernelProfile, LineProfile, Profile, profile

__all__ = [
    "ArgumentProfile",
    "EmulatorError",
    "KernelProfile",
    "LineProfile",
    "Profile",
    "configure",
    "install",
    "is_active",
    "launches",
    "profile",
    "source_entry",
]
