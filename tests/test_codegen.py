"""CUDA source: how it is read, and that reading it does not disturb other builds."""

from __future__ import annotations

import threading

import tvm

from tvm_fusion.codegen import parse_kernels
from tvm_fusion.codegen.source import CUDA_COMPILE, device_compiler

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) first_kernel(float* x);
extern "C" __global__ void __launch_bounds__(256) first_kernel(float* x) {
  __shared__ alignas(64) float a_ptr[3];
  __shared__ alignas(64) half b_ptr[5];
  __shared__ alignas(64) float4 c_ptr[2];
}
extern "C" __global__ void second_kernel(int* y) {
  extern __shared__ uchar buf_dyn_shmem[];
}
"""


def test_kernels_their_threads_and_their_shared_memory():
    first, second = parse_kernels(SOURCE)
    assert (first.name, first.threads, first.uses_dynamic_shared) == ("first_kernel", 256, False)
    assert first.static_shared_bytes == 64 + 64 + 32  # each array starts at a multiple of 64
    assert (second.name, second.threads, second.static_shared_bytes) == ("second_kernel", None, 0)
    assert second.uses_dynamic_shared


def test_a_source_without_kernels():
    assert parse_kernels("") == []


def test_only_the_thread_that_wants_text_is_spared_the_device_compiler():
    calls = []
    before = tvm.get_global_func(CUDA_COMPILE, allow_missing=True)
    tvm.register_global_func(
        CUDA_COMPILE, lambda *args: calls.append(args) or b"compiled", override=True
    )
    try:
        answers = {}

        def compile_elsewhere():
            answers["elsewhere"] = bytes(tvm.get_global_func(CUDA_COMPILE)("code", None))

        with device_compiler(lambda _source: b""):
            answers["here"] = bytes(tvm.get_global_func(CUDA_COMPILE)("code", None))
            other = threading.Thread(target=compile_elsewhere)
            other.start()
            other.join()
        answers["after"] = bytes(tvm.get_global_func(CUDA_COMPILE)("code", None))
        assert answers == {"here": b"", "elsewhere": b"compiled", "after": b"compiled"}
    finally:
        if before is not None:
            tvm.register_global_func(CUDA_COMPILE, before, override=True)
