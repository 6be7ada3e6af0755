"""Symbolic batch and sequence: the kernels of static shapes, one build, right at several sizes."""

from __future__ import annotations

import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, legalize, run
from tvm import relax

import tvm_fusion as tf
from tvm_fusion.analysis.traffic import total
from tvm_fusion.workloads import random_inputs, small

NAMES = ("bert_layer", "gpt2_block", "llama_block", "moe_layer", "vit_block")

#: (batch, sequence): a single row, odd numbers, more rows than a thread block has.
SIZES = ((1, 1), (3, 5), (2, 33))


@pytest.mark.parametrize("name", NAMES)
def test_as_many_kernels_as_with_static_shapes(name, cuda_target):
    counted = []
    for shape, assume in (({}, {}), ({"batch": "b", "seq": "s"}, {"b": 1, "s": 16})):
        with cuda_target:
            fused = tf.OperatorFusion()(legalize(small(name, **shape)))
        totals = total(fused, assume)
        counted.append((totals.kernels_other, totals.kernels_heavy))
    assert counted[0] == counted[1]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "moe_layer"])  # top-k is sorted
def test_one_build_is_right_at_several_sizes(name, emulated):
    mod = small(name, batch="b", seq="s")
    cuda = tvm.compile(mod, make_cuda_target(), relax_pipeline="tvm_fusion")
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        llvm = tvm.compile(mod, tvm.target.Target(QUICK_LLVM))
    machine = relax.VirtualMachine(cuda, tvm.cuda(0))
    for batch, seq in SIZES:
        arrays = random_inputs(mod, seed=3, assume={"b": batch, "s": seq})
        got = machine["main"](*[tvm.runtime.tensor(a, tvm.cuda(0)) for a in arrays])
        assert_close([got.numpy()], run(llvm, arrays))
