"""Errors of TVM that we guard against, each shown, so that we notice when one is mended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tvm
from conftest import make_cuda_target
from support import legalize, prim_funcs
from tvm import relax, tirx
from tvm.s_tir import dlight as dl
from tvm.script import ir as I
from tvm.script import relax as R

import tvm_fusion as tf
from tvm_fusion.analysis.traffic import measure
from tvm_fusion.codegen import emit_cuda
from tvm_fusion.policy import Group, Partition
from tvm_fusion.schedule import candidates
from tvm_fusion.schedule.accumulators import accumulates_directly


@I.ir_module
class HalfMatmul:
    @R.function
    def main(x: R.Tensor((128, 128), "float16")):
        with R.dataflow():
            y = R.matmul(x, x)
            R.output(y)
        return y


def _crash() -> None:
    with make_cuda_target():
        dl.ApplyDefaultSchedule(dl.gpu.Matmul())(legalize(HalfMatmul))


def test_dlight_crashes_on_float16_matmuls_and_ours_do_not(cuda_target):
    code = "import test_tvm_errors; test_tvm_errors._crash()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=False
    )
    assert done.returncode != 0, "mended upstream: let Matmul use tensor cores again"
    (func,) = prim_funcs(legalize(HalfMatmul)).values()
    first = next(candidates(func, cuda_target))
    assert (first.rule, first.kernels) == ("dlight.Matmul", 1)


@I.ir_module
class ByteMatmul:
    @R.function
    def main(x: R.Tensor((128, 128), "int8"), w: R.Tensor((128, 128), "int8")):
        with R.dataflow():
            y = R.matmul(x, w, out_dtype="int32")
            R.output(y)
        return y


def test_int8_matmuls_stay_away_from_the_tensor_core_rule_too(cuda_target):
    (func,) = prim_funcs(legalize(ByteMatmul)).values()
    first = next(candidates(func, cuda_target))
    assert (first.rule, first.kernels) == ("dlight.Matmul", 1)


@I.ir_module
class SmallGemv:
    @R.function
    def main(a: R.Tensor((2, 2), "float32"), b: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.matmul(a, b)
            R.output(y)
        return y


def test_dlight_gemv_stores_out_of_bounds_and_is_passed_over(cuda_target):
    (func,) = prim_funcs(legalize(SmallGemv)).values()
    stock = dl.gpu.GEMV().apply(func, cuda_target, False).mod["main"]
    source = emit_cuda(stock, cuda_target)
    assert "__launch_bounds__(512)" in source  # 16 rows of 32 threads for an output of 2
    assert "matmul_ptr[((int)threadIdx.y)] = " in source, "mended upstream"
    assert "dlight.GEMV" not in [kernel.rule for kernel in candidates(func, cuda_target)]


@I.ir_module
class TwoOutputs:
    @R.function
    def main(x: R.Tensor((64, 128), "float32")):
        with R.dataflow():
            s = R.sum(x, axis=1, keepdims=True)
            y = R.divide(x, s)
            R.output(y, s)
        return (y, s)


def test_dlight_raises_on_groups_with_two_outputs(cuda_target):
    class Everything:
        name = "everything"

        def partition(self, graph, limits, device, check=None):
            return Partition((Group(graph.topological_order),), ())

    with tvm.target.Target("llvm"):  # no schedule is tried on a CPU target
        mod = tvm.transform.Sequential(
            [tf.transform.FuseOps(policy=Everything()), relax.transform.FuseTIR()]
        )(legalize(TwoOutputs))
    (func,) = prim_funcs(mod).values()
    with pytest.raises(Exception, match="ScheduleError"):
        dl.gpu.GeneralReduction().apply(func, cuda_target, False)
    assert "dlight.GeneralReduction" not in [k.rule for k in candidates(func, cuda_target)]


@I.ir_module
class MaskedMatmul:
    @R.function
    def main(
        x: R.Tensor((64, 64), "float32"),
        w: R.Tensor((64, 64), "float32"),
        m: R.Tensor((64, 64), "bool"),
    ):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.where(m, y, x)
            R.output(z)
        return z


def test_vectors_of_bool_are_read_as_vectors_of_short(cuda_target):
    with cuda_target:
        legal = legalize(MaskedMatmul)
        stock = tvm.transform.Sequential(
            [
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
                dl.ApplyDefaultSchedule(dl.gpu.Matmul()),
            ]
        )(legal)
        ours = tf.OperatorFusion()(legal)
    (stock_func,) = prim_funcs(stock).values()
    (our_func,) = prim_funcs(ours).values()
    assert "*(ushort2*)(m_ptr" in emit_cuda(stock_func, cuda_target), "mended upstream"
    assert "ushort2*)(m_ptr" not in emit_cuda(our_func, cuda_target)


@I.ir_module
class FullMax:
    @R.function
    def main(x: R.Tensor((64, 128), "float32")):
        with R.dataflow():
            y = R.max(x)
            z = R.negative(y)
            R.output(z)
        return z


def test_dlight_needs_two_kernels_for_what_follows_a_full_reduction(cuda_target):
    with cuda_target:
        mod = tvm.transform.Sequential([tf.transform.FuseOps(), relax.transform.FuseTIR()])(
            legalize(FullMax)
        )
    (func,) = prim_funcs(mod).values()
    stock = dl.gpu.GeneralReduction().apply(func, cuda_target, False)
    assert stock is None or measure(stock.mod["main"]).kernels == 2, "mended upstream"
    first = next(kernel for kernel in candidates(func, cuda_target) if kernel.kernels == 1)
    assert first.rule == "tvm_fusion.Stitched"


def test_default_schedule_changes_the_callers_module(cuda_target):
    mod = legalize(FullMax)
    before = mod.script()
    with cuda_target:
        dl.ApplyDefaultSchedule(dl.gpu.Fallback())(mod)
    assert mod.script() != before, "mended upstream: Schedule may use it"


def test_the_phases_of_the_cuda_pipeline_cannot_be_asked_for(cuda_target):
    with pytest.raises(AttributeError):
        relax.pipeline.dataflow_lower_passes(cuda_target)


@I.ir_module
class OuterProduct:
    @R.function
    def main(x: R.Tensor((8, 1), "float32"), w: R.Tensor((1, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.tanh(y)
            R.output(z)
        return z


@I.ir_module
class SelectedOuterProduct:
    @R.function
    def main(x: R.Tensor((8, 1), "float32"), w: R.Tensor((1, 32), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.where(R.greater(y, R.const(0.1, "float32")), w, R.const(0.5, "float32"))
            R.output(z)
        return z


@pytest.mark.parametrize("mod", [OuterProduct, SelectedOuterProduct])
def test_what_follows_a_reduction_over_one_element_is_inlined_into_it_wrongly(mod, cuda_target):
    with cuda_target:
        stock = tvm.transform.Sequential(
            [
                relax.transform.AnnotateTIROpPattern(),
                relax.transform.FuseOps(),
                relax.transform.FuseTIR(),
            ]
        )(legalize(mod))
        ours = tf.OperatorFusion()(legalize(mod))
    (func,) = prim_funcs(stock).values()
    made = dl.gpu.Fallback().apply(func, cuda_target, False).mod["main"]
    assert not accumulates_directly(made), "mended upstream"
    assert "dlight.Fallback" not in [kernel.rule for kernel in candidates(func, cuda_target)]
    assert all(accumulates_directly(f) for f in prim_funcs(ours).values())


def test_argmax_and_ordinary_sums_accumulate_directly(cuda_target):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 128), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(
                relax.Tuple([builder.emit(op(x, 1)) for op in (relax.op.argmax, relax.op.sum)])
            )
        builder.emit_func_output(out)
    for func in prim_funcs(legalize(builder.get())).values():
        assert accumulates_directly(func)
        assert list(candidates(func, cuda_target))


def test_the_analyzer_puts_expressions_in_the_place_of_names():
    analyzer = tvm.sym.Analyzer()
    x, name = tirx.Var("x", "float32"), tirx.Var("name", "float32")
    analyzer.bind(name, x * x)
    assert "name" not in str(analyzer.simplify(name + name)), "mended upstream: Bind is enough"


@I.ir_module
class MaskedByInfinity:
    @R.function
    def main(x: R.Tensor((256, 64), "bfloat16")):
        with R.dataflow():
            none = R.equal(x, R.const(float("-inf"), "bfloat16"))
            kept = R.where(none, R.const(0.5, "bfloat16"), x)
            R.output(kept)
        return kept


def test_bfloat16_infinities_are_printed_as_what_no_compiler_takes(cuda_target):
    stock = tf.codegen.cuda_source(tvm.compile(MaskedByInfinity, cuda_target))
    if "-inff" not in stock:
        pytest.fail("mended upstream: schedule/bfloat16_constants.py can go")
    compiler = tf.codegen.find_compiler("nvrtc")
    with pytest.raises(tf.CompilerError, match="inff"):
        compiler.compile(stock, "sm_80")
    ours = tvm.compile(MaskedByInfinity, cuda_target, relax_pipeline="tvm_fusion")
    compiler.compile(tf.codegen.cuda_source(ours), "sm_80")
