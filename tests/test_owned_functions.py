"""What belongs to other passes comes out as it went in."""

from __future__ import annotations

import tvm
from support import calls, legalize, prim_funcs
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fusion as tf


@I.ir_module
class WithCodegen:
    @R.function
    def fused_matmul_cublas(
        x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")
    ) -> R.Tensor((8, 8), "float32"):
        R.func_attr({"Codegen": "cublas", "global_symbol": "fused_matmul_cublas"})

        @R.function
        def inner(a: R.Tensor((8, 8), "float32"), b: R.Tensor((8, 8), "float32")) -> R.Tensor(
            (8, 8), "float32"
        ):
            R.func_attr({"Composite": "cublas.matmul"})
            with R.dataflow():
                c = R.matmul(a, b)
                R.output(c)
            return c

        result = inner(x, w)
        return result

    @R.function
    def main(
        x: R.Tensor((8, 8), "float32"),
        t: R.Tuple(R.Tensor((8, 8), "float32"), R.Tensor((8, 8), "float32")),
        w: R.Tensor((8, 8), "float32"),
    ):
        R.func_attr({"num_input": 1})
        cls = WithCodegen
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c: R.Tensor((8, 8), "float32") = cls.fused_matmul_cublas(b, w)
            d = t[1]
            e = R.add(c, d)
            f = R.exp(e)
            R.output(f)
        return f


def test_codegen_functions_parameters_and_num_input_are_untouched(cuda_target):
    with cuda_target:
        legal = legalize(WithCodegen)
        fused = tf.OperatorFusion()(legal)
    name = "fused_matmul_cublas"
    assert fused[name].script() == legal[name].script()
    assert [p.name for p in fused["main"].params] == ["x", "t", "w"]
    assert fused["main"].attrs["num_input"] == 1
    assert isinstance(fused["main"].params[1].ty, relax.TupleType)
    assert calls(fused["main"]) == ["fused_tir_exp_add", name, "fused_add_tir_exp"]


@I.ir_module
class WithScheduled:
    @T.prim_func(private=True, s_tir=True)
    def mine(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
        T.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        for i in T.thread_binding(64, thread="threadIdx.x"):
            with T.sblock("mine"):
                v = T.axis.spatial(64, i)
                T.reads(x[v])
                T.writes(y[v])
                y[v] = x[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor((64,), "float32")):
        cls = WithScheduled
        with R.dataflow():
            a = R.exp(x)
            b = R.call_tir(cls.mine, (a,), out_ty=R.Tensor((64,), "float32"))
            c = R.exp(b)
            d = R.add(c, b)
            R.output(d)
        return d


def test_scheduled_functions_are_left_as_they_are(cuda_target):
    with cuda_target, tf.record() as trace:
        fused = tf.OperatorFusion()(legalize(WithScheduled))
    tvm.ir.assert_structural_equal(
        prim_funcs(fused)["mine"].body, prim_funcs(WithScheduled)["mine"].body
    )
    (decision,) = [d for d in trace.decisions if d.producer == "a"]
    assert decision.reason.code == "blocked"
    assert "already scheduled" in decision.reason.message


def test_a_function_marked_opaque_is_left_alone(cuda_target):
    legal = legalize(WithScheduled)
    functions = {
        g: f.with_attr("op_pattern", 8) if g.name_hint == "add" else f
        for g, f in legal.functions.items()
    }
    with cuda_target:
        fused = tf.OperatorFusion()(tvm.IRModule(functions, attrs=legal.attrs))
    assert "add" in calls(fused["main"])


def test_a_function_for_another_device_is_neither_grouped_nor_scheduled(cuda_target):
    legal = legalize(WithScheduled)
    host = tvm.target.Target("llvm")
    functions = {
        g: f.with_attr("target", host) if g.name_hint == "add" else f
        for g, f in legal.functions.items()
    }
    with cuda_target, tf.record() as trace:
        fused = tf.OperatorFusion()(tvm.IRModule(functions, attrs=legal.attrs))
    assert "add" in calls(fused["main"])
    assert not prim_funcs(fused)["add"].attrs.get("tirx.is_scheduled")
    assert any("for another device (llvm)" in d.reason.message for d in trace.decisions)


def test_a_metaschedule_record_wins_over_our_schedule(cuda_target, tmp_path):
    from tvm import s_tir
    from tvm.s_tir import meta_schedule as ms

    @I.ir_module
    class Chain:
        @R.function
        def main(x: R.Tensor((64,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.add(a, x)
                R.output(b)
            return b

    with cuda_target:
        mod = tvm.transform.Sequential(
            [relax.transform.LegalizeOps(), tf.transform.FuseOps(), relax.transform.FuseTIR()]
        )(Chain)
    (func,) = prim_funcs(mod).values()
    workload_mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    schedule = s_tir.Schedule(workload_mod)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        (loop,) = schedule.get_loops(block)
        outer, inner = schedule.split(loop, [None, 16])
        schedule.bind(outer, "blockIdx.x")
        schedule.bind(inner, "threadIdx.x")
    database = ms.database.MemoryDatabase()
    record = ms.database.TuningRecord(
        schedule.trace, database.commit_workload(workload_mod), [1.0], cuda_target, None
    )
    database.commit_tuning_record(record)
    with cuda_target, database:
        fused = tf.OperatorFusion()(legalize(Chain))
    (made,) = prim_funcs(fused).values()
    assert 'T.thread_binding(T.int64(16), thread="threadIdx.x")' in made.script()
