"""How launches run: order of threads, checks, profiling; set for the length of a ``with`` block."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

_ORDERS = ("forward", "reverse", "random")

#: A launch that takes longer than this is stopped.
DEFAULT_TIME_LIMIT_SECONDS = 600.0


class NativeSettings(ctypes.Structure):
    """`EmulatorSettings` of ``runtime/driver.cpp``."""

    _fields_ = [
        ("order", ctypes.c_int),
        ("seed", ctypes.c_uint),
        ("check", ctypes.c_int),
        ("strict_shuffles", ctypes.c_int),
        ("profile_blocks", ctypes.c_long),
        ("time_limit_seconds", ctypes.c_double),
        ("cores", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class Settings:
    """What :func:`configure` sets, with the same names."""

    order: str = "forward"
    seed: int = 0
    check: bool = False
    profile: bool | int = False
    time_limit_seconds: float | None = DEFAULT_TIME_LIMIT_SECONDS
    strict_shuffles: bool = False

    def __post_init__(self) -> None:
        if self.order not in _ORDERS:
            raise ValueError(f"order {self.order!r}: choose one of {', '.join(_ORDERS)}")
        if not isinstance(self.profile, bool) and self.profile < 1:
            raise ValueError(f"profile={self.profile}: give True, False or a number of blocks")
        if self.time_limit_seconds is not None and self.time_limit_seconds <= 0:
            seconds = self.time_limit_seconds
            raise ValueError(f"time_limit_seconds={seconds}: give a positive number")

    def to_native(self) -> NativeSettings:
        """The same for the runtime."""
        return NativeSettings(
            order=_ORDERS.index(self.order),
            seed=self.seed % 2**32,
            check=self.check,
            strict_shuffles=self.strict_shuffles,
            profile_blocks=-1 if self.profile is True else int(self.profile),
            time_limit_seconds=self.time_limit_seconds or 0.0,
            cores=len(os.sched_getaffinity(0)),
        )


_current = Settings()


def current() -> Settings:
    """The settings of the next launch."""
    return _current


def apply(settings: Settings) -> None:
    """Make ``settings`` those of the next launch."""
    from .install import native

    global _current
    _current = settings
    native().emulator_configure(ctypes.byref(settings.to_native()))


@contextmanager
def configure(
    *,
    order: str | None = None,
    seed: int | None = None,
    check: bool | None = None,
    profile: bool | int | None = None,
    time_limit_seconds: float | None = None,
    strict_shuffles: bool | None = None,
) -> Iterator[None]:
    """Change how launches run while the block lasts. What is not given stays as it is.

    Parameters
    ----------
    order : {"forward", "reverse", "random"}
        In which order blocks, warps and lanes run between two points where they wait. A right
        kernel gives the same result in any.
    seed : int
        Of the random order.
    check : bool
        Find data races, accesses out of bounds or misaligned, reads of uninitialised shared
        memory and integer overflow; much slower.
    profile : bool or int
        Count memory traffic of all blocks of each launch, or of the first so many; a new profile
        begins with the block. Read it with :func:`tvm_fusion.emulator.profile`.
    time_limit_seconds : float
        A launch that takes longer is stopped.
    strict_shuffles : bool
        A shuffle that reads a lane outside of its mask is an error. TVM's reductions do that in
        blocks of fewer than 32 threads, without using what they read.

    Raises
    ------
    EmulatorError
        The emulator is not installed.
    ValueError
        A value that means nothing.
    """
    from .install import native

    given: dict[str, Any] = {
        "order": order,
        "seed": seed,
        "check": check,
        "profile": profile,
        "time_limit_seconds": time_limit_seconds,
        "strict_shuffles": strict_shuffles,
    }
    before = _current
    settings = replace(before, **{name: v for name, v in given.items() if v is not None})
    if profile:
        native().emulator_reset_profile()
    apply(settings)
    try:
        yield
    finally:
        apply(before)
