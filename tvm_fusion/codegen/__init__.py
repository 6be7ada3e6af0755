"""CUDA source of scheduled PrimFuncs, and the figures that can be read off it."""

from .source import CudaKernel, cuda_source, emit_cuda, parse_kernels

__all__ = ["CudaKernel", "cuda_source", "emit_cuda", "parse_kernels"]
