"""How long a planned kernel takes, by a roofline: launch, memory or arithmetic, and parallelism.

The figures compare groupings of the same work; they are no forecast. Arithmetic is granted in
proportion to the threads that the kernel has, and a thread keeps a limited number of loaded bytes
on their way (Little's law), so a kernel of few thread blocks never sees the full bandwidth.
"""

from __future__ import annotations

import re

from ..analysis.extents import product
from ..analysis.nests import Nests
from ..device import Device
from ..planning.kernel_plan import FLAT, KernelPlan

#: Time from a load to its value, an estimate of the same order for all recent GPUs, in seconds.
_LATENCY_SECONDS = 600e-9

#: Bytes that one thread keeps on their way: four loads of 16 bytes.
_BYTES_IN_FLIGHT = 64

#: What one multiprocessor takes from or gives to the L2 cache: 64 bytes a clock, at 1.4 GHz.
_MULTIPROCESSOR_BYTES_PER_SECOND = 90e9

#: Threads of a multiprocessor that keep its arithmetic units busy: 128 units, four cycles each, two
#: independent operations in a thread.
_BUSY_THREADS = 256

#: What a symbolic extent is taken for, as the plan's own figures take it.
_SYMBOL = 128


def kernel_seconds(plan: KernelPlan, group: Nests, device: Device) -> float:
    """Modelled time of a kernel, its launch included.

    Parameters
    ----------
    plan : KernelPlan
        The kernel.
    group : Nests
        What it was planned from.
    device : Device
        Rates of the GPU.
    """
    blocks = thread_blocks(plan, group)
    resident = device.multiprocessors * device.max_threads_per_multiprocessor
    threads = min(blocks * plan.threads_per_block, resident)
    through = min(blocks, device.multiprocessors) * _MULTIPROCESSOR_BYTES_PER_SECOND
    bandwidth = min(device.memory_bytes_per_second, through)
    moving = (plan.bytes_read + plan.bytes_written) / bandwidth
    waiting = plan.bytes_read / (threads * _BYTES_IN_FLIGHT) * _LATENCY_SECONDS
    busy = min(1.0, threads / (device.multiprocessors * _BUSY_THREADS))
    computing = plan.operations / (device.fp32_flops_per_second / 2 * busy)
    return device.launch_seconds + max(moving, waiting, computing)


def thread_blocks(plan: KernelPlan, group: Nests) -> int:
    """Thread blocks of a kernel, symbolic extents taken as 128."""
    if plan.mode == FLAT:
        points = max(product(group.tensors[t].shape).estimate() for t in group.outputs)
        return max(1, -(-points // (plan.vector * plan.threads_per_block)))
    return max(1, -(-_estimate(plan.rows) // plan.rows_per_block))


def _estimate(extent: str) -> int:
    """The value of an extent that is given as a product in text."""
    flat, changed = extent, 1
    while changed:  # a factor in brackets is one symbol
        flat, changed = re.subn(r"\([^()]*\)", "symbol", flat)
    value = 1
    for factor in flat.split("*"):
        value *= int(factor) if factor.isdigit() else _SYMBOL
    return value
