"""What the emulator reports: each error in a kernel made for it, and nothing in a right one."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from kernels import launch

from tvm_fusion import emulator
from tvm_fusion.emulator import EmulatorError

pytestmark = pytest.mark.usefixtures("emulated")

REVERSE = """
extern "C" __global__ void __launch_bounds__(64) k(float* y, float* x, int n) {
  __shared__ float tile[64];
  int t = (int)threadIdx.x, i = (int)blockIdx.x * 64 + t;
  tile[t] = x[i];
  __syncthreads();
  y[i] = tile[63 - t];
}
"""


def launch_reverse(source=REVERSE, grid=2, n=0, check=True, **settings):
    x = np.arange(128, dtype="float32")
    with emulator.configure(check=check, **settings):
        y, _ = launch(source, grid, 64, np.zeros_like(x), x, n)
    return y


def failure(*args, **kwargs) -> str:
    with pytest.raises(EmulatorError) as caught:
        launch_reverse(*args, **kwargs)
    return str(caught.value)


def edited(old: str, new: str) -> str:
    assert REVERSE.count(old) == 1
    return REVERSE.replace(old, new)


def test_the_kernel_itself_is_right():
    want = np.arange(128).reshape(2, 64)[:, ::-1].ravel()
    np.testing.assert_array_equal(launch_reverse(), want)
    np.testing.assert_array_equal(launch_reverse(check=False), want)


def test_an_error_names_kernel_line_block_and_thread():
    text = failure(edited("y[i] = tile[63 - t]", "y[i + 1] = tile[63 - t]"))
    assert text == (
        "out of bounds: 4-byte write at byte 512 of a device buffer of 512 bytes\n"
        "  kernel k, block (1,0,0), thread (63,0,0)\n"
        "  line 7: y[i + 1] = tile[63 - t];"
    )


MUTATIONS = {
    "missing barrier": ("  __syncthreads();\n", "\n", "data race on shared|uninitialised"),
    "read before a buffer": ("x[i]", "x[i - 1]", "out of bounds: 4-byte read at byte -4"),
    "read behind a buffer": ("x[i]", "x[i + 1]", "out of bounds: 4-byte read at byte 512"),
    "write behind shared memory": ("tile[t] =", "(tile + 1)[t] =", "out of bounds: 4-byte write"),
    "array index": ("tile[63 - t]", "tile[64 - t]", "out of bounds: index 64"),
    "misaligned vector": (
        "x[i];", "x[i]; float2 v = *(float2*)(x + 1); tile[t] += v.x + v.y;",
        "misaligned: 8-byte read at an address that is no multiple of 8",
    ),
    "uninitialised": ("tile[t] =", "if (t) tile[t] =", "uninitialised: a read of shared"),
    "overlapping blocks": ("y[i] = tile", "y[i / 2] = tile", "data race on global memory"),
    "blocks that read what others write": (
        "y[i] = tile[63 - t]", "y[i] = y[i ^ 64] + tile[63 - t]", "data race on global.*another",
    ),
    "int32 overflow": ("x[i];", "x[(i + 2147483600) & 127];", "integer overflow in an addition"),
    "overflow in a product": ("x[i];", "x[(i * n) & 127];", "integer overflow in a multipl"),
    "division by zero": ("x[i];", "x[i / (n - 100000000)];", "division by zero"),
    "divergent barrier": (
        "  __syncthreads();", "  if (t < 32) { __syncthreads(); } else {\n __syncthreads(); }",
        "divergent barrier: .*32 threads at __syncthreads in line 6.*in line 7",
    ),
    "barrier that some never reach": (
        "  __syncthreads();", "  if (t == 5) return; __syncthreads();",
        "divergent barrier: 1 of 64 threads have ended",
    ),
    "lane outside of its mask": (
        "x[i];", "x[i] + __shfl_down_sync(0xffffu, 1.f, 1);", r"lane \d+ calls it, but is not in",
    ),
    "mask with an ended lane": (
        "x[i];", "x[i]; if (t == 7) return; __shfl_xor_sync(0xffffffffu, t, 1);",
        "names lane 7, whose thread has ended",
    ),
    "trap": ("x[i];", "x[i]; if (t == 3) __trap();", r"the kernel called __trap"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_mutations_are_reported(name, order):
    old, new, message = MUTATIONS[name]
    text = failure(edited(old, new), n=100000000, order=order)
    assert re.search(message, text, re.DOTALL)
    assert re.search(r"\n  kernel k, block \(\d,0,0\), thread \(\d+,0,0\)\n  line \d+: ", text)


@pytest.mark.parametrize("name", ["divergent barrier", "lane outside of its mask", "trap"])
def test_some_mutations_are_reported_without_checks(name):
    old, new, message = MUTATIONS[name]
    assert re.search(message, failure(edited(old, new), check=False), re.DOTALL)


def test_far_out_of_bounds_is_reported_without_checks():
    text = failure(edited("x[i];", "x[i + 100000];"), check=False)
    assert re.search("out of bounds: an access at ", text)
    assert "line 5: tile[t] = x[i + 100000];" in text
    text = failure(edited("y[i] =", "y[i + 1] ="), check=False)
    assert "out of bounds: an access at byte 512" in text


def test_a_write_just_behind_a_buffer_is_reported_without_checks():
    source = 'extern "C" __global__ void k(char* y) { y[threadIdx.x] = 1; }'
    with pytest.raises(EmulatorError, match="a write past the end of a 60-byte buffer"):
        launch(source, 1, 61, np.zeros(60, "int8"))


def test_shared_memory_is_poisoned():
    source = edited("tile[t] = x[i];", "if (t > 9) tile[t] = x[i];")
    assert np.isnan(launch_reverse(source, check=False)[54:64]).all()


def test_a_deadlock_says_who_waits_where():
    wait = "if (t < 32) __syncthreads(); else if (t < 48) __shfl_xor_sync(0xffffffffu, t, 1);\n"
    wait += "else __shfl_xor_sync(0xfffffff0u, t, 1);"
    text = failure(edited("  __syncthreads();", wait), check=False)
    assert text.startswith("deadlock: ")
    assert "32 threads at __syncthreads in line 6, from (0,0,0)" in text
    assert "16 threads at __shfl_xor_sync in line 6, from (32,0,0) with mask 0xffffffff" in text
    assert "16 threads at __shfl_xor_sync in line 7, from (48,0,0) with mask 0xfffffff0" in text


@pytest.mark.parametrize("check", [False, True])
def test_the_time_limit_ends_a_loop(check):
    source = edited("x[i];", "x[i]; while (((volatile float*)x)[0] == 0.f) { }")
    started = time.monotonic()
    text = failure(source, check=check, time_limit_seconds=0.2)
    assert "longer than the time limit of 0.2 seconds" in text
    assert time.monotonic() - started < 20


def test_strict_shuffles():
    source = edited("x[i];", "x[i]; if (t < 16) __shfl_down_sync(0xffffu, 1.f, 8);")
    launch_reverse(source)
    text = failure(source, strict_shuffles=True)
    assert "__shfl_down_sync reads lane 16, which is not in its mask 0x0000ffff" in text


def test_syncwarp_orders_a_warp_and_a_shuffle_does_not():
    within = """
extern "C" __global__ void k(float* y, float* x, int n) {
  __shared__ float tile[64];
  int t = (int)threadIdx.x;
  tile[t] = x[t];
  __syncwarp();
  y[t] = tile[t ^ 1];
}
"""
    launch_reverse(within, grid=1)
    text = failure(within.replace("t ^ 1", "t ^ 32"), grid=1)
    assert "data race" in text or "uninitialised" in text  # whichever the order shows first
    shuffle = within.replace("__syncwarp()", "__shfl_xor_sync(0xffffffffu, t, 1)")
    assert "data race" in failure(shuffle, grid=1)


def test_atomics_race_with_plain_accesses_only():
    source = """
extern "C" __global__ void k(float* y, float* x, int n) {
  atomicAdd(y, 1.f);
  atomicAdd(y, 1.f);
  if (n) y[0] = 1.f;
}
"""
    assert launch_reverse(source)[0] == 2 * 2 * 64
    assert "data race on global memory" in failure(source, n=1)


def test_launch_limits():
    def refused(source, grid, block, dynamic=0, name="k"):
        with pytest.raises(EmulatorError) as caught:
            launch(source, grid, block, np.zeros(4, "float32"), dynamic=dynamic, name=name)
        return str(caught.value)

    body = "k(float* y) { y[0] = 1.f; }"
    plain = 'extern "C" __global__ void ' + body
    bounded = 'extern "C" __global__ void __launch_bounds__(64) ' + body
    assert "65 threads per block, but __launch_bounds__(64)" in refused(bounded, 1, 65)
    assert "more than 1024 threads per block" in refused(plain, 1, (1024, 2))
    assert "too large" in refused(plain, (1, 65536), 1)
    assert "more than the device's" in refused(plain, 1, 1, dynamic=200 * 1024)
    big = plain.replace("y[0] = 1.f", "__shared__ float big[13000]; big[0] = 1.f; y[0] = big[0]")
    assert "52000 bytes of static shared memory, more than 49152" in refused(big, 1, 1)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('asm volatile("wgmma.fence.sync.aligned;");', "wgmma"),
        ('asm volatile("cp.async.bulk.commit_group;");', "TMA"),
        ("cooperative_groups::this_grid().sync();", "cooperative groups"),
        ('asm volatile("barrier.cluster.arrive;");', "clusters"),
        ('asm volatile("mbarrier.arrive.b64 _, [%0];");', "mbarrier"),
        ('asm volatile("bar.sync 1, 64;");', "the PTX instruction bar.sync"),
    ],
)
def test_what_is_not_supported_is_named(text, name):
    message = failure(edited("  __syncthreads();", "  " + text))
    assert "the emulator does not support " in message
    assert name in message
    assert "line 6" in message


def test_source_that_is_no_cuda():
    assert "g++ does not take the kernels" in failure(edited("x[i];", "x[j];"))


def test_after_an_error_launches_work_again():
    for _ in range(3):
        failure(edited("  __syncthreads();\n", "\n"))
        launch_reverse()
