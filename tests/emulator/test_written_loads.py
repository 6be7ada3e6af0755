"""What written kernels read, counted by the emulator: every input once, without conflicts."""

from __future__ import annotations

import pytest
from support import assert_close
from tvm import relax
from written import (
    GROUPS,
    arrays_for,
    compile_written,
    expected,
    launch,
    module,
    profiled,
    write,
)

#: How often an element may be loaded, on average: rows that overhang a block may load a few again.
MOST_LOADS = 1.05

#: Wavefronts of shared memory over the least that would do.
MOST_CONFLICTS = 1.1

#: Inputs without all of the axes that thread blocks divide: each block reads them, once.
BROADCAST = {
    "softmax_heads_mask": {1},
    "softmax_causal_mask": {1},
    "layer_norm": {1, 2},
    "add_layer_norm": {2, 3},
    "add_rms_norm": {2},
    "group_norm_silu": {1, 2},
    "rope": {1, 2},
    "bias_gelu": {1},
    "broadcasts": {1, 2},
    "embedding_norm": {1, 3, 4},  # of the table a row for each index, some of them equal
    "heads": {1},
    "split_three": {1},
    "scan": {2},
}

#: float32 as everywhere; float16 rounds each sum of 2,048 terms in another order.
TOLERANCE = {"float32": 2e-5, "float16": 1e-2}


@pytest.mark.parametrize("name", GROUPS)
def test_inputs_are_loaded_once(name, emulated):
    written = write(GROUPS[name]())
    arrays = arrays_for(written.mod, {})
    machine = compile_written(written)
    got = launch(machine, arrays, check=True)
    assert_close(got, expected(written.mod, arrays), TOLERANCE[str(got[0].dtype)])
    assert not written.plan.notes  # none of these has to read anything twice
    kernel = profiled(machine, arrays)
    for number in range(len(arrays)):
        found = kernel.argument(f"x{number}_ptr")
        assert found.bytes_loaded
        in_block = number in BROADCAST.get(name, ())
        loads = found.loads_per_element_in_block if in_block else found.loads_per_element
        assert loads <= MOST_LOADS, (number, found)
    least = kernel.total("least_transactions", "shared")
    assert kernel.total("transactions", "shared") <= MOST_CONFLICTS * least


@pytest.mark.parametrize(("length", "passes"), [(33000, 1), (131072, 3)])
def test_rows_that_no_block_can_hold_are_read_again_and_the_plan_says_so(length, passes, emulated):
    mod = module(lambda emit, x: emit(relax.op.nn.softmax(x, -1)), (2, length))
    written = write(mod)
    machine = compile_written(written)
    kernel = profiled(machine, arrays_for(mod, {}))
    assert kernel.argument("x0_ptr").loads_per_element == passes
    again = [note for note in written.plan.notes if "evaluated again" in note]
    assert bool(again) == (passes > 1)
