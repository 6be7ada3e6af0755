"""What is each PrimFunc? Kind, fuse pattern and reshape, read from its structure alone."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.relax.backend import DispatchSortScan
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tvm_fusion.analysis import ClassicKind, FusePattern, OpKind, describe
from tvm_fusion.analysis.primfunc import OP_KIND_ATTR
from tvm_fusion.errors import TVMFusionError
from tvm_fusion.transform import AnnotateOpKind, FuseOps
from tvm_fusion.transform.inline_scalar_constants import InlineScalarConstants

op, nn = relax.op, relax.op.nn
CPU = tvm.target.Target("llvm")
GPU = tvm.target.Target("nvidia/nvidia-a100")
n = tirx.Var("n", "int64")


def tensor(*shape: Any, dtype: str = "float32") -> relax.TensorType:
    """The type of a tensor parameter."""
    return relax.TensorType(shape, dtype)


def const(value: Any, dtype: str = "int64") -> Any:
    """A constant tensor."""
    return relax.const(np.array(value, dtype), dtype)


def first(value: Any) -> relax.Expr:
    """The first field of a tuple."""
    return relax.TupleGetItem(value, 0)


def legalize(
    build: Callable[..., Any], types: tuple[Any, ...], target: tvm.target.Target = CPU
) -> tvm.IRModule:
    """The module of one Relax op, after LegalizeOps."""
    params = [relax.Var(f"p{i}", ty) for i, ty in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    with target:
        steps = [DispatchSortScan(), relax.transform.LegalizeOps()]
        return tvm.transform.Sequential(steps)(builder.get())


def prim_funcs(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """The PrimFuncs of a module by name."""
    found = {gv.name_hint: f for gv, f in mod.functions.items()}
    return {name: f for name, f in found.items() if isinstance(f, tirx.PrimFunc)}


class Case(NamedTuple):
    """A Relax op, and what its PrimFunc has to be."""

    name: str
    build: Callable[..., Any]
    types: tuple[Any, ...]
    kind: OpKind
    pattern: FusePattern
    is_reshape: bool = False
    target: tvm.target.Target = CPU


X, V, SYM = tensor(8, 16), tensor(16), tensor(n, 16)
IMAGE, C4 = tensor(2, 4, 8, 8), tensor(4)
INDEX = tensor(4, dtype="int64")

E, PE, PB = OpKind.ELEMENTWISE, FusePattern.ELEMENTWISE, FusePattern.BROADCAST
INJ, PI = OpKind.INJECTIVE, FusePattern.INJECTIVE
RED, PR, PA = OpKind.REDUCTION, FusePattern.REDUCTION, FusePattern.ANCHOR
NORM, CON = OpKind.ROW_NORM, OpKind.CONTRACTION
COMP, BAR, PO = OpKind.COMPOSITE, OpKind.BARRIER, FusePattern.OPAQUE


def batch_norm(x: Any, *params: Any) -> Any:
    return first(nn.batch_norm(x, *params, axis=1, training=False))


def attention(q: Any, k: Any, v: Any) -> Any:
    return nn.attention(q, k, v)


CASES = [
    # Every output element from the same, or a broadcast, element of the inputs.
    Case("add", op.add, (X, X), E, PE),
    Case("add_row", op.add, (X, V), E, PE),
    Case("add_scalar_tensor", op.add, (X, tensor()), E, PE),
    Case("add_immediate", lambda x: op.add(x, relax.const(1.0)), (X,), E, PE),
    Case("add_symbolic", op.add, (SYM, SYM), E, PE),
    Case("outer_product", op.multiply, (tensor(8, 1), tensor(1, 16)), E, PB),
    Case("exp", op.exp, (X,), E, PE),
    Case("exp_of_one_element", op.exp, (tensor(1, 1),), E, PE),
    Case("full", lambda x: op.full((8, 16), relax.const(1.0), "float32"), (X,), E, PE),
    Case("gelu", nn.gelu, (X,), E, PE),
    Case("gelu_tanh", nn.gelu_tanh, (X,), E, PE),
    Case("silu_symbolic", nn.silu, (SYM,), E, PE),
    Case("cast", lambda x: op.astype(x, "float16"), (X,), E, PE),
    Case("where", op.where, (tensor(8, 16, dtype="bool"), X, X), E, PE),
    Case("batch_norm", batch_norm, (IMAGE, C4, C4, C4, C4), E, PE),
    Case("tril", op.tril, (X,), E, PE),
    Case("triu_symbolic", op.triu, (tensor(n, n),), E, PE),
    Case("one_hot", lambda i: op.one_hot(i, *ONE_HOT, 8, -1), (INDEX,), E, PB),
    # Elements moved by static index maps.
    Case("transpose", op.permute_dims, (X,), INJ, PI),
    Case("transpose_symbolic", op.permute_dims, (SYM,), INJ, PI),
    Case("reshape", lambda x: op.reshape(x, (4, 32)), (X,), INJ, PI, True),
    Case("reshape_symbolic", lambda x: op.reshape(x, (n * 16,)), (SYM,), INJ, PI, True),
    Case("reshape_to_heads", lambda x: op.reshape(x, (n, 4, 4)), (SYM,), INJ, PI, True),
    Case("flatten", op.flatten, (X,), INJ, PI, True),
    Case("expand_dims", lambda x: op.expand_dims(x, 0), (X,), INJ, PB, True),
    Case("squeeze", lambda x: op.squeeze(x, 0), (tensor(1, 8),), INJ, PB, True),
    # TVM calls a slice of the leading part elementwise; its kind is not.
    Case("slice_prefix", lambda x: op.strided_slice(x, [0], [0], [4]), (X,), INJ, PE),
    Case("slice_inner", lambda x: op.strided_slice(x, [1], [4], [12]), (X,), INJ, PI),
    Case("slice_strided", lambda x: op.strided_slice(x, [1], [0], [16], [2]), (X,), INJ, PI),
    Case("split", lambda x: first(op.split(x, 2, 1)), (X,), INJ, PI),
    Case("concat", lambda x, y: op.concat([x, y], 1), (X, X), INJ, PI),
    Case("concat_symbolic", lambda x, y: op.concat([x, y], 0), (SYM, X), INJ, PI),
    Case("pad", lambda x: nn.pad(x, (0, 0, 1, 1)), (X,), INJ, PI),
    Case("flip", lambda x: op.flip(x, 1), (X,), INJ, PI),
    Case("broadcast_to", lambda x: op.broadcast_to(x, (8, 16)), (V,), INJ, PB),
    Case("tile", lambda x: op.tile(x, (2, 2)), (X,), INJ, PI),
    Case("repeat", lambda x: op.repeat(x, 2, 1), (X,), INJ, PI),
    Case("resize2d", lambda x: op.image.resize2d(x, (16, 16)), (IMAGE,), INJ, PI),
    # One reducing block. Only a bare one is a reduction on TVM's ladder of patterns.
    Case("sum", lambda x: op.sum(x, -1), (X,), RED, PR),
    Case("sum_keepdims", lambda x: op.sum(x, -1, True), (X,), RED, PR),
    Case("sum_of_everything", op.sum, (X,), RED, PR),
    Case("sum_of_unit_axis", lambda x: op.sum(x, -1), (tensor(8, 1),), RED, PR),
    Case("sum_symbolic_rows", lambda x: op.sum(x, -1), (SYM,), RED, PR),
    Case("sum_symbolic_axis", lambda x: op.sum(x, 0), (SYM,), RED, PR),
    Case("max", lambda x: op.max(x, 0), (X,), RED, PR),
    Case("prod", lambda x: op.prod(x, 0), (X,), RED, PR),
    Case("dot_product", op.matmul, (V, V), RED, PR),
    Case("mean", lambda x: op.mean(x, -1), (X,), RED, PA),
    Case("argmax", lambda x: op.argmax(x, -1), (X,), RED, PA),
    Case("max_pool", lambda x: nn.max_pool2d(x, (2, 2), (2, 2)), (IMAGE,), RED, PA),
    Case("avg_pool", lambda x: nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1)), (IMAGE,), RED, PA),
    Case("adaptive_pool", lambda x: nn.adaptive_avg_pool2d(x, (2, 2)), (IMAGE,), RED, PA),
    Case("global_pool", lambda x: nn.adaptive_avg_pool2d(x, (1, 1)), (IMAGE,), RED, PA),
    # Several reductions over the same rows, or a row written back after one.
    Case("variance", lambda x: op.variance(x, -1), (X,), NORM, PA),
    Case("softmax", nn.softmax, (X,), NORM, PA),
    Case("softmax_over_columns", lambda x: nn.softmax(x, 1), (tensor(2, 4, 8),), NORM, PA),
    Case("softmax_symbolic_rows", nn.softmax, (SYM,), NORM, PA),
    Case("softmax_symbolic_axis", nn.softmax, (tensor(8, n),), NORM, PA),
    Case("log_softmax", nn.log_softmax, (X,), NORM, PA),
    Case("layer_norm", lambda x, g, b: nn.layer_norm(x, g, b, -1), (X, V, V), NORM, PA),
    Case("layer_norm_symbolic", lambda x, g, b: nn.layer_norm(x, g, b, -1), (SYM, V, V), NORM, PA),
    Case("rms_norm", lambda x, g: nn.rms_norm(x, g, -1, 1e-5), (X, V), NORM, PA),
    Case(
        "group_norm",
        lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [2, 3]),
        (IMAGE, C4, C4),
        NORM,
        PA,
    ),
    # Sums of products that reuse an operand.
    Case("matmul", op.matmul, (X, tensor(16, 4)), CON, PA),
    Case("matmul_symbolic", op.matmul, (SYM, tensor(16, 4)), CON, PA),
    Case("matmul_batched", op.matmul, (tensor(2, 8, 16), tensor(2, 16, 4)), CON, PA),
    Case("row_times_matrix", op.matmul, (tensor(1, 16), tensor(16, 4)), CON, PA),
    Case("matrix_times_vector", op.matmul, (X, V), CON, PR),
    Case("einsum", lambda x, y: op.einsum([x, y], "ij,kj->ik"), (X, X), CON, PA),
    Case("conv2d", lambda x, w: nn.conv2d(x, w, padding=1), (IMAGE, tensor(8, 4, 3, 3)), CON, PA),
    Case(
        "conv2d_symbolic",
        lambda x, w: nn.conv2d(x, w, padding=1),
        (tensor(n, 4, 8, 8), tensor(8, 4, 3, 3)),
        CON,
        PA,
    ),
    Case("conv2d_1x1", nn.conv2d, (IMAGE, tensor(8, 4, 1, 1)), CON, PA),
    Case(
        "conv2d_depthwise",
        lambda x, w: nn.conv2d(x, w, padding=1, groups=4),
        (IMAGE, tensor(4, 1, 3, 3)),
        CON,
        PA,
    ),
    # What no single kernel holds, and what is not understood.
    Case("attention", attention, (tensor(1, 8, 2, 16),) * 3, COMP, PO),
    Case("take_by_tensor", lambda x, i: op.take(x, i, 0), (X, INDEX), BAR, PO),
    Case("take_symbolic", lambda x, i: op.take(x, i, 0), (X, tensor(n, dtype="int64")), BAR, PO),
    Case("take_constant_tensor", lambda x: op.take(x, const([3, 1]), 0), (X,), BAR, PO),
    Case("gather_nd", op.gather_nd, (X, tensor(3, 2, dtype="int64")), BAR, PO),
    Case(
        "gather_elements",
        lambda x, i: op.gather_elements(x, i, 0),
        (X, tensor(8, 16, dtype="int64")),
        BAR,
        PO,
    ),
    Case("scatter_nd", op.scatter_nd, (X, tensor(3, 2, dtype="int64"), tensor(3)), BAR, PO),
    Case(
        "scatter_elements",
        lambda x, i, u: op.scatter_elements(x, i, u, 0),
        (X, tensor(8, 16, dtype="int64"), X),
        BAR,
        PO,
    ),
    Case("cumsum", lambda x: op.cumsum(x, -1), (X,), BAR, PO, target=GPU),
    Case("sort", lambda x: op.sort(x, -1), (X,), BAR, PO, target=GPU),
    Case("topk", lambda x: first(op.topk(x, 2, -1)), (X,), BAR, PO, target=GPU),
    Case("median", lambda x: op.median(x, -1), (X,), BAR, PO),
]
ONE_HOT = [relax.prim_value(tirx.FloatImm("float32", value)) for value in (1, 0)]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


def only_prim_func(case: Case) -> tirx.PrimFunc:
    """The one PrimFunc that LegalizeOps makes of a case."""
    funcs = prim_funcs(legalize(case.build, case.types, case.target))
    assert len(funcs) == 1, f"expected one PrimFunc, got {sorted(funcs)}"
    return next(iter(funcs.values()))


def renamed(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function with itself and every block called ``f``."""

    def rename(block: Any) -> Any:
        return s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            "f",
            block.body,
            block.init,
            block.alloc_buffers,
            block.match_buffers,
            block.annotations,
        )

    body = tvm_ffi.structural_map(func.body, ((s_tir.SBlock, rename),))
    made = tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)
    return made.with_attr("global_symbol", "f")


def test_legalized_ops_are_what_the_table_of_the_design_says(case):
    found = describe(only_prim_func(case))
    assert (found.kind, found.pattern, found.is_reshape) == (
        case.kind,
        case.pattern,
        case.is_reshape,
    )


def test_the_kind_does_not_depend_on_names(case):
    func = only_prim_func(case)
    same = renamed(func)
    names: list[str] = []
    tvm_ffi.structural_walk(same.body, (s_tir.SBlock, lambda block: names.append(block.name_hint)))
    assert set(names) <= {"f"}
    assert describe(same) == describe(func)


@pytest.mark.parametrize(
    ("case_name", "classic"),
    [
        ("gelu", ClassicKind.ELEMENTWISE),
        ("sum", ClassicKind.REDUCTION),
        ("reshape", ClassicKind.VIEW),
        ("split", ClassicKind.BARRIER),
        ("concat", ClassicKind.BARRIER),
        ("transpose", ClassicKind.BARRIER),
        ("slice_prefix", ClassicKind.BARRIER),
        ("softmax", ClassicKind.BARRIER),
        ("matmul", ClassicKind.BARRIER),
        ("attention", ClassicKind.BARRIER),
        ("topk", ClassicKind.BARRIER),
    ],
)
def test_the_classic_rule_sees_four_kinds(case_name, classic):
    case = next(case for case in CASES if case.name == case_name)
    found = describe(only_prim_func(case))
    assert found.kind.classic(found.is_reshape) is classic


def test_a_linear_layer_is_a_transpose_and_a_contraction():
    mod = legalize(op.linear, (X, tensor(4, 16)))
    kinds = {name: describe(func).kind for name, func in prim_funcs(mod).items()}
    assert kinds == {"transpose": OpKind.INJECTIVE, "matmul": OpKind.CONTRACTION}


def test_a_gather_by_a_scalar_constant_is_injective_once_the_constant_is_an_immediate():
    mod = legalize(lambda x: op.take(x, const(3), 0), (X,))
    before = [describe(func).kind for func in prim_funcs(mod).values()]
    after = [describe(func).kind for func in prim_funcs(InlineScalarConstants()(mod)).values()]
    assert before == [OpKind.BARRIER]
    assert after[-1] is OpKind.INJECTIVE


@pytest.mark.parametrize(
    ("case_name", "extents", "accumulator_bytes", "shared_bytes"),
    [
        ("exp", (), 0, 0),
        ("sum", (16,), 4, 32 * 4),  # no fewer threads than a warp
        ("sum_of_everything", (128,), 4, 128 * 4),
        ("sum_symbolic_axis", (None,), 4, 1024 * 4),  # as many threads as a block may have
        ("argmax", (16,), 8 + 4, 32 * 12),  # the index and the value
        ("group_norm", (128,), 4 + 4, 128 * 8),  # the sum and the sum of squares
        ("softmax", (16, 16), 4, 32 * 4),  # one reduction follows the other
        ("matmul", (), 0, 0),
    ],
)
def test_a_reduction_stages_one_partial_result_a_thread(
    case_name, extents, accumulator_bytes, shared_bytes
):
    case = next(case for case in CASES if case.name == case_name)
    found = describe(only_prim_func(case))
    assert found.reduction_extents == extents
    assert found.accumulator_bytes == accumulator_bytes
    assert found.shared_bytes(threads_per_block=1024, warp_threads=32) == shared_bytes


def test_no_more_threads_stage_than_a_block_may_have():
    case = next(case for case in CASES if case.name == "sum_of_everything")
    found = describe(only_prim_func(case))
    assert found.shared_bytes(threads_per_block=64, warp_threads=32) == 64 * 4


# -- PrimFuncs that LegalizeOps does not make ----------------------------------------------


@I.ir_module
class HandWritten:
    """Functions in which names and index identity mislead."""

    @T.prim_func(private=True, s_tir=True)
    def leading_rows(a: T.Buffer((16, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj]

    @T.prim_func(private=True, s_tir=True)
    def exp_of_leading_rows(a: T.Buffer((16, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def exp(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def two_blocks(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        middle = T.sblock_alloc_buffer((4, 8))
        for i, j in T.grid(4, 8):
            with T.sblock("matmul"):
                vi, vj = T.axis.remap("SS", [i, j])
                middle[vi, vj] = T.exp(a[vi, vj])
        for i, j in T.grid(4, 8):
            with T.sblock("softmax"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = middle[vi, vj] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def two_outputs_of_one_block(
        a: T.Buffer((4, 8), "float32"),
        b: T.Buffer((4, 8), "float32"),
        c: T.Buffer((4, 8), "float32"),
    ):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])
                c[vi, vj] = a[vi, vj] + T.float32(1)

    @T.prim_func(private=True, s_tir=True)
    def loop_inside_a_block(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i in range(4):
            with T.sblock("exp"):
                vi = T.axis.spatial(4, i)
                for j in range(8):
                    b[vi, j] = T.exp(a[vi, j])

    @T.prim_func(private=True, s_tir=True)
    def branch_inside_a_block(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                if vj < 4:
                    b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def already_scheduled(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        T.func_attr({"tirx.is_scheduled": True})
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def bound_to_threads(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for j in T.thread_binding(8, thread="threadIdx.x"):
                with T.sblock("exp"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def external_call(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.call_extern("float32", "my_exp", a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def index_from_data(
        a: T.Buffer((16, 8), "float32"),
        index: T.Buffer((4,), "int32"),
        b: T.Buffer((4, 8), "float32"),
    ):
        for i, j in T.grid(4, 8):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[index[vi], vj]

    @T.prim_func(private=True, s_tir=True)
    def scattered_write(a: T.Buffer((4,), "float32"), b: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.sblock("add"):
                vi = T.axis.spatial(4, i)
                b[vi * 2] = a[vi]

    @T.prim_func(private=True, s_tir=True)
    def diagonal_write(a: T.Buffer((4,), "float32"), b: T.Buffer((4, 4), "float32")):
        for i in range(4):
            with T.sblock("add"):
                vi = T.axis.spatial(4, i)
                b[vi, vi] = a[vi]

    @T.prim_func(private=True, s_tir=True)
    def square_transpose(a: T.Buffer((8, 8), "float32"), b: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vj, vi])

    @T.prim_func(private=True, s_tir=True)
    def copy_to_another_type(a: T.Buffer((4, 8), "float32"), b: T.Buffer((32,), "float16")):
        for i in range(32):
            with T.sblock("reshape"):
                vi = T.axis.spatial(32, i)
                b[vi] = T.Cast("float16", a[vi // 8, vi % 8])

    @T.prim_func(private=True, s_tir=True)
    def two_contractions(
        a: T.Buffer((8, 8), "float32"),
        b: T.Buffer((8, 8), "float32"),
        c: T.Buffer((8, 8), "float32"),
    ):
        middle = T.sblock_alloc_buffer((8, 8))
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("add"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    middle[vi, vj] = T.float32(0)
                middle[vi, vj] = middle[vi, vj] + a[vi, vk] * b[vk, vj]
        for i, j, k in T.grid(8, 8, 8):
            with T.sblock("add_1"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    c[vi, vj] = T.float32(0)
                c[vi, vj] = c[vi, vj] + middle[vi, vk] * b[vk, vj]

    @T.prim_func(private=True, s_tir=True)
    def matmul(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4,), "float32")):
        for i, k in T.grid(4, 8):
            with T.sblock("matmul"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    b[vi] = T.float32(0)
                b[vi] = b[vi] + a[vi, vk] * a[vi, vk]

    @T.prim_func(private=True, s_tir=True)
    def reductions_of_rows_and_columns(
        a: T.Buffer((4, 8), "float32"),
        rows: T.Buffer((4,), "float32"),
        columns: T.Buffer((8,), "float32"),
    ):
        for i, k in T.grid(4, 8):
            with T.sblock("softmax"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    rows[vi] = T.float32(0)
                rows[vi] = rows[vi] + a[vi, vk]
        for i, k in T.grid(8, 4):
            with T.sblock("softmax_1"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    columns[vi] = T.float32(0)
                columns[vi] = columns[vi] + a[vk, vi]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("leading_rows", OpKind.INJECTIVE),
        ("exp_of_leading_rows", OpKind.INJECTIVE),
        ("exp", OpKind.ELEMENTWISE),
        ("two_blocks", OpKind.ELEMENTWISE),
        ("two_outputs_of_one_block", OpKind.BARRIER),
        ("loop_inside_a_block", OpKind.BARRIER),
        ("branch_inside_a_block", OpKind.BARRIER),
        ("already_scheduled", OpKind.BARRIER),
        ("bound_to_threads", OpKind.BARRIER),
        ("external_call", OpKind.BARRIER),
        ("index_from_data", OpKind.BARRIER),
        ("scattered_write", OpKind.BARRIER),
        ("diagonal_write", OpKind.BARRIER),
        ("square_transpose", OpKind.INJECTIVE),
        ("copy_to_another_type", OpKind.INJECTIVE),
        ("two_contractions", OpKind.COMPOSITE),
        ("matmul", OpKind.REDUCTION),
        ("reductions_of_rows_and_columns", OpKind.COMPOSITE),
    ],
)
def test_hand_written_functions(name, kind):
    func = HandWritten[name]
    assert describe(func).kind is kind
    assert not describe(func).is_reshape
    assert describe(renamed(func)).kind is kind


@pytest.mark.parametrize("name", ["leading_rows", "two_outputs_of_one_block"])
def test_where_stock_sees_an_elementwise_op_by_mistake_ours_does_not(name):
    """FACTS.md: AnnotateTIROpPattern decides by index identity alone."""
    stock = relax.transform.AnnotateTIROpPattern()(HandWritten)[name].attrs["op_pattern"]
    assert int(stock) == FusePattern.ELEMENTWISE
    assert describe(HandWritten[name]).kind is not OpKind.ELEMENTWISE


# -- the pass ------------------------------------------------------------------------------


def test_the_pass_writes_the_kind_of_every_prim_func_and_leaves_its_input_alone():
    mod = legalize(lambda x, w: nn.softmax(op.matmul(op.exp(x), w)), (X, tensor(16, 16)))
    with tvm.transform.PassContext(config={"testing.immutable_module": True}):
        annotated = AnnotateOpKind()(mod)
    kinds = {name: str(f.attrs[OP_KIND_ATTR]) for name, f in prim_funcs(annotated).items()}
    assert kinds == {"tir_exp": "ELEMENTWISE", "matmul": "CONTRACTION", "softmax": "ROW_NORM"}
    assert all(OP_KIND_ATTR not in (f.attrs or {}) for f in prim_funcs(mod).values())


def test_the_pass_keeps_an_attribute_that_is_there():
    mod = legalize(op.exp, (X,))
    mod["tir_exp"] = mod["tir_exp"].with_attr(OP_KIND_ATTR, "BARRIER")
    assert str(AnnotateOpKind()(mod)["tir_exp"].attrs[OP_KIND_ATTR]) == "BARRIER"


def test_the_pass_changes_nothing_the_second_time():
    once = AnnotateOpKind()(legalize(op.exp, (X,)))
    tvm.ir.assert_structural_equal(AnnotateOpKind()(once), once)


@I.ir_module
class ExpThenExp:
    """Two ops of which each may be fused into the other."""

    @T.prim_func(private=True, s_tir=True)
    def first(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = T.exp(a[vi, vj])

    @T.prim_func(private=True, s_tir=True)
    def second(a: T.Buffer((4, 8), "float32"), b: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.sblock("add"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):
        cls = ExpThenExp
        with R.dataflow():
            lv = R.call_tir(cls.first, (x,), out_ty=R.Tensor((4, 8), "float32"))
            gv = R.call_tir(cls.second, (lv,), out_ty=R.Tensor((4, 8), "float32"))
            R.output(gv)
        return gv


def annotate(mod: tvm.IRModule, name: str, kind: str) -> tvm.IRModule:
    """The module with one PrimFunc annotated by hand."""
    functions = {
        gv: f.with_attr(OP_KIND_ATTR, kind) if gv.name_hint == name else f
        for gv, f in mod.functions.items()
    }
    return tvm.IRModule(functions)


def groups_of(mod: tvm.IRModule) -> list[str]:
    """Names of the Primitive functions that FuseOps makes."""
    with GPU, warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = FuseOps()(mod)
    return [
        gv.name_hint
        for gv, f in fused.functions.items()
        if isinstance(f, relax.Function) and f.attrs and "Primitive" in f.attrs
    ]


def test_a_kind_set_by_hand_overrules_the_analysis():
    assert len(groups_of(ExpThenExp)) == 1
    assert len(groups_of(annotate(ExpThenExp, "second", "ELEMENTWISE"))) == 1
    assert groups_of(annotate(ExpThenExp, "second", "BARRIER")) == []


def test_a_kind_that_does_not_exist_is_refused_by_name():
    wrong = annotate(ExpThenExp, "second", "SIDEWAYS")
    kept = AnnotateOpKind()(wrong)
    assert str(kept["second"].attrs[OP_KIND_ATTR]) == "SIDEWAYS"
    message = "second has tvm_fusion.op_kind = 'SIDEWAYS': use one of ELEMENTWISE, INJECTIVE"
    with pytest.raises(TVMFusionError, match=message):
        groups_of(wrong)
