"""Occupancy by NVIDIA's own calculator, ``cuda_occupancy.h``, compiled for the host."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..cache import cached, key
from ..device import Device
from ..device.gpu import STATIC_SHARED_BYTES
from ..toolchain import cuda_headers, host_compiler

#: The calculator as one function. It reports the limits of a block that cannot run at all as well.
_SOURCE = r"""
#include <cuda_occupancy.h>

extern "C" int tvm_fusion_occupancy(const int* device, const int* kernel, int* result) {
  cudaOccDeviceProp properties{};
  properties.computeMajor = device[0] / 10;
  properties.computeMinor = device[0] % 10;
  properties.maxThreadsPerBlock = device[1];
  properties.maxThreadsPerMultiprocessor = device[2];
  properties.regsPerBlock = properties.regsPerMultiprocessor = device[3];
  properties.warpSize = device[4];
  properties.sharedMemPerBlock = device[5];
  properties.sharedMemPerBlockOptin = device[6];
  properties.sharedMemPerMultiprocessor = device[7];
  properties.reservedSharedMemPerBlock = device[8];
  properties.numSms = device[9];
  cudaOccFuncAttributes attributes{};
  attributes.maxThreadsPerBlock = device[1];
  attributes.numRegs = kernel[0];
  attributes.sharedSizeBytes = kernel[2];
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = kernel[3];
  attributes.numBlockBarriers = 1;
  cudaOccDeviceState state{};
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult found{};
  int error = cudaOccMaxActiveBlocksPerMultiprocessor(
      &found, &properties, &attributes, &state, kernel[1], kernel[3]);
  result[0] = found.activeBlocksPerMultiprocessor;
  result[1] = found.limitingFactors;
  return error;
}
"""

#: ``cudaOccLimitingFactor``, the scarcest first where several limit alike.
_FACTORS = (
    (0x02, "registers"),
    (0x04, "shared memory"),
    (0x01, "warps"),
    (0x08, "blocks"),
    (0x10, "barriers"),
)


@dataclass(frozen=True)
class Occupancy:
    """How full a multiprocessor can be of one kernel's thread blocks.

    Parameters
    ----------
    blocks : int
        Thread blocks that are resident at once; 0: the kernel cannot run.
    warps : int
        Their warps.
    fraction : float
        Their warps over the most that a multiprocessor holds.
    limiter : str
        What allows no more: ``"registers"``, ``"shared memory"``, ``"warps"``, ``"blocks"`` or
        ``"barriers"``; several are joined by ``", "``.
    """

    blocks: int
    warps: int
    fraction: float
    limiter: str


def occupancy(
    device: Device,
    registers: int,
    threads: int,
    static_shared_bytes: int = 0,
    dynamic_shared_bytes: int = 0,
) -> Occupancy | None:
    """Occupancy of a kernel, shared memory preferred to L1 cache.

    Parameters
    ----------
    device : Device
        The GPU.
    registers : int
        Registers of a thread.
    threads : int
        Threads of a block.
    static_shared_bytes, dynamic_shared_bytes : int
        Shared memory of a block, declared and asked for at launch, without what the system takes.

    Returns
    -------
    Occupancy or None
        None where NVIDIA's calculator cannot be compiled (no g++, no CUDA headers) or does not know
        the GPU.
    """
    calculator = _calculator()
    if calculator is None:
        return None
    described = (ctypes.c_int * 10)(
        device.compute_capability,
        device.threads_per_block,
        device.max_threads_per_multiprocessor,
        device.registers_per_multiprocessor,
        device.warp_threads,
        min(device.shared_memory_bytes, STATIC_SHARED_BYTES),
        device.opt_in_shared_memory_bytes,
        device.shared_memory_per_multiprocessor_bytes,
        device.reserved_shared_memory_bytes,
        device.multiprocessors,
    )
    kernel = (ctypes.c_int * 4)(registers, threads, static_shared_bytes, dynamic_shared_bytes)
    result = (ctypes.c_int * 2)()
    if calculator(described, kernel, result):
        return None
    blocks, factors = result
    warps = blocks * -(-threads // device.warp_threads)
    most = device.max_threads_per_multiprocessor // device.warp_threads
    limiter = ", ".join(name for bit, name in _FACTORS if factors & bit)
    return Occupancy(blocks, warps, warps / most, limiter)


@cache
def _calculator() -> ctypes._NamedFuncPointer | None:
    compiler, headers = host_compiler(), cuda_headers()
    if compiler is None or headers is None:
        return None
    header = (headers / "cuda_occupancy.h").read_text()
    name = f"occupancy-{key([compiler, header, _SOURCE])}.so"

    def make(folder: Path) -> None:
        source = folder / "occupancy.cpp"
        source.write_text(_SOURCE)
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", f"-isystem{headers}"]
        subprocess.run([*command, "-o", str(folder / name), str(source)], check=True)

    try:
        return _load(name, make)
    except (OSError, subprocess.CalledProcessError):
        return None


def _load(name: str, make: Callable[[Path], None]) -> ctypes._NamedFuncPointer:
    """The compiled calculator: from the cache, made anew if that is damaged, or without a cache."""
    for replace in (False, True):
        try:
            return ctypes.CDLL(str(cached(name, make, replace))).tvm_fusion_occupancy
        except OSError:
            continue
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder))
        return ctypes.CDLL(str(Path(folder) / name)).tvm_fusion_occupancy  # stays when it is gone
