"""The device figures that grouping and launch checks need, read from a TVM target."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass

import tvm

from ..limits import Limits

#: Shared memory a thread block may ask for with ``cudaFuncAttributeMaxDynamicSharedMemorySize``,
#: by compute capability, in KiB. Source: CUDA C++ Programming Guide 13.0, table "Technical
#: Specifications per Compute Capability", row "Maximum amount of shared memory per thread block".
OPT_IN_SHARED_KIB = {
    70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227,
    110: 227, 120: 99, 121: 99,
}  # fmt: skip

#: Statically declared shared memory never exceeds this, on every architecture (same source).
STATIC_SHARED_BYTES = 48 * 1024

#: Source: CUDA C++ Programming Guide 13.0, same table: grid and block extents.
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)

#: The target whose figures stand in where no GPU target is current.
DEFAULT_TARGET = "nvidia/nvidia-a100"


@dataclass(frozen=True)
class Device:
    """The figures of one GPU.

    Parameters
    ----------
    name : str
        The target they come from.
    shared_memory_bytes : int
        Shared memory that a thread block gets without asking, in bytes.
    opt_in_shared_memory_bytes : int
        Shared memory that it gets on request, in bytes.
    threads_per_block : int
        Most threads in a thread block.
    warp_threads : int
        Threads in a warp.
    """

    name: str = "sm_80"
    shared_memory_bytes: int = STATIC_SHARED_BYTES
    opt_in_shared_memory_bytes: int = STATIC_SHARED_BYTES
    threads_per_block: int = 1024
    warp_threads: int = 32

    @staticmethod
    def from_target(target: tvm.target.Target, quiet: bool = False) -> Device:
        """Read the figures of ``target``; what it does not say gets a default and one warning.

        Parameters
        ----------
        target : tvm.target.Target
            Any target; those that are no GPU get the defaults, which keeps grouping safe.
        quiet : bool
            Do not warn: somebody else does in the same build.

        Returns
        -------
        Device
        """
        attrs = target.attrs
        missing = [
            key
            for key in ("max_shared_memory_per_block", "max_threads_per_block")
            if attrs.get(key) is None
        ]
        if missing and target.kind.name == "cuda" and not quiet:
            warnings.warn(
                f"target {target.kind.name!r} does not say {', '.join(missing)}: "
                f"assuming {STATIC_SHARED_BYTES} bytes of shared memory and 1024 threads per "
                f"block; name a tag like {DEFAULT_TARGET!r} to be exact",
                stacklevel=2,
            )
        arch = str(attrs.get("arch") or "")
        shared = int(attrs.get("max_shared_memory_per_block") or STATIC_SHARED_BYTES)
        return Device(
            name=str(target.attrs.get("tag") or arch or target.kind.name),
            shared_memory_bytes=shared,
            opt_in_shared_memory_bytes=max(shared, _opt_in_bytes(arch)),
            threads_per_block=int(attrs.get("max_threads_per_block") or 1024),
            warp_threads=int(attrs.get("thread_warp_size") or 32),
        )

    def shared_memory_budget(self, limits: Limits) -> int:
        """Bytes of shared memory that one thread block may use under ``limits``.

        A limit above what the device grants gives what the device grants.
        """
        wanted = limits.shared_memory_bytes
        if wanted is None:
            return self.shared_memory_bytes
        if isinstance(wanted, str):
            return self.opt_in_shared_memory_bytes
        return min(wanted, self.opt_in_shared_memory_bytes)


def _opt_in_bytes(arch: str) -> int:
    match = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    if not match:
        return STATIC_SHARED_BYTES
    return OPT_IN_SHARED_KIB.get(int(match[1]), 48) * 1024
