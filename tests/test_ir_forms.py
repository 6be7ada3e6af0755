"""Every form of Relax that a model may come in: fused where it can be, intact where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from support import assert_close, calls, check_fused, legalize, prim_funcs, run_llvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fusion as tf
from tvm_fusion.workloads import random_inputs


def fuse(mod, target=None, **options):
    """LegalizeOps, FuseOps and FuseTIR, with the checks that hold for every pass."""
    legal = legalize(mod)
    before = legal.script()
    seq = tvm.transform.Sequential([tf.transform.FuseOps(**options), relax.transform.FuseTIR()])
    immutable = tvm.transform.PassContext(config={"testing.immutable_module": True})
    with immutable, target or tvm.target.Target("llvm"):
        fused = seq(legal)
    assert legal.script() == before
    assert relax.analysis.check_well_formed(fused)
    return fused


@I.ir_module
class TwoFunctions:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            R.output(b)
        return b

    @R.function
    def other(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            R.output(b)
        return b


def test_several_functions_share_equal_groups():
    fused = fuse(TwoFunctions)
    assert calls(fused["main"]) == calls(fused["other"]) == ["fused_tir_exp_add"]
    check_fused(TwoFunctions, fused)
    check_fused(TwoFunctions, fused, name="other")


@I.ir_module
class NoDataflow:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        a = R.exp(x)
        b = R.add(a, x)
        c = R.multiply(b, b)
        return c


def test_bindings_outside_of_dataflow_blocks_are_fused():
    fused = fuse(NoDataflow)
    assert calls(fused["main"]) == ["fused_tir_exp_add_multiply"]
    check_fused(NoDataflow, fused)


@I.ir_module
class TwoBlocks:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            R.output(a)
        with R.dataflow():
            b = R.add(a, x)
            R.output(b)
        return b


def test_neighbouring_dataflow_blocks_become_one():
    fused = fuse(TwoBlocks)
    assert calls(fused["main"]) == ["fused_tir_exp_add"]
    check_fused(TwoBlocks, fused)


@I.ir_module
class WithAssert:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 8), "float32")):
        a = R.exp(x)
        b = R.add(a, x)
        s = R.max(b)
        ok = R.greater(s, R.const(-1e30, "float32"))
        _ = R.assert_op(ok, format="the input is not finite")
        c = R.multiply(b, b)
        d = R.negative(c)
        return d


def test_an_assertion_in_the_middle_stays_and_does_not_stop_fusion():
    fused = fuse(WithAssert)
    text = fused["main"].script()
    assert "assert_op" in text
    assert text.index("assert_op") < text.index("return")
    (group,) = calls(fused["main"])  # the condition is one result, what follows it the other
    assert group.startswith("fused_tir_exp_add_max_greater")
    check_fused(WithAssert, fused)


def test_a_failing_assertion_still_fails():
    fused = fuse(WithAssert)
    with pytest.raises(Exception, match="not finite"):
        run_llvm(fused, [np.full((4, 8), -np.inf, "float32")])


@I.ir_module
class GuardedDivision:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "int32"), d: R.Tensor((4,), "int32")):
        smallest = R.min(d)
        ok = R.greater(smallest, R.const(0, "int32"))
        _ = R.assert_op(ok, format="a divisor is not positive")
        q = R.floor_divide(x, d)
        r = R.add(q, q)
        return r


def test_what_could_fail_is_not_moved_in_front_of_the_check_that_guards_it():
    fused = fuse(GuardedDivision)
    ones = np.ones(4, "int32")
    with pytest.raises(Exception, match="not positive"):
        run_llvm(fused, [ones, np.zeros(4, "int32")])
    assert_close(run_llvm(fused, [6 * ones, 2 * ones]), [6 * ones])


@I.ir_module
class PackedCallBetween:
    @R.function(pure=False)
    def main(x: R.Tensor((4, 8), "float32")):
        a = R.exp(x)
        _ = R.call_packed("test.effect", a, ty_args=(R.Tuple,))
        b = R.add(a, x)
        return b


def test_nothing_is_moved_across_a_call_with_effects():
    fused = fuse(PackedCallBetween)
    assert calls(fused["main"]) == ["tir_exp", "add"]
    text = fused["main"].script()
    assert text.index("call_tir(tir_exp") < text.index("test.effect") < text.index("call_tir(add")


@I.ir_module
class Branches:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4, 8), "float32")):
        a = R.exp(x)
        if c:
            p = R.add(a, x)
            q = R.multiply(p, p)
            r = q
        else:
            p = R.subtract(a, x)
            q = R.negative(p)
            r = q
        b = R.sqrt(R.abs(r))
        return b


def test_branches_are_fused_inside_and_never_across():
    fused = fuse(Branches)
    assert sorted(calls(fused["main"])) == [
        "fused_add_multiply",
        "fused_subtract_tir_negative",
        "fused_tir_abs_tir_sqrt",
        "tir_exp",
    ]
    # Compared with NumPy: the unfused module crashes TVM's virtual machine (docs/internals.md).
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    e = np.exp(x)
    assert_close(run_llvm(fused, [np.array(True), x]), [np.sqrt((e + x) ** 2)])
    assert_close(run_llvm(fused, [np.array(False), x]), [np.sqrt(np.abs(e - x))])


@I.ir_module
class Tuples:
    @R.function
    def main(t: R.Tuple(R.Tensor((4, 8), "float32"), R.Tensor((4, 8), "float32"))):
        with R.dataflow():
            x = t[0]
            y = t[1]
            s = R.split(x, 2, axis=1)
            p = s[0]
            q = s[1]
            a = R.exp(p)
            b = R.add(a, q)
            c = R.negative(y)
            d = R.exp(c)
            u = (b, d)
            R.output(u)
        return u


def test_tuples_and_their_fields():
    fused = fuse(Tuples)
    assert "fused_tir_negative_tir_exp1" in calls(fused["main"])
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 8)).astype("float32") for _ in range(2))
    target = tvm.target.Target("llvm")
    outs = []
    for mod in (Tuples, fused):
        vm = relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
        outs.append([t.numpy() for t in vm["main"]((tvm.runtime.tensor(x), tvm.runtime.tensor(y)))])
    assert_close(outs[1], outs[0])
    assert_close(outs[1], [np.exp(x[:, :4]) + x[:, 4:], np.exp(-y)])


@I.ir_module
class TwoLiveFields:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            s = R.split(a, 2, axis=1)
            p = s[0]
            q = s[1]
            b = R.negative(p)
            R.output(b, q)
        return (b, q)


def test_fields_that_are_outputs_keep_their_value():
    fused = fuse(TwoLiveFields)
    check_fused(TwoLiveFields, fused)


@I.ir_module
class MatchCast:
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")):
        n = T.int64()
        m = T.int64()
        with R.dataflow():
            y = R.match_cast(x, R.Tensor((n, m), "float32"))
            a = R.exp(y)
            b = R.add(a, y)
            r = R.reshape(b, R.shape([n * m]))
            c = R.negative(r)
            R.output(c)
        return c


def test_match_cast_and_the_shape_variables_it_binds():
    # Upstream issue 20195: stock FuseOps moves the call in front of the match_cast.
    fused = fuse(MatchCast)
    assert any(name.startswith("fused_tir_exp_add") for name in calls(fused["main"]))
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    assert_close(run_llvm(fused, [x]), run_llvm(MatchCast, [x]))


@I.ir_module
class MatchCastShapeOnly:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), s: R.Shape(ndim=1)):
        n = T.int64()
        with R.dataflow():
            _z = R.match_cast(s, R.Shape([n]))
            a = R.full(R.shape([n, 8]), R.const(1.5, "float32"), "float32")
            b = R.negative(a)
            c = R.exp(b)
            R.output(c)
        return c


def test_a_shape_variable_that_no_argument_tells():
    fused = fuse(MatchCastShapeOnly)
    assert relax.analysis.check_well_formed(fused)
    text = fused["main"].script()
    assert text.index("match_cast") < text.index("call_tir")


def test_constants_become_arguments_of_the_group():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    value = np.random.default_rng(1).standard_normal((4, 8)).astype("float32")
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.add(x, relax.const(value)))
            b = builder.emit(relax.op.multiply(a, relax.const(value)))
            out = builder.emit_output(relax.op.negative(b))
        builder.emit_func_output(out)
    mod = builder.get()
    fused = fuse(mod)
    assert len(calls(fused["main"])) == 1
    check_fused(mod, fused)


@I.ir_module
class ScalarConstants:
    @R.function
    def main(m: R.Tensor((4, 8), "bool"), x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.where(m, x, R.const(-1e9, "float32"))
            b = R.exp(a)
            c = R.take(b, R.const(2, "int64"), axis=0)
            d = R.negative(c)
            R.output(d)
        return d


def test_scalar_constants_become_immediates():
    fused = fuse(ScalarConstants)
    (where,) = [f for name, f in prim_funcs(fused).items() if "where" in name]
    assert "-1000000000.0" in where.script()
    assert len(where.params) == 3
    check_fused(ScalarConstants, fused)


@I.ir_module
class InPlace:
    @T.prim_func(private=True, s_tir=True)
    def bump(a: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(4, 8):
            with T.sblock("bump"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = a[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = InPlace
        with R.dataflow():
            a = R.exp(x)
            keep = R.negative(a)
            b = R.call_tir_inplace(
                cls.bump, (a,), inplace_indices=[0], out_ty=R.Tensor((4, 8), "float32")
            )
            c = R.add(b, keep)
            d = R.exp(c)
            R.output(d)
        return d


def test_in_place_calls_are_left_alone_and_keep_their_order():
    fused = fuse(InPlace)
    assert calls(fused["main"]) == ["fused_tir_exp_tir_negative", "bump", "fused_add_tir_exp"]
    check_fused(InPlace, fused)


@I.ir_module
class InPlaceBehindAView:
    @T.prim_func(private=True, s_tir=True)
    def bump(a: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(4, 8):
            with T.sblock("bump"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(a[vi, vj])
                T.writes(a[vi, vj])
                a[vi, vj] = a[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = InPlaceBehindAView
        with R.dataflow():
            a = R.add(x, x)
            view = R.reshape(a, (32,))
            before = R.exp(view)
            b = R.call_tir_inplace(
                cls.bump, (a,), inplace_indices=[0], out_ty=R.Tensor((4, 8), "float32")
            )
            after = R.reshape(b, (32,))
            c = R.add(before, after)
            d = R.negative(c)
            R.output(d)
        return d


def test_readers_of_a_view_stay_in_front_of_what_writes_into_it():
    with tvm.target.Target("llvm"):
        fused = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])(
            InPlaceBehindAView
        )
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    want = -(np.exp(2 * x) + 2 * x + 1).reshape(-1)
    assert_close(run_llvm(fused, [x], "tvm_fusion"), [want])
    text = fused["main"].script()
    assert text.index("tir_exp") < text.index("call_tir_inplace")


@I.ir_module
class DpsPacked:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c = R.call_dps_packed("test.copy", (b,), out_ty=R.Tensor((4, 8), "float32"))
            d = R.negative(c)
            e = R.exp(d)
            R.output(e)
        return e


@tvm.register_global_func("test.copy", override=True)
def _copy(source, result):
    source.copyto(result)


def test_packed_calls_are_barriers():
    fused = fuse(DpsPacked)
    assert calls(fused["main"]) == ["fused_tir_exp_add", "fused_tir_negative_tir_exp"]
    check_fused(DpsPacked, fused)


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32"), y: R.Tensor(("m",), "float32")):
        with R.dataflow():
            a = R.add(x, y)
            b = R.exp(a)
            c = R.sum(b, axis=1)
            d = R.negative(c)
            R.output(d)
        return d


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 7), (5, 40)])
def test_symbolic_shapes(n, m):
    fused = fuse(Symbolic)
    assert len(calls(fused["main"])) == 1
    check_fused(Symbolic, fused, assume={"n": n, "m": m})


def test_unused_bindings_do_no_harm():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.exp(x))
            builder.emit(relax.op.negative(a))
            out = builder.emit_output(relax.op.add(a, x))
        builder.emit_func_output(out)
    mod = builder.get()
    fused = fuse(mod)
    check_fused(mod, fused)


@I.ir_module
class NameClash:
    @R.function
    def fused_tir_exp_add(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.negative(x)
            R.output(a)
        return a

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            R.output(b)
        return b


def test_names_that_are_taken_get_a_number():
    fused = fuse(NameClash)
    assert calls(fused["main"]) == ["fused_tir_exp_add_1"]
    check_fused(NameClash, fused)
    check_fused(NameClash, fused, name="fused_tir_exp_add")


@I.ir_module
class Views:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.reshape(x, (32,))
            b = R.exp(a)
            c = R.reshape(b, (8, 4))
            d = R.negative(c)
            e = R.reshape(d, (2, 16))
            R.output(e)
        return e


def test_reshapes_inside_are_fused_and_an_output_is_no_view():
    fused = fuse(Views)
    assert len(calls(fused["main"])) <= 2
    check_fused(Views, fused)


@I.ir_module
class SameValueTwice:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, a)
            R.output(b)
        return (b, b)


def test_the_same_value_returned_twice():
    fused = fuse(SameValueTwice)
    assert calls(fused["main"]) == ["fused_tir_exp_add"]
    check_fused(SameValueTwice, fused)


@I.ir_module
class ParameterIsOutput:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            R.output(b)
        return (x, b)


def test_a_parameter_that_is_an_output():
    fused = fuse(ParameterIsOutput)
    check_fused(ParameterIsOutput, fused)


@I.ir_module
class Attention:
    @R.function
    def main(
        q: R.Tensor((1, 16, 2, 8), "float32"),
        k: R.Tensor((1, 16, 2, 8), "float32"),
        v: R.Tensor((1, 16, 2, 8), "float32"),
    ):
        with R.dataflow():
            a = R.nn.attention(q, k, v)
            b = R.nn.relu(a)
            R.output(b)
        return b


def test_composite_ops_are_split_at_block_level():
    fused = fuse(Attention)
    names = calls(fused["main"])
    assert len(names) > 2
    assert not any(
        tf.analysis.describe(f).kind is tf.OpKind.COMPOSITE
        for n, f in prim_funcs(fused).items()
        if not n.startswith("fused")
    )
    check_fused(Attention, fused)


@I.ir_module
class SymbolicAttention:
    @R.function
    def main(
        q: R.Tensor(("b", "s", 2, 8), "float32"),
        k: R.Tensor(("b", "s", 2, 8), "float32"),
        v: R.Tensor(("b", "s", 2, 8), "float32"),
    ):
        with R.dataflow():
            a = R.nn.attention(q, k, v)
            b = R.nn.relu(a)
            R.output(b)
        return b


def test_composite_ops_of_symbolic_shape():
    fused = fuse(SymbolicAttention)
    check_fused(SymbolicAttention, fused, assume={"b": 2, "s": 5})


@I.ir_module
class ZeroDim:
    @R.function
    def main(x: R.Tensor((), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            c = R.add(y, b)
            R.output(c)
        return c


def test_scalars_and_small_extents():
    # Upstream issues 20061, 20036, 20047: crashes on small or unit extents.
    fused = fuse(ZeroDim)
    check_fused(ZeroDim, fused)


def test_the_result_is_deterministic():
    texts = {fuse(mod).script() for mod in (Tuples, Tuples)}
    assert len(texts) == 1


@I.ir_module
class AwkwardNames:
    @T.prim_func(private=True, s_tir=True)
    def group(
        x: T.Buffer((T.int64(4), T.int64(8)), "float32"),
        y: T.Buffer((T.int64(4), T.int64(8)), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        for i, j in T.grid(T.int64(4), T.int64(8)):
            with T.sblock("group"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(y[vi, vj])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        cls = AwkwardNames
        with R.dataflow():
            a = R.call_tir(cls.group, (x,), out_ty=R.Tensor((4, 8), "float32"))
            b = R.exp(a)
            R.output(b)
        return b


def test_a_prim_func_may_be_called_group():
    fused = fuse(AwkwardNames)
    assert calls(fused["main"]) == ["fused_group_tir_exp"]
    check_fused(AwkwardNames, fused)


@I.ir_module
class FlattenSymbolic:
    @R.function
    def main(x: R.Tensor(("n", "k"), "float32")):
        n = T.int64()
        k = T.int64()
        with R.dataflow():
            a = R.reshape(x, R.shape([n * k]))
            b = R.exp(a)
            c = R.negative(b)
            R.output(c)
        return c


def test_scalar_arguments_of_shapes_do_not_stop_fusion():
    fused = fuse(FlattenSymbolic)
    assert len(calls(fused["main"])) <= 2
    assert any("tir_exp_tir_negative" in name for name in calls(fused["main"]))
    check_fused(FlattenSymbolic, fused, assume={"n": 3, "k": 5})


@I.ir_module
class UpdatesInPlaceInside:
    @T.prim_func(private=True, s_tir=True)
    def two_products(
        x: T.Buffer((8, 8), "float32"),
        w: T.Buffer((8, 8), "float32"),
        bias: T.Buffer((8,), "float32"),
        y: T.Buffer((8, 8), "float32"),
    ):
        T.func_attr({"tirx.noalias": True})
        hidden = T.sblock_alloc_buffer((8, 8))
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("first"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    hidden[vi, vj] = T.float32(0)
                hidden[vi, vj] = hidden[vi, vj] + x[vi, vk] * w[vk, vj]
        for i, j in T.grid(8, 8):
            with T.sblock("bias"):
                vi, vj = T.axis.remap("SS", [i, j])
                hidden[vi, vj] = hidden[vi, vj] + bias[vj]
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("second"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    y[vi, vj] = T.float32(0)
                y[vi, vj] = y[vi, vj] + hidden[vi, vk] * w[vk, vj]

    @R.function
    def main(
        x: R.Tensor((8, 8), "float32"),
        w: R.Tensor((8, 8), "float32"),
        bias: R.Tensor((8,), "float32"),
    ):
        cls = UpdatesInPlaceInside
        with R.dataflow():
            a = R.call_tir(cls.two_products, (x, w, bias), out_ty=R.Tensor((8, 8), "float32"))
            b = R.exp(a)
            R.output(b)
        return b


def test_a_composite_that_updates_a_buffer_of_its_own_is_left_whole():
    fused = fuse(UpdatesInPlaceInside)
    assert calls(fused["main"])[0] == "two_products"
    check_fused(UpdatesInPlaceInside, fused)


def test_no_fuse_knows_prim_funcs_by_their_former_names():
    def names(no_fuse):
        return calls(fuse(Attention, no_fuse=no_fuse)["main"])

    assert "attention" in names(["attention"])
    assert "attention" not in names([])
    assert any(n.startswith("fused_where") for n in calls(fuse(ScalarConstants)["main"]))
    kept = calls(fuse(ScalarConstants, no_fuse=["where"])["main"])
    assert not any(n.startswith("fused_where") for n in kept)


def test_a_second_run_changes_nothing():
    target = tvm.target.Target("llvm")
    with target:
        once = tvm.transform.Sequential([relax.transform.LegalizeOps(), tf.OperatorFusion()])(
            NoDataflow
        )
        twice = tf.OperatorFusion()(once)
    assert once.script() == twice.script()
    args = random_inputs(NoDataflow, seed=0)
    assert_close(run_llvm(twice, args), run_llvm(NoDataflow, args))
