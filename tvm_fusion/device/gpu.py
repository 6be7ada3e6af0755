"""The device figures that grouping and launch checks need, read from a TVM target."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, replace

import tvm

from ..limits import Limits
from .figures import DEFAULT_PRODUCT, PRODUCTS, compute_capability, figures_of, find_product

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
DEFAULT_TARGET = DEFAULT_PRODUCT

_DEFAULTS = figures_of(DEFAULT_PRODUCT)


@dataclass(frozen=True)
class Device:
    """The figures of one GPU.

    The first five are what a thread block is granted, and legality rests on them. The others are
    peak rates and sizes for estimates of time and occupancy, from the tables of
    `tvm_fusion.device.figures`; by default they are those of an A100 (SXM4, 40 GB).

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
    multiprocessors : int
        Streaming multiprocessors.
    memory_bytes_per_second : float
        Peak bandwidth of the device memory.
    fp32_flops_per_second : float
        Peak rate of 32-bit floating-point operations outside the tensor cores, at the boost clock.
        A multiply-add counts as two.
    special_ops_per_second : float
        Peak rate of results of the special function units (``MUFU``: exp2, log2, reciprocal,
        reciprocal square root, sine, cosine), at the boost clock.
    launch_seconds : float
        What one more kernel costs in a stream of short ones launched back to back: an estimate, the
        same for all GPUs.
    registers_per_multiprocessor : int
        32-bit registers of a multiprocessor.
    shared_memory_per_multiprocessor_bytes : int
        Shared memory of a multiprocessor, in bytes. Each resident thread block takes 1 KiB of it
        for the system from compute capability 8.0 on.
    max_threads_per_multiprocessor : int
        Most threads resident on a multiprocessor.
    max_blocks_per_multiprocessor : int
        Most thread blocks resident on a multiprocessor.
    max_registers_per_thread : int
        Most registers that one thread gets.
    l2_cache_bytes : int
        Size of the L2 cache, in bytes.
    compute_capability : int
        Times ten: 80 for 8.0.
    """

    name: str = "sm_80"
    shared_memory_bytes: int = STATIC_SHARED_BYTES
    opt_in_shared_memory_bytes: int = STATIC_SHARED_BYTES
    threads_per_block: int = 1024
    warp_threads: int = 32
    multiprocessors: int = _DEFAULTS.multiprocessors
    memory_bytes_per_second: float = _DEFAULTS.memory_bytes_per_second
    fp32_flops_per_second: float = _DEFAULTS.fp32_flops_per_second
    special_ops_per_second: float = _DEFAULTS.special_ops_per_second
    launch_seconds: float = _DEFAULTS.launch_seconds
    registers_per_multiprocessor: int = _DEFAULTS.registers_per_multiprocessor
    shared_memory_per_multiprocessor_bytes: int = _DEFAULTS.shared_memory_per_multiprocessor_bytes
    max_threads_per_multiprocessor: int = _DEFAULTS.max_threads_per_multiprocessor
    max_blocks_per_multiprocessor: int = _DEFAULTS.max_blocks_per_multiprocessor
    max_registers_per_thread: int = _DEFAULTS.max_registers_per_thread
    l2_cache_bytes: int = _DEFAULTS.l2_cache_bytes
    compute_capability: int = PRODUCTS[DEFAULT_PRODUCT].capability

    @staticmethod
    def from_target(target: tvm.target.Target, quiet: bool = False) -> Device:
        """Read the figures of ``target``; what it does not say gets a default and one warning.

        The rates and sizes are those of the product that the target's tag names, else of the one
        that stands for its ``arch``, else of the A100: they never warn, since nothing becomes
        illegal by them. TVM forgets the tag of ``Target("nvidia/nvidia-a10")`` and remembers that
        of ``Target({"tag": "nvidia/nvidia-a10"})``.

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
        tag, arch, l2_cache = _identity(target)
        figures = figures_of(find_product(tag, arch, l2_cache))
        if l2_cache is not None:
            figures = replace(figures, l2_cache_bytes=l2_cache)
        shared = int(attrs.get("max_shared_memory_per_block") or STATIC_SHARED_BYTES)
        return Device(
            name=tag or arch or target.kind.name,
            shared_memory_bytes=shared,
            opt_in_shared_memory_bytes=max(shared, _opt_in_bytes(arch)),
            threads_per_block=int(attrs.get("max_threads_per_block") or 1024),
            warp_threads=int(attrs.get("thread_warp_size") or 32),
            compute_capability=_capability(tag, arch),
            **asdict(figures),
        )

    @staticmethod
    def source(target: tvm.target.Target) -> str:
        """Where the figures of a target come from, as a sentence."""
        tag, arch, l2_cache = _identity(target)
        product = find_product(tag, arch, l2_cache)
        if tag == product:
            return f"the target's tag {tag}"
        if compute_capability(arch) is not None:
            return f"architecture {arch}, for which {product} stands"
        return f"{product}, since the target names neither a known tag nor an architecture"

    @property
    def reserved_shared_memory_bytes(self) -> int:
        """Shared memory that the system takes of each resident thread block, in bytes.

        Source: CUDA C++ Programming Guide 13.0, section on compute capability 8.x.
        """
        return 1024 if self.compute_capability >= 80 else 0

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


def _identity(target: tvm.target.Target) -> tuple[str, str, int | None]:
    """The tag, the architecture and the L2 cache in bytes, by which a product is found."""
    attrs = target.attrs
    l2_cache = int(attrs.get("l2_cache_size_bytes") or 0) or None
    return str(target.tag), str(attrs.get("arch") or ""), l2_cache


def _capability(tag: str, arch: str) -> int:
    """Compute capability times ten: of the product that the tag names, else of the architecture."""
    if tag in PRODUCTS:
        return PRODUCTS[tag].capability
    return compute_capability(arch) or PRODUCTS[DEFAULT_PRODUCT].capability


def _opt_in_bytes(arch: str) -> int:
    capability = compute_capability(arch)
    if capability is None:
        return STATIC_SHARED_BYTES
    return OPT_IN_SHARED_KIB.get(capability, 48) * 1024
