"""CUDA source of scheduled PrimFuncs, what can be read off it, and what the compiler says of it."""

from .compilers import Compiler, DeviceCode, find_compiler
from .figures import KernelFigures, KernelText, measure_kernels
from .occupancy import Occupancy, occupancy
from .resources import KernelResources, compile_resources
from .sass import InstructionFacts, instruction_facts
from .source import CudaKernel, cuda_source, emit_cuda, parse_kernels

__all__ = [
    "Compiler",
    "CudaKernel",
    "DeviceCode",
    "InstructionFacts",
    "KernelFigures",
    "KernelResources",
    "KernelText",
    "Occupancy",
    "compile_resources",
    "cuda_source",
    "emit_cuda",
    "find_compiler",
    "instruction_facts",
    "measure_kernels",
    "occupancy",
    "parse_kernels",
]
