"""Profile mode: how often inputs are read, sectors, bank conflicts, barriers."""

from __future__ import annotations

import io

import numpy as np
import pytest
from kernels import launch, relax_module, stock
from rich.console import Console
from support import run
from tvm import relax

from tvm_fusion import emulator

pytestmark = pytest.mark.usefixtures("emulated")


def test_softmax_reads_its_input_three_times(emulated):
    executable = stock(relax_module(lambda x: relax.op.nn.softmax(x), (8, 512)))
    x = np.random.default_rng(0).standard_normal((8, 512)).astype("float32")
    with emulator.configure(profile=True):
        run(executable, [x], emulated)
        kernel = emulator.profile().kernel("softmax_kernel")
    argument = kernel.argument("x0_ptr")
    assert argument.loads_per_element == 3
    assert argument.loads_per_element_in_block == 3
    assert argument.bytes_loaded == 3 * x.nbytes
    assert (kernel.launches, kernel.blocks) == (1, 8)
    assert kernel.argument("T_softmax_norm_ptr").bytes_stored == x.nbytes
    assert kernel.barriers == 8 * sum(1 for _ in kernel.barrier_lines)


COPY = """
extern "C" __global__ void k(float* y, float* x) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  y[i] = x[INDEX];
}
"""


def profile_copy(index, n=1024, blocks=True):
    x = np.arange(n, dtype="float32")
    with emulator.configure(profile=blocks):
        launch(COPY.replace("INDEX", index), n // 128, 128, np.zeros_like(x), x)
    return emulator.profile().kernel("k")


def test_a_copy_reads_its_input_once():
    kernel = profile_copy("i")
    assert kernel.argument("x").loads_per_element == 1
    (line,) = kernel.lines
    assert (line.line, line.space) == (4, "global")
    assert line.bytes_loaded == line.bytes_stored == 4096
    assert line.requests == 2 * 1024 / 32
    assert line.transactions == line.least_transactions == 2 * 4096 / 32


def test_strided_loads_touch_more_sectors():
    kernel = profile_copy("i * 8 % 1024")
    (line,) = kernel.lines
    assert line.transactions - 4096 / 32 == 1024  # each load a sector of its own
    assert line.least_transactions == 2 * 4096 / 32


def test_a_broadcast_is_loaded_once_by_each_block():
    argument = profile_copy("threadIdx.x").argument("x")
    assert argument.loads_per_element == 8
    assert argument.loads_per_element_in_block == 1
    argument = profile_copy("0").argument("x")
    assert argument.loads_per_element_in_block == 4  # once by each warp


def test_some_blocks_only():
    kernel = profile_copy("i", blocks=3)
    assert kernel.blocks == 3
    assert kernel.argument("x").bytes_loaded == 3 * 128 * 4


SHARED = """
extern "C" __global__ void k(float* y) {
  __shared__ float tile[32 * 33];
  tile[(int)threadIdx.x * STRIDE] = 1.f;
  __syncthreads();
  y[threadIdx.x] = tile[(int)threadIdx.x * STRIDE];
}
"""


@pytest.mark.parametrize(("stride", "wavefronts"), [(1, 1), (2, 2), (8, 8), (32, 32), (33, 1)])
def test_bank_conflicts(stride, wavefronts):
    with emulator.configure(profile=True, check=True):
        launch(SHARED.replace("STRIDE", str(stride)), 1, 32, np.zeros(32, "float32"))
    kernel = emulator.profile().kernel("k")
    store, load = [line for line in kernel.lines if line.space == "shared"]
    for line in (store, load):
        assert line.transactions == wavefronts
        assert line.least_transactions == 1
    assert kernel.barriers == 1
    assert kernel.barrier_lines == {5: 1}


def test_vector_accesses_take_a_wavefront_for_each_128_bytes():
    source = SHARED.replace("float tile[32 * 33]", "float4 tile[32]").replace("STRIDE", "1")
    source = source.replace("= 1.f", "= make_float4(1, 2, 3, 4)").replace("* 1];", "].x;")
    with emulator.configure(profile=True):
        launch(source, 1, 32, np.zeros(32, "float32"))
    store = next(line for line in emulator.profile().kernel("k").lines if line.bytes_stored)
    assert (store.bytes_stored, store.transactions, store.least_transactions) == (512, 4, 4)


def test_a_new_profile_begins_with_each_block_of_configure():
    profile_copy("i")
    assert profile_copy("i").launches == 1
    with pytest.raises(KeyError):
        emulator.profile().kernel("softmax_kernel")


def test_the_table_shows_lines_and_arguments():
    profile_copy("i")
    output = io.StringIO()
    Console(file=output, width=120).print(emulator.profile().table())
    assert "global" in output.getvalue()
    assert "1.00 loads per element" in output.getvalue()
