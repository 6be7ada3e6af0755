"""Fusion by planning: what becomes one kernel, and the reason for every pair that does not."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import random_modules
import tvm
from tvm import relax, tirx

from tvm_fusion.analysis import DataflowGraph, OpKind
from tvm_fusion.analysis.extents import product
from tvm_fusion.analysis.nests import concatenate
from tvm_fusion.analysis.primfunc import OP_KIND_ATTR
from tvm_fusion.analysis.relax_graph import build_block_graph, exclude_ops
from tvm_fusion.device import Device
from tvm_fusion.limits import Limits
from tvm_fusion.policy import Decision, Partition, Stitch
from tvm_fusion.policy import units as policy_units
from tvm_fusion.policy.contracted import ContractedGraph
from tvm_fusion.policy.reasons import SeveralKernels
from tvm_fusion.transform.fuse_ops import _prepare as prepare
from tvm_fusion.workloads import WORKLOADS

rop, nn = relax.op, relax.op.nn

DEVICE = Device(opt_in_shared_memory_bytes=1 << 20)
N = tirx.Var("n", "int64")

#: Emits a function: takes a callable that names and emits a value, and the parameters.
Emit = Callable[..., Any]


def graph(emit: Emit, *shapes: Sequence[Any], indices: int = 0, **kinds: str) -> DataflowGraph:
    """The graph of a function over float32 tensors of these shapes, ops named as emitted.

    With ``indices`` an index vector of that length is one more parameter; ``kinds`` overrules
    what analysis says of a PrimFunc.
    """
    params = [relax.Var(f"p{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    if indices:
        params.append(relax.Var("indices", relax.TensorType((indices,), "int64")))
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = emit(lambda name, expr: builder.emit(expr, name_hint=name), *params)
            results = [
                builder.emit_output(made_one, f"result_{made_one.name}")
                for made_one in (made if isinstance(made, tuple) else (made,))
            ]
        builder.emit_func_output(results[0] if len(results) == 1 else relax.Tuple(results))
    return block_graph(builder.get(), **kinds)


def block_graph(mod: tvm.IRModule, **kinds: str) -> DataflowGraph:
    """The graph of a module's only dataflow block."""
    mod = relax.transform.LegalizeOps()(mod)
    for name, kind in kinds.items():
        mod[name] = mod[name].with_attr(OP_KIND_ATTR, kind)
    mod = prepare(mod, ())
    (block,) = (b for b in mod["main"].body.blocks if isinstance(b, relax.DataflowBlock))
    return build_block_graph(mod, block).graph


def network(name: str) -> DataflowGraph:
    """The graph of a built-in network."""
    legal = relax.transform.LegalizeOps()(WORKLOADS[name]())
    return block_graph(relax.transform.FoldConstant()(legal))


def partition(graph: DataflowGraph, limits: Limits | None = None, check: Any = None) -> Partition:
    return Stitch().partition(graph, limits or Limits(), DEVICE, check)


def named(graph: DataflowGraph, ops: Sequence[int]) -> str:
    return " ".join(graph.ops[op].name.removeprefix("result_") for op in ops)


def groups(graph: DataflowGraph, limits: Limits | None = None, check: Any = None) -> list[str]:
    """The groups, each as the names of its ops."""
    return [named(graph, group.ops) for group in partition(graph, limits, check).groups]


def kernels(graph: DataflowGraph, partition: Partition) -> list[tuple[int, ...]]:
    """Ops of each kernel: the groups, and what is in none; views cost no kernel."""
    grouped = {op for group in partition.groups for op in group.ops}
    single = [(i,) for i, op in enumerate(graph.ops) if i not in grouped and not op.is_view]
    return [*(group.ops for group in partition.groups), *single]


def count_heavy(graph: DataflowGraph, partition: Partition) -> tuple[int, int]:
    """Kernels with a contraction, and others."""
    heavy = [
        any(graph.ops[op].kind is OpKind.CONTRACTION for op in ops)
        for ops in kernels(graph, partition)
    ]
    return sum(heavy), len(heavy) - sum(heavy)


def modelled_bytes(graph: DataflowGraph, partition: Partition) -> int:
    """Global memory of all kernels whose loops can be read, each tensor once a kernel."""
    total = 0
    for ops in kernels(graph, partition):
        parts = [graph.ops[op].nests for op in ops]
        if None in parts:
            continue
        nests = concatenate(parts, graph.results_read_outside(ops))
        for tensor in (*nests.inputs, *nests.outputs):
            shape = nests.tensors[tensor]
            total += product(shape.shape).estimate() * shape.element_bytes
    return total


# -- what fuses ------------------------------------------------------------------------------

MATRIX, SQUARE = (1024, 512), (512, 512)


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    return nn.layer_norm(x, scale, shift, -1)


def test_a_norm_takes_what_comes_before_and_behind_it():
    def emit(e: Emit, x: Any, y: Any, g: Any, b: Any) -> Any:
        return e("gelu", nn.gelu(e("norm", layer_norm(e("add", rop.add(x, y)), g, b))))

    assert groups(graph(emit, MATRIX, MATRIX, (512,), (512,))) == ["add norm gelu"]


def test_a_residual_and_the_norm_of_it_are_one_kernel_of_two_outputs():
    def emit(e: Emit, x: Any, y: Any, g: Any, b: Any) -> Any:
        total = e("add", rop.add(x, y))
        return total, e("norm", layer_norm(total, g, b))

    assert groups(graph(emit, MATRIX, MATRIX, (512,), (512,))) == ["add norm"]


def test_a_softmax_takes_its_scale_its_mask_and_what_follows():
    def emit(e: Emit, x: Any, mask: Any) -> Any:
        masked = e("mask", rop.add(e("scale", rop.multiply(x, relax.const(0.125))), mask))
        return e("drop", rop.multiply(e("softmax", nn.softmax(masked)), relax.const(1.1)))

    assert groups(graph(emit, MATRIX, MATRIX)) == ["scale mask softmax drop"]


def test_two_reductions_of_one_tensor_are_one_kernel():
    def emit(e: Emit, x: Any) -> Any:
        return e("mean", rop.mean(x, 1)), e("max", rop.max(x, 1))

    assert groups(graph(emit, MATRIX)) == ["mean max"]


def test_readers_of_two_results_of_one_op_are_one_kernel():
    def emit(e: Emit, x: Any) -> Any:
        halves = e("split", rop.split(x, 2, 1))
        left, right = (e(n, relax.TupleGetItem(halves, i)) for i, n in enumerate(("l", "r")))
        return e("exp", rop.exp(left)), e("log", rop.log(right))

    assert groups(graph(emit, MATRIX)) == ["split exp log"]


def test_a_value_with_three_readers_that_meet_nowhere_is_read_once():
    def emit(e: Emit, x: Any) -> Any:
        h = e("exp", rop.exp(x))
        return e("sum", rop.sum(h, 1)), e("max", rop.max(h, 1)), e("softmax", nn.softmax(h))

    assert groups(graph(emit, MATRIX)) == ["exp sum max softmax"]


def test_a_diamond_around_a_reduction_is_one_kernel():
    def emit(e: Emit, x: Any) -> Any:
        h = e("exp", rop.exp(x))
        return e("div", rop.divide(h, e("sum", rop.sum(h, 1, True))))

    assert groups(graph(emit, MATRIX)) == ["exp sum div"]


def test_a_transpose_inside_of_a_chain_is_fused():
    def emit(e: Emit, x: Any) -> Any:
        turned = e("turn", rop.permute_dims(rop_reshape(e, x), [1, 0, 2]))
        return e("softmax", nn.softmax(turned))

    def rop_reshape(e: Emit, x: Any) -> Any:
        return e("view", rop.reshape(e("exp", rop.exp(x)), (32, 32, 512)))

    assert groups(graph(emit, MATRIX)) == ["exp view turn softmax"]


def test_a_lookup_in_a_table_from_outside_is_fused():
    def emit(e: Emit, table: Any, i: Any) -> Any:
        return e("softmax", nn.softmax(e("take", rop.take(table, i, 0))))

    assert groups(graph(emit, (64, 512), indices=1024)) == ["take softmax"]


def test_rows_of_symbolic_number_are_fused():
    def emit(e: Emit, x: Any, y: Any) -> Any:
        return e("softmax", nn.softmax(e("add", rop.add(x, y))))

    assert groups(graph(emit, (N, 512), (N, 512))) == ["add softmax"]


def test_symbolic_rows_that_a_reshape_multiplies_are_fused():
    def emit(e: Emit, x: Any, y: Any) -> Any:
        flat = e("view", rop.reshape(e("exp", rop.exp(x)), (4 * N, 512)))
        return e("softmax", nn.softmax(e("add", rop.add(flat, y))))

    assert groups(graph(emit, (4, N, 512), (4 * N, 512))) == ["exp view add softmax"]


# -- nests over the tensors of the block ---------------------------------------------------------


def test_nests_name_the_tensors_of_the_block():
    def emit(e: Emit, x: Any) -> Any:
        return e("sum", rop.sum(e("add", rop.add(x, x)), 1))

    add, total = graph(emit, (8, 16)).ops
    assert add.nests is not None
    assert add.nests.inputs == add.reads == (("in", "p0"),)
    assert total.reads == add.nests.outputs == (("out", "add", 0),)
    assert total.leaving == (("out", total.name, 0),)
    assert add.leaving == ()


def test_symbolic_extents_of_a_callee_are_those_of_its_caller():
    """The PrimFunc was legalized for ``n`` rows and is called with 24."""
    rows = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((rows, 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(rop.exp(x))
        builder.emit_func_output(result)
    mod = relax.transform.LegalizeOps()(builder.get())
    fixed = relax.Var("x", relax.TensorType((24, 16), "float32"))
    builder = relax.BlockBuilder()
    callee = builder.add_func(mod["tir_exp"], "tir_exp")
    with builder.function("main", [fixed]):
        with builder.dataflow():
            call = rop.call_tir(callee, relax.Tuple([fixed]), relax.TensorType((24, 16), "float32"))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    (op,) = block_graph(builder.get()).ops
    (nest,) = op.nests.nests
    assert [axis.extent.static for axis in nest.axes] == [24, 16]


# -- views -------------------------------------------------------------------------------------


def test_a_view_at_the_rim_stays_outside():
    def emit(e: Emit, x: Any, w: Any) -> Any:
        view = e("view", rop.reshape(e("norm", nn.softmax(e("exp", rop.exp(x)))), (2048, 256)))
        return e("matmul", rop.matmul(view, w))

    assert groups(graph(emit, MATRIX, (256, 256))) == ["exp norm"]


def test_readers_of_one_view_are_fused_with_its_source():
    def emit(e: Emit, x: Any) -> Any:
        view = e("view", rop.reshape(e("exp", rop.exp(x)), (1024, 1, 512)))
        return e("sum", rop.sum(view, 2)), e("softmax", nn.softmax(view))

    assert groups(graph(emit, MATRIX)) == ["exp view sum softmax"]


def test_siblings_of_which_one_reads_through_a_view_share_the_tensor():
    def emit(e: Emit, x: Any) -> Any:
        view = e("view", rop.reshape(x, (1024, 1, 512)))
        return e("sum", rop.sum(x, 1)), e("softmax", nn.softmax(view))

    (whole,) = groups(graph(emit, MATRIX))
    assert sorted(whole.split()) == ["softmax", "sum", "view"]


def test_siblings_that_read_the_same_view_leave_it_outside():
    def emit(e: Emit, x: Any) -> Any:
        view = e("view", rop.reshape(x, (1024, 1, 512)))
        return e("sum", rop.sum(view, 2)), e("softmax", nn.softmax(view))

    assert groups(graph(emit, MATRIX)) == ["sum softmax"]


# -- contractions ----------------------------------------------------------------------------


def test_a_contraction_keeps_its_elementwise_ops_and_takes_no_row_work():
    def emit(e: Emit, x: Any, w: Any, b: Any) -> Any:
        product = e("matmul", rop.matmul(e("before", nn.softmax(x)), w))
        return e("behind", nn.softmax(e("bias", rop.add(product, b))))

    assert groups(graph(emit, MATRIX, (512, 512), (512,))) == ["matmul bias"]


def test_what_several_contractions_read_stays_out_of_them_whatever_their_number():
    def emit(e: Emit, x: Any, w: Any) -> Any:
        a = e("exp", rop.exp(x))
        return e("left", rop.matmul(a, w)), e("right", rop.matmul(w, a))

    found = partition(graph(emit, SQUARE, SQUARE))
    assert [d.reason.code for d in found.decisions] == ["contraction", "contraction"]


def test_a_contraction_whose_value_is_read_twice_says_so():
    def emit(e: Emit, x: Any, w: Any) -> Any:
        a = e("matmul", rop.matmul(x, w))
        return e("exp", rop.exp(a)), e("sum", rop.sum(a, 1))

    found = partition(graph(emit, SQUARE, SQUARE))
    reasons = {d.consumer.removeprefix("result_"): d.reason.code for d in found.decisions}
    assert reasons == {"exp": "several_readers", "sum": "contraction"}


def test_joins_with_a_contraction_ask_the_check():
    def emit(e: Emit, x: Any, w: Any) -> Any:
        return e("matmul", rop.matmul(e("turn", rop.permute_dims(x)), w))

    made = graph(emit, (512, 1024), (512, 512))
    asked: list[str] = []

    def consents(ops: tuple[int, ...]) -> None:
        asked.append(named(made, ops))

    assert groups(made, check=consents) == ["turn matmul"]
    assert asked == ["turn matmul"]
    assert groups(made, check=lambda _: SeveralKernels(2, "Matmul")) == []


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_heavy_kernels_never_outnumber_contractions(name):
    made = network(name)
    found = partition(made)
    contractions = sum(op.kind is OpKind.CONTRACTION for op in made.ops)
    assert count_heavy(made, found)[0] == contractions


#: Most kernels without a contraction on the block networks.
OTHERS = {"ln_gelu_res": 1, "softmax_chain": 1, "gpt2_block": 4, "llama_block": 4,
          "vit_block": 4, "unet_resblock": 3, "mamba_block": 5}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_kernels_of_the_block_networks(name):
    made = network(name)
    assert count_heavy(made, partition(made))[1] <= OTHERS[name]


# -- what the check refuses -----------------------------------------------------------------------


def norm_and_sibling(e: Emit, x: Any, y: Any) -> Any:
    total = e("add", rop.add(x, y))
    return total, e("softmax", nn.softmax(total)), e("max", rop.max(total, 1))


def test_what_comes_out_as_no_kernel_is_divided_as_it_was_merged():
    made = graph(norm_and_sibling, MATRIX, MATRIX)
    assert groups(made) == ["add softmax max"]
    refused = SeveralKernels(2, "Fallback")
    found = partition(made, check=lambda ops: refused if len(ops) > 2 else None)
    assert sorted(len(group.ops) for group in found.groups) == [2]
    parted = [d.reason for d in found.decisions if not d.fused]
    assert parted == [refused]


# -- legal under all limits, and more under higher ones ------------------------------------------


def random_graph(seed: int) -> DataflowGraph:
    return block_graph(random_modules.random_module(seed, most_ops=16))


LADDER = [1024 * kib for kib in (1, 16, 48, 96)]


@pytest.mark.parametrize("ten", range(4))
def test_groups_of_random_modules_are_legal_and_bytes_fall_with_the_limit(ten):
    for seed in range(10 * ten, 10 * ten + 10):
        made = random_graph(seed)
        last = None
        for limit in LADDER:
            found = partition(made, Limits(shared_memory_bytes=limit))
            members = [group.ops for group in found.groups]
            assert all(made.is_convex(ops) for ops in members), f"seed {seed}"
            assert not made.cyclic_groups(members), f"seed {seed}"
            assert {(d.producer, d.consumer) for d in found.decisions} == {
                (made.ops[p].name, made.ops[c].name) for p, c in made.edges()
            }
            moved = modelled_bytes(made, found)
            assert last is None or moved <= last, f"seed {seed}: {last} to {moved}"
            last = moved


@pytest.mark.parametrize("name", ["gpt2_block", "llama_block", "softmax_chain", "unet_resblock"])
def test_bytes_of_networks_fall_with_the_limit(name):
    made = network(name)
    found = [partition(made, Limits(shared_memory_bytes=limit)) for limit in LADDER]
    moved = [modelled_bytes(made, one) for one in found]
    assert moved == sorted(moved, reverse=True)


def test_the_same_graph_gives_the_same_groups():
    made = network("llama_block")
    assert partition(made) == partition(made)


# -- near-linear -----------------------------------------------------------------------------------


class CountPlans:
    """Counts calls of the planner, and the nests that they plan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.nests = 0
        real = policy_units.plan_kernel

        def plan(group: Any, *args: Any) -> Any:
            self.calls += 1
            self.nests += len(group.nests)
            return real(group, *args)

        monkeypatch.setattr(policy_units, "plan_kernel", plan)


def test_a_chain_of_elementwise_ops_is_planned_once(monkeypatch):
    def emit(e: Emit, x: Any) -> Any:
        for i in range(300):
            x = e(f"v{i}", rop.exp(x))
        return x

    made = graph(emit, (64, 128))
    counted = CountPlans(monkeypatch)
    (group,) = partition(made).groups
    assert len(group.ops) == 300
    assert counted.calls == 1


def test_planning_a_chain_of_norms_takes_near_linear_time(monkeypatch):
    def emit(e: Emit, x: Any) -> Any:
        for i in range(64):
            x = e(f"v{i}", nn.softmax(x))
        return x

    made = graph(emit, (64, 128))
    counted = CountPlans(monkeypatch)
    (group,) = partition(made).groups
    assert len(group.ops) == 64
    assert counted.nests < 8 * 4 * 64


def test_many_small_readers_of_one_large_group_join_at_once(monkeypatch):
    made = network("mamba_block")
    counted = CountPlans(monkeypatch)
    partition(made)
    assert counted.calls < len(made)


# -- merging in an acyclic graph ------------------------------------------------------------------


def test_merging_keeps_an_order_and_finds_every_cycle():
    for seed in range(200):
        rng = random.Random(seed)
        count = rng.randint(2, 12)
        pairs = [(a, b) for b in range(count) for a in range(b) if rng.random() < 0.25]
        made = DataflowGraph.build(
            {f"v{i}": OpKind.ELEMENTWISE for i in range(count)},
            [(f"v{a}", f"v{b}") for a, b in pairs],
        )
        nodes = ContractedGraph(made)
        for _ in range(8):
            alive = sorted(nodes.members)
            chosen = rng.sample(alive, min(len(alive), rng.choice((2, 2, 3))))
            together = [nodes.members[n] for n in alive if n not in chosen]
            together.append(tuple(op for n in chosen for op in nodes.members[n]))
            cyclic = bool(made.cyclic_groups(together))
            assert nodes.would_cycle(chosen) == cyclic, f"seed {seed}"
            if not cyclic:
                nodes.merge(chosen)
                continue
            inside, outside = nodes.detour(chosen)
            assert nodes.node_of[inside] in chosen
            assert nodes.node_of[outside] not in chosen
            assert any(nodes.node_of[later] in chosen for later in made.successors(outside))
            reached = {nodes.node_of[later] for later in made.successors(inside)} - set(chosen)
            while nodes.node_of[outside] not in reached:
                ops = [op for node in reached for op in nodes.members[node]]
                further = {nodes.node_of[later] for op in ops for later in made.successors(op)}
                assert not further - set(chosen) <= reached, "the op outside is not reached"
                reached |= further - set(chosen)


# -- every reason: one function that triggers it, and one that just does not --------------------


def chain(*makers: Callable[[Any], Any]) -> Emit:
    """A chain of ops named a, b, c."""

    def emit(e: Emit, x: Any, *_: Any) -> Any:
        for name, maker in zip("abc", makers, strict=False):
            x = e(name, maker(x))
        return x

    return emit


def softmax(axis: int) -> Callable[[Any], Any]:
    return lambda x: nn.softmax(x, axis)


def divided_by_sum(e: Emit, x: Any) -> Any:
    return e("b", rop.divide(x, e("a", rop.sum(x))))


def around_matmul(through: bool) -> Emit:
    def emit(e: Emit, x: Any, w: Any) -> Any:
        a = e("a", nn.softmax(x))
        other = e("matmul", rop.matmul(a if through else x, w))
        return e("b", rop.add(a, e("norm", nn.softmax(other))))

    return emit


def bias_into_norm(cost: Callable[[Any], Any]) -> Emit:
    def emit(e: Emit, x: Any, y: Any) -> Any:
        return e("c", nn.softmax(e("b", rop.add(e("a", cost(cost(x))), y))))

    return emit


def reads_many(count: int) -> Emit:
    def emit(e: Emit, *tensors: Any) -> Any:
        total = e("a", nn.softmax(tensors[0]))
        for i, tensor in enumerate(tensors[1:count]):
            total = e("b" if i == count - 2 else f"t{i}", rop.add(total, tensor))
        return total

    return emit


EXP, SOFTMAX = rop.exp, softmax(1)

#: reason code -> (pair, refused, allowed, limits, part of the message)
REFUSALS: dict[str, tuple[str, Callable, Callable, Limits, str]] = {
    "no_common_axis": (
        "a b",
        lambda: graph(chain(softmax(1), softmax(0)), (1024, 1024)),
        lambda: graph(chain(softmax(1), softmax(1)), (1024, 1024)),
        Limits(),
        "no axis in common",
    ),
    "symbolic_row": (
        "a b",
        lambda: graph(chain(softmax(0), EXP), (N, 1024)),
        lambda: graph(chain(softmax(0), EXP), (512, 1024)),
        Limits(),
        "symbolic extent n",
    ),
    "shared_memory": (
        "a b",
        lambda: graph(chain(SOFTMAX, lambda x: rop.flip(x, 1)), (256, 8192)),
        lambda: graph(chain(SOFTMAX, EXP), (256, 64)),
        Limits(shared_memory_bytes=16),
        "16 are allowed",
    ),
    "recompute": (
        "a b",
        lambda: graph(bias_into_norm(nn.gelu), (512,), (1024, 512)),
        lambda: graph(bias_into_norm(nn.relu), (512,), (1024, 512)),
        Limits(),
        "1024 times for each of its elements",
    ),
    "gather": (
        "a b",
        lambda: graph(
            lambda e, x, i: e("b", rop.take(e("a", rop.exp(x)), i, 0)), SQUARE, indices=64
        ),
        lambda: graph(
            lambda e, x, i: e("b", rop.exp(e("a", rop.take(x, i, 0)))), SQUARE, indices=64
        ),
        Limits(),
        "indices that depend on data",
    ),
    "unreadable": (
        "a b",
        lambda: graph(chain(EXP, lambda x: rop.argmax(x, 1)), SQUARE),
        lambda: graph(chain(EXP, lambda x: rop.max(x, 1)), SQUARE),
        Limits(),
        "something else than a sum, product or extremum",
    ),
    "contraction": (
        "a b",
        lambda: graph(lambda e, x: e("b", rop.matmul(e("a", rop.exp(x)), x)), SQUARE),
        lambda: graph(lambda e, x: e("b", rop.add(e("a", rop.exp(x)), x)), SQUARE),
        Limits(),
        "would compute a again each time",
    ),
    "cyclic": (
        "a b",
        lambda: graph(around_matmul(True), SQUARE, SQUARE),
        lambda: graph(around_matmul(False), SQUARE, SQUARE),
        Limits(),
        "one kernel would need",
    ),
    "no_benefit": (
        "a b",
        lambda: graph(divided_by_sum, (1 << 22,)),
        lambda: graph(divided_by_sum, (1 << 12,)),
        Limits(),
        "one kernel of 1 thread blocks",
    ),
    "kernel_args": (
        "a b",
        lambda: graph(reads_many(2), *[SQUARE] * 2),
        lambda: graph(reads_many(2), *[SQUARE] * 2),
        Limits(max_kernel_args=2),
        "would take 3 arguments, 2 are allowed",
    ),
    "max_depth": (
        "a b",
        lambda: graph(chain(SOFTMAX, EXP), SQUARE),
        lambda: graph(chain(SOFTMAX, EXP), SQUARE),
        Limits(max_depth=1),
        "the group would have 2 ops, the limit is 1",
    ),
    "max_group_size": (
        "a b",
        lambda: graph(chain(SOFTMAX, SOFTMAX), SQUARE),
        lambda: graph(chain(SOFTMAX, SOFTMAX), SQUARE),
        Limits(max_group_size=1),
        "max_group_size is 1",
    ),
    "max_fusions": (
        "b c",
        lambda: graph(chain(SOFTMAX, SOFTMAX, SOFTMAX), SQUARE),
        lambda: graph(chain(SOFTMAX, SOFTMAX, SOFTMAX), SQUARE),
        Limits(max_fusions=1),
        "this would be fusion 2, max_fusions allows 1",
    ),
    "barrier": (
        "a b",
        lambda: graph(chain(SOFTMAX, EXP), SQUARE, tir_exp="BARRIER"),
        lambda: graph(chain(SOFTMAX, EXP), SQUARE, tir_exp="ELEMENTWISE"),
        Limits(),
        "b is BARRIER",
    ),
    "blocked": (
        "a b",
        lambda: exclude_ops(graph(chain(SOFTMAX, EXP), SQUARE), ["softmax"]),
        lambda: exclude_ops(graph(chain(SOFTMAX, EXP), SQUARE), ["max"]),
        Limits(),
        "a is excluded by no_fuse",
    ),
    "view": (
        "a b",
        lambda: graph(
            lambda e, x: e("c", rop.matmul(e("b", rop.reshape(e("a", rop.exp(x)), SQUARE)), x)),
            SQUARE,
        ),
        lambda: graph(chain(EXP, lambda x: rop.reshape(x, (1024, 256)), SOFTMAX), SQUARE),
        Limits(),
        "b only reshapes",
    ),
}

#: Limits under which the same function is just allowed.
ALLOWED_LIMITS = {
    "kernel_args": Limits(max_kernel_args=3),
    "max_depth": Limits(max_depth=2),
    "max_group_size": Limits(max_group_size=2),
    "max_fusions": Limits(max_fusions=2),
}


def decide(graph: DataflowGraph, pair: str, limits: Limits) -> Decision:
    producer, consumer = pair.split()
    for decision in partition(graph, limits).decisions:
        ends = [name.removeprefix("result_") for name in (decision.producer, decision.consumer)]
        if ends == [producer, consumer]:
            return decision
    raise AssertionError(f"no decision on {pair}")


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_has_a_reason_with_its_figures(code):
    pair, refused, _, limits, message = REFUSALS[code]
    decision = decide(refused(), pair, limits)
    assert (decision.fused, decision.reason.code) == (False, code)
    assert message in decision.reason.message.replace("result_", "")


@pytest.mark.parametrize("code", REFUSALS)
def test_a_pair_that_the_reason_just_spares_is_fused(code):
    pair, _, allowed, limits, _ = REFUSALS[code]
    assert decide(allowed(), pair, ALLOWED_LIMITS.get(code, limits)).fused


def test_more_nests_than_are_planned_together(monkeypatch):
    made = graph(chain(SOFTMAX, SOFTMAX), SQUARE)
    nests = sum(len(op.nests.nests) for op in made.ops)
    monkeypatch.setattr(policy_units, "_MOST_NESTS", nests - 1)
    reason = decide(made, "a b", Limits()).reason
    assert (reason.code, reason.figures) == ("too_many_nests", {"nests": 8, "most": 7})
    monkeypatch.setattr(policy_units, "_MOST_NESTS", nests)
    assert decide(made, "a b", Limits()).fused
