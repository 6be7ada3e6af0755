"""The resources of the kernel of one PrimFunc, compiled or estimated."""

from __future__ import annotations

from dataclasses import dataclass

from ..device import Device
from .compilers import Compiler
from .occupancy import occupancy
from .resources import KernelResources, compile_resources
from .source import CudaKernel, parse_kernels


@dataclass(frozen=True)
class KernelFigures:
    """What a kernel takes, and how many of its thread blocks a multiprocessor holds.

    Where the host chooses among several kernels, those of the one with the least occupancy.

    Parameters
    ----------
    registers : int or None
        Registers of a thread; None where nobody knows.
    spill_bytes : int or None
        Bytes that are spilled and read back for want of registers, in the text of the kernel.
    shared_bytes : int
        Shared memory of a thread block, declared and asked for at launch.
    threads : int or None
        Threads of a block; None where the source does not say.
    occupancy : float or None
        Resident warps over the most that a multiprocessor holds; None where NVIDIA's calculator is
        not there.
    limiter : str
        What allows no more; empty where the occupancy is not known.
    compiler : str
        Who says so, with version; empty: estimates of the plan.
    """

    registers: int | None
    spill_bytes: int | None
    shared_bytes: int
    threads: int | None
    occupancy: float | None
    limiter: str
    compiler: str

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler said so."""
        return bool(self.compiler)


#: What is known of a kernel of which nothing is known.
NO_FIGURES = KernelFigures(None, None, 0, None, None, "", "")


@dataclass(frozen=True)
class KernelText:
    """A kernel to be measured.

    Parameters
    ----------
    source : str
        Its CUDA source.
    dynamic_shared_bytes : int
        What it asks for at launch.
    estimated_registers : int or None
        Of the plan, if there is one.
    estimated_spill_bytes : int or None
        0 where the plan is safe.
    """

    source: str
    dynamic_shared_bytes: int = 0
    estimated_registers: int | None = None
    estimated_spill_bytes: int | None = None


def measure_kernels(
    texts: list[KernelText], device: Device, arch: str, compiler: Compiler | None
) -> list[KernelFigures]:
    """The figures of kernels, by the compiler where there is one.

    Parameters
    ----------
    texts : list of KernelText
        The kernels.
    device : Device
        The GPU.
    arch : str
        Its architecture, like ``"sm_90a"``.
    compiler : Compiler or None
        Who is asked; None: figures are estimates. So are those of a kernel that it does not take.
    """
    found: list[dict[str, KernelResources]] = [{} for _ in texts]
    if compiler is not None:
        answers = compile_resources([text.source for text in texts], arch, compiler)
        found = [answer if isinstance(answer, dict) else {} for answer in answers]
    return [_figures(text, resources, device) for text, resources in zip(texts, found, strict=True)]


def _figures(
    text: KernelText, resources: dict[str, KernelResources], device: Device
) -> KernelFigures:
    kernels = [
        _kernel(kernel, text, resources.get(kernel.name), device)
        for kernel in parse_kernels(text.source)
    ]
    return min(kernels, key=_worst_first, default=NO_FIGURES)


def _worst_first(figures: KernelFigures) -> tuple[float, float, int]:
    occupied = 1.0 if figures.occupancy is None else figures.occupancy
    return occupied, -(figures.spill_bytes or 0), -(figures.registers or 0)


def _kernel(
    kernel: CudaKernel, text: KernelText, compiled: KernelResources | None, device: Device
) -> KernelFigures:
    dynamic = text.dynamic_shared_bytes if kernel.uses_dynamic_shared else 0
    static = compiled.static_shared_bytes if compiled else kernel.static_shared_bytes
    registers = compiled.registers if compiled else text.estimated_registers
    fits = None
    if registers is not None and kernel.threads is not None:
        fits = occupancy(device, registers, kernel.threads, static, dynamic)
    return KernelFigures(
        registers=registers,
        spill_bytes=compiled.spill_bytes if compiled else text.estimated_spill_bytes,
        shared_bytes=static + dynamic,
        threads=kernel.threads,
        occupancy=fits.fraction if fits else None,
        limiter=fits.limiter if fits else "",
        compiler=compiled.compiler if compiled else "",
    )
