"""Post-dominator fusion: legal groups, a reason for every pair, and all that stock fuses."""

import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from tvm_fusion.analysis import DataflowGraph, FusePattern, Op, OpKind
from tvm_fusion.analysis.relax_graph import build_block_graph
from tvm_fusion.device import Device
from tvm_fusion.limits import Limits
from tvm_fusion.policy import Decision, Dominator, Partition
from tvm_fusion.policy.reasons import SeveralKernels

DEVICE = Device(opt_in_shared_memory_bytes=1 << 40)
E, SUM, NORM = OpKind.ELEMENTWISE, OpKind.REDUCTION, OpKind.ROW_NORM
CONV, MOVE, TOPK = OpKind.CONTRACTION, OpKind.INJECTIVE, OpKind.BARRIER
KINDS = {"conv": CONV, "sum": SUM, "norm": NORM, "move": MOVE, "topk": TOPK}


def op(name: str, **fields: Any) -> Op:
    """An op whose kind is told by its name: ``sum1`` is a reduction, ``view`` a reshape."""
    word = name.rstrip("0123456789")
    if word == "view":
        return replace(Op(name, MOVE, is_reshape=True), **fields)
    return replace(Op(name, KINDS.get(word, E)), **fields)


def graph(
    text: str,
    outputs: str | None = None,
    order: Iterable[tuple[str, str]] = (),
    **fields: dict[str, Any],
) -> DataflowGraph:
    """A graph from paths like ``"conv>add>relu x>add"``; what nobody reads is an output."""
    edges = [pair for path in text.split() for pair in itertools.pairwise(path.split(">"))]
    names = list(dict.fromkeys(name for path in text.split() for name in path.split(">")))
    index = {name: i for i, name in enumerate(names)}
    read = {producer for producer, _ in edges}
    leaving = [n for n in names if n not in read] if outputs is None else outputs.split()
    return DataflowGraph(
        [op(name, **fields.get(name, {})) for name in names],
        [(index[a], index[b]) for a, b in edges],
        [index[name] for name in leaving],
        [(index[a], index[b]) for a, b in order],
    )


def partition(graph: DataflowGraph, limits: Limits | None = None, check: Any = None) -> Partition:
    return Dominator().partition(graph, limits or Limits(), DEVICE, check)


def groups(graph: DataflowGraph, limits: Limits | None = None, check: Any = None) -> list[str]:
    """The groups, each as the names of its ops."""
    found = partition(graph, limits, check).groups
    return [" ".join(graph.ops[i].name for i in group.ops) for group in found]


def fusions(partition: Partition) -> int:
    """How many kernels the groups save."""
    return sum(len(group.ops) - 1 for group in partition.groups)


# -- what fuses ----------------------------------------------------------------------------


def test_a_contraction_takes_the_elementwise_ops_behind_it():
    assert groups(graph("conv>add>relu")) == ["conv add relu"]


def test_a_contraction_does_not_take_what_comes_before_it():
    assert groups(graph("exp>conv")) == []


def test_two_contractions_never_share_a_group():
    assert groups(graph("conv1>relu1>conv2>relu2")) == ["conv1 relu1", "conv2 relu2"]


def test_a_diamond_of_elementwise_ops_is_one_group():
    (whole,) = groups(graph("exp>left>add exp>right>add"))
    assert sorted(whole.split()) == ["add", "exp", "left", "right"]


def test_a_diamond_behind_a_contraction_is_one_group():
    """The skip of a GELU written out: conv, then x * sigmoid(x)."""
    assert groups(graph("conv>sigmoid>mul conv>mul")) == ["conv sigmoid mul"]


def no_joins(_ops: tuple[int, ...]) -> SeveralKernels:
    """A check under which nothing beyond stock is one kernel."""
    return SeveralKernels(2, "Fallback")


def test_a_diamond_around_a_reduction_is_fused_only_beyond_stock():
    """A softmax written out: stock cannot fuse it, so it needs the check's consent."""
    softmax = graph("exp>sum>div exp>div")
    assert groups(softmax) == ["exp sum div"]
    assert groups(softmax, check=no_joins) == []


def test_elementwise_ops_go_into_a_reduction_and_follow_it():
    assert groups(graph("exp>sum>log")) == ["exp sum log"]


def test_siblings_that_meet_nowhere_stay_apart():
    assert groups(graph("exp>left exp>right", "left right")) == []


def test_each_of_two_branches_fuses_within_itself():
    branches = graph("exp>left1>left2 exp>right1>right2", "left2 right2")
    assert groups(branches) == ["left1 left2", "right1 right2"]


def test_a_value_that_leaves_the_function_ends_a_group():
    assert groups(graph("conv>add>relu", "add relu")) == ["conv add"]


def test_a_reshape_inside_a_group_belongs_to_it_and_one_at_its_rim_is_a_view():
    assert groups(graph("exp>view>log")) == ["exp view log"]
    assert groups(graph("view1>exp>log>view2")) == ["exp log"]


def test_a_contraction_is_joined_across_a_reshape_of_unit_axes_only():
    squeeze = {"keeps_axes": True}
    assert groups(graph("conv>view>add", view=squeeze)) == ["conv view add"]
    assert groups(graph("conv>view>add")) == []


def test_a_slice_of_a_contraction_is_not_joined():
    assert groups(graph("conv>move>add")) == ["move add"]


def test_an_op_of_which_only_some_results_are_read_is_a_group_of_its_own():
    """Its Primitive function then writes only the results that somebody reads."""
    half = {"num_outputs": 2, "dead_outputs": 1}
    assert groups(graph("move>topk", move=half)) == ["move"]


def test_a_group_needs_the_shared_memory_of_the_reduction_that_needs_most():
    fields = {"sum1": {"shared_bytes": 128}, "sum2": {"shared_bytes": 512}}
    found = partition(graph("exp>sum1>log>sum2", **fields)).groups
    assert [group.shared_bytes for group in found] == [512]


def test_with_the_model_of_whole_outputs_a_reduction_needs_its_output():
    one = graph("exp>sum", sum={"shared_bytes": 128, "output_bytes": 4096})
    found = Dominator("whole_output").partition(one, Limits(), DEVICE).groups
    assert [group.shared_bytes for group in found] == [4096]


def test_a_join_beyond_stock_is_made_only_where_the_check_allows_it():
    asked = []

    def check(ops: tuple[int, ...]) -> SeveralKernels:
        asked.append(ops)
        return no_joins(ops)

    both = graph("exp>sum>log")
    assert groups(both) == ["exp sum log"]
    assert groups(both, check=check) == ["exp sum"]
    assert asked == [(0, 1, 2)]
    decisions = partition(both, check=no_joins).decisions
    assert [d.reason.code for d in decisions] == ["fused", "several_kernels"]


def test_what_stock_fuses_needs_no_consent():
    for text in ("conv>add>relu", "exp>sum", "exp>left>add exp>right>add", "exp>move>log"):
        assert groups(graph(text), check=no_joins) == groups(graph(text))


# -- random graphs -------------------------------------------------------------------------

#: (weight, fields) of the ops of a random graph.
RANDOM_OPS: list[tuple[float, dict[str, Any]]] = [
    (12, {"kind": E}),
    (3, {"kind": E, "pattern": FusePattern.BROADCAST}),
    (1.5, {"kind": MOVE}),
    (0.5, {"kind": MOVE, "pattern": FusePattern.ELEMENTWISE}),
    (2, {"kind": MOVE, "is_reshape": True}),
    (2, {"kind": SUM}),
    (1.5, {"kind": SUM, "pattern": FusePattern.ANCHOR}),
    (1, {"kind": NORM}),
    (1.5, {"kind": CONV}),
    (0.3, {"kind": OpKind.COMPOSITE}),
    (0.5, {"kind": TOPK}),
    (0.3, {"kind": E, "blocked": "is excluded by no_fuse"}),
]
MAPS_ONLY = [(weight, fields) for weight, fields in RANDOM_OPS if fields["kind"] in (E, MOVE)]
NO_VIEWS = [(weight, fields) for weight, fields in RANDOM_OPS if "is_reshape" not in fields]


def random_graph(seed: int, table: list[tuple[float, dict[str, Any]]]) -> DataflowGraph:
    """Up to 16 ops that mostly read one or two of the five before them; a reshape reads one."""
    rng = random.Random(seed)
    size = rng.randint(1, 16)
    ops, edges = [], []
    for i, fields in enumerate(rng.choices([f for _, f in table], [w for w, _ in table], k=size)):
        reads = 1 if "is_reshape" in fields else rng.choice([0, 1, 1, 1, 2, 2, 3])
        for _ in range(reads if i else 0):
            near = rng.random() < 0.5
            edges.append((i - 1 if near else rng.randrange(max(0, i - 5), i), i))
        reduces = fields["kind"] in (SUM, NORM)
        outside = "is_reshape" not in fields and rng.random() < 0.3
        ops.append(
            Op(
                f"op{i}",
                shared_bytes=rng.choice([64, 128, 4096, 60_000]) if reduces else 0,
                external_inputs=(f"weight{i}",) if outside else (),
                **fields,
            )
        )
    return DataflowGraph(ops, edges, [i for i in range(size) if rng.random() < 0.07])


def random_limits(seed: int) -> Limits:
    """Limits that often bind, and often do not."""
    rng = random.Random(seed)
    return Limits(
        shared_memory_bytes=rng.choice([None, 0, 100, 4096]),
        max_depth=rng.choice([None, None, 3, 6]),
        max_group_size=rng.choice([None, None, 2, 5]),
        max_kernel_args=rng.choice([512, 512, 3, 5]),
        max_fusions=rng.choice([None, None, None, 4]),
    )


@pytest.mark.parametrize("hundred", range(10))
def test_every_pair_has_one_decision_and_it_says_fused_where_the_groups_do(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        graph = random_graph(seed, RANDOM_OPS)
        found = partition(graph, random_limits(seed))
        pairs = [(graph.index[d.producer], graph.index[d.consumer]) for d in found.decisions]
        assert sorted(pairs) == sorted(set(graph.edges())), f"seed {seed}"
        group_of = {i: number for number, group in enumerate(found.groups) for i in group.ops}
        for (producer, consumer), decision in zip(pairs, found.decisions, strict=True):
            together = producer in group_of and group_of[producer] == group_of.get(consumer)
            assert decision.fused is together, f"seed {seed}: {decision}"
            assert decision.reason.code in {"fused", *REFUSALS}, f"seed {seed}: {decision}"


@pytest.mark.parametrize("hundred", range(10))
def test_groups_are_legal(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        graph = random_graph(seed, RANDOM_OPS)
        limits = random_limits(seed)
        found = [group.ops for group in partition(graph, limits).groups]
        assert len({i for ops in found for i in ops}) == sum(map(len, found)), f"seed {seed}"
        assert not graph.cyclic_groups(found), f"seed {seed}"
        assert [ops[0] for ops in found] == sorted(ops[0] for ops in found), f"seed {seed}"
        for ops in found:
            assert list(ops) == sorted(ops), f"seed {seed}"
            assert graph.is_convex(ops), f"seed {seed}"
            assert len(graph.components(ops)) == 1, f"seed {seed}"
            kinds = [graph.ops[i].kind for i in ops]
            assert kinds.count(CONV) + kinds.count(NORM) <= 1, f"seed {seed}"
            assert not {TOPK, OpKind.COMPOSITE} & set(kinds), f"seed {seed}"
            assert not any(graph.ops[i].blocked for i in ops), f"seed {seed}"


@pytest.mark.parametrize("hundred", range(10))
def test_groups_respect_every_limit(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        graph = random_graph(seed, RANDOM_OPS)
        limits = random_limits(seed)
        found = partition(graph, limits)
        budget = DEVICE.shared_memory_budget(limits)
        assert all(group.shared_bytes <= budget for group in found.groups), f"seed {seed}"
        for most in (limits.max_depth, limits.max_group_size):
            assert all(len(g.ops) <= (most or 16) for g in found.groups), f"seed {seed}"
        assert limits.max_fusions is None or fusions(found) <= limits.max_fusions, f"seed {seed}"
        for group in found.groups:
            inside = set(group.ops)
            reads = {p for i in inside for p in graph.producers(i)} - inside
            weights = [w for i in inside for w in graph.ops[i].external_inputs]
            writes = [
                i
                for i in inside
                if i in graph.outputs
                or not inside.issuperset(graph.consumers(i))
                or not graph.consumers(i)
            ]
            # A view is left outside after the count; what it made of one tensor stays one tensor.
            assert len(reads) + len(weights) + len(writes) <= limits.max_kernel_args, f"seed {seed}"


def test_arguments_are_counted_for_the_whole_group_however_it_grew():
    """Ops with a tensor of their own each: six arguments are five tensors and the output."""
    names = [f"exp{i}" for i in range(8)]
    fields = {name: {"external_inputs": (f"weight_of_{name}",)} for name in names}
    chain = graph(">".join(names), **fields)
    found = groups(chain, Limits(max_kernel_args=6))
    assert found == [" ".join(names[:5]), " ".join(names[5:])]


@pytest.mark.parametrize("most", range(6))
def test_at_most_max_fusions_kernels_are_saved(most):
    for seed in range(200):
        found = partition(random_graph(seed, RANDOM_OPS), Limits(max_fusions=most))
        assert fusions(found) <= most, f"seed {seed}"
        assert most or not any(decision.fused for decision in found.decisions), f"seed {seed}"


# -- limits are monotone -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("max_depth", range(1, 5)),
        ("max_group_size", range(1, 5)),
        ("max_fusions", range(4)),
        ("max_kernel_args", range(2, 10)),
        ("shared_memory_bytes", (0, 63, 64, 65, 4096)),
    ],
)
def test_a_pair_that_is_legal_under_a_limit_is_legal_under_a_larger_one(field, values):
    """For any two ops by themselves, so that no earlier choice is in the way."""
    crossed = 0
    for (_, first), (_, second) in itertools.product(RANDOM_OPS, repeat=2):
        ops = [
            Op(name, shared_bytes=64 if fields["kind"] in (SUM, NORM) else 0, **fields)
            for name, fields in (("a", first), ("b", second))
        ]
        ops[1] = replace(ops[1], external_inputs=() if ops[1].is_reshape else ("x", "y", "z"))
        pair = DataflowGraph(ops, [(0, 1)], [1])
        fused = [partition(pair, Limits(**{field: v})).decisions[0].fused for v in values]
        assert fused == sorted(fused), f"{first} {second}"
        crossed += fused[0] is not fused[-1]
    assert crossed, "no pair was ever refused because of this limit"


def binding_limits(found: Partition) -> dict[str, int]:
    """The smallest limits that the groups of a graph without views just meet."""
    size = max((len(group.ops) for group in found.groups), default=1)
    return {
        "max_depth": size,
        "max_group_size": size,
        "max_fusions": fusions(found),
        "shared_memory_bytes": max((group.shared_bytes for group in found.groups), default=0),
    }


@pytest.mark.parametrize(
    "field", ["max_depth", "max_group_size", "max_fusions", "shared_memory_bytes"]
)
def test_a_limit_that_every_group_meets_changes_no_group(field):
    for seed in range(500):
        graph = random_graph(seed, NO_VIEWS)
        free = partition(graph, Limits(shared_memory_bytes=1 << 40))
        least = binding_limits(free)[field]
        for value in (least, least + 1, 2 * least + 7):
            limits = replace(Limits(shared_memory_bytes=1 << 40), **{field: value})
            assert partition(graph, limits).groups == free.groups, f"seed {seed}"


@pytest.mark.parametrize("field", ["max_depth", "max_group_size"])
def test_a_longer_limit_saves_no_fewer_kernels_of_a_chain(field):
    chain = graph(">".join(f"exp{i}" for i in range(24)))
    saved = [fusions(partition(chain, Limits(**{field: most}))) for most in range(1, 25)]
    assert saved == sorted(saved)
    assert (saved[0], saved[-1]) == (0, 23)


# -- names and order of the ops do not matter ----------------------------------------------


def test_renaming_ops_keeps_the_groups():
    for seed in range(300):
        original = random_graph(seed, RANDOM_OPS)
        names = random.Random(seed).sample(range(1000), len(original))
        renamed = original.with_ops(
            [replace(op, name=f"v{n}") for op, n in zip(original.ops, names, strict=True)]
        )
        limits = random_limits(seed)
        assert partition(renamed, limits).groups == partition(original, limits).groups


def reordered(graph: DataflowGraph, seed: int) -> DataflowGraph:
    """The same graph with its ops in another order that also respects every edge."""
    rng = random.Random(seed)
    waiting = {i: set(graph.producers(i)) for i in range(len(graph))}
    order: list[int] = []
    while waiting:
        ready = sorted(i for i, before in waiting.items() if before <= set(order))
        order.append(rng.choice(ready))
        del waiting[order[-1]]
    place = {old: new for new, old in enumerate(order)}
    edges = [(place[p], place[c]) for c in range(len(graph)) for p in graph.producers(c)]
    return DataflowGraph([graph.ops[i] for i in order], edges, [place[i] for i in graph.outputs])


def test_reordering_independent_ops_keeps_the_groups_up_to_order():
    """Without limits, under which who comes first gets what is left of them."""
    for seed in range(1000):
        original = random_graph(seed, MAPS_ONLY)
        other = reordered(original, seed)
        assert {frozenset(names.split()) for names in groups(other)} == {
            frozenset(names.split()) for names in groups(original)
        }, f"seed {seed}"


def groups_in_order(order: str, edges: str, **fields: dict[str, Any]) -> set[frozenset[str]]:
    """The groups of a graph whose ops come in that order."""
    pairs = [tuple(edge.split(">")) for edge in edges.split()]
    ops = [op(name, **fields.get(name, {})) for name in order.split()]
    found = groups(DataflowGraph.build(ops, pairs, [order.split()[-1]]))
    return {frozenset(names.split()) for names in found}


def test_reordering_a_bias_and_a_contraction_keeps_the_groups():
    """``outer(add(conv, bias), bias)``: is ``bias`` made before or after ``conv``?"""
    edges, outer = "bias>add conv>add add>outer bias>outer", {"pattern": FusePattern.BROADCAST}
    first = groups_in_order("bias conv add outer", edges, outer=outer)
    second = groups_in_order("conv bias add outer", edges, outer=outer)
    assert first == {frozenset({"bias", "conv", "add", "outer"})}
    assert second == first


def test_of_two_contractions_the_first_in_order_gets_what_joins_them():
    """As in stock: the one case in which the order of independent ops tells."""
    edges = "conv1>add conv2>add"
    assert groups_in_order("conv1 conv2 add", edges) == {frozenset({"conv1", "add"})}
    assert groups_in_order("conv2 conv1 add", edges) == {frozenset({"conv2", "add"})}


# -- every reason: one graph that triggers it, and one that just does not --------------------


def inputs(number: int) -> dict[str, Any]:
    return {"external_inputs": tuple(f"x{i}" for i in range(number))}


#: reason code -> (the pair in question, a graph that is refused, one that is not, limits, message)
REFUSALS: dict[str, tuple[str, Callable, Callable, Limits, str]] = {
    "blocked": (
        "exp log",
        lambda: graph("exp>log", log={"blocked": "belongs to cuBLAS"}),
        lambda: graph("exp>log", log={"blocked": None}),
        Limits(),
        "log belongs to cuBLAS",
    ),
    "barrier": (
        "exp topk",
        lambda: graph("exp>topk"),
        lambda: graph("exp>topk", topk={"kind": E}),
        Limits(),
        "topk is BARRIER, which this policy does not fuse",
    ),
    "view": (
        "exp view",
        lambda: graph("exp>view>topk"),
        lambda: graph("exp>view>log"),
        Limits(),
        "view only reshapes: it becomes a view and costs no kernel",
    ),
    "too_large_to_try": (
        "sum add0",
        lambda: graph("sum>" + ">".join(f"add{i}" for i in range(64))),
        lambda: graph("sum>" + ">".join(f"add{i}" for i in range(63))),
        Limits(),
        "the group would have 65 ops; joins beyond stock's are tried up to 64",
    ),
    "several_readers": (
        "exp left",
        lambda: graph("exp>left exp>right", "left right"),
        lambda: graph("exp>left>add exp>right>add"),
        Limits(),
        "exp is needed in 2 places (a function output counts as one)",
    ),
    "path_blocked": (
        "exp add",
        lambda: graph("exp>sum>move>add exp>add"),
        lambda: graph("exp>sqrt>move>add exp>add"),
        Limits(),
        "between exp and add, where its paths meet, sum cannot be fused through",
    ),
    "two_anchors": (
        "conv1 conv2",
        lambda: graph("conv1>conv2"),
        lambda: graph("conv1>conv2", conv2={"kind": E}),
        Limits(),
        "conv1 and conv2 each need a loop nest of their own",
    ),
    "kinds": (
        "exp conv",
        lambda: graph("exp>conv"),
        lambda: graph("exp>conv", conv={"kind": SUM}),
        Limits(),
        "exp (ELEMENTWISE) is not fused into conv (CONTRACTION)",
    ),
    "cyclic": (
        "sum add",
        lambda: graph("sum>add topk>add", "add", [("sum", "topk")]),
        lambda: graph("sum>add topk>add", "add"),
        Limits(),
        "one kernel would need topk, which needs sum of it",
    ),
    "max_depth": (
        "add mul",
        lambda: graph("exp>log>add>mul"),
        lambda: graph("topk>log>add>mul"),
        Limits(max_depth=3),
        "the group would have 4 ops, the limit is 3",
    ),
    "max_group_size": (
        "exp log",
        lambda: graph("exp>log>add exp>sqrt>add"),
        lambda: graph("exp>log>add exp>add"),
        Limits(max_group_size=3),
        "the group would have 4 ops, max_group_size is 3",
    ),
    "max_fusions": (
        "exp log",
        lambda: graph("exp>log>add exp>sqrt>add"),
        lambda: graph("exp>log>add exp>add"),
        Limits(max_fusions=2),
        "this would be fusion 3, max_fusions allows 2",
    ),
    "kernel_args": (
        "exp add",
        lambda: graph("exp>add", exp=inputs(4), add={"external_inputs": tuple("abcd")}),
        lambda: graph("exp>add", exp=inputs(4), add={"external_inputs": tuple("abc")}),
        Limits(max_kernel_args=8),
        "the kernel would take 9 arguments, 8 are allowed",
    ),
    "shared_memory": (
        "exp sum",
        lambda: graph("exp>sum", sum={"shared_bytes": 4097}),
        lambda: graph("exp>sum", sum={"shared_bytes": 4096}),
        Limits(shared_memory_bytes=4096),
        "sum needs 4097 bytes of shared memory, 4096 are allowed",
    ),
}


def decide(
    graph: DataflowGraph, producer: str, consumer: str, limits: Limits | None = None
) -> Decision:
    """The decision on one pair."""
    decisions = partition(graph, limits).decisions
    return next(d for d in decisions if (d.producer, d.consumer) == (producer, consumer))


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_has_a_reason_with_its_figures(code):
    pair, refused, _, limits, message = REFUSALS[code]
    decision = decide(refused(), *pair.split(), limits)
    assert (decision.fused, decision.reason.code) == (False, code)
    assert decision.reason.message == message
    assert all(str(figure) in message for figure in decision.reason.figures.values())


@pytest.mark.parametrize("code", REFUSALS)
def test_a_pair_that_the_reason_just_spares_is_fused(code):
    pair, _, allowed, limits, _ = REFUSALS[code]
    assert decide(allowed(), *pair.split(), limits).fused


def test_a_contraction_in_the_way_is_named_in_the_reason():
    """``add(conv(exp), exp)``: two elementwise ops that only the contraction keeps apart."""
    reason = decide(graph("exp>conv>add exp>add"), "exp", "add").reason
    assert "conv" in reason.message


def test_what_would_not_be_joined_anyway_is_not_too_large_to_try():
    chain = ">".join(f"add{i}" for i in range(64))
    for first, second in (("exp", "conv"), ("exp", "norm")):
        assert decide(graph(f"{first}>{second}>{chain}"), first, second).reason.code == "kinds"
    spread = graph(f"move>conv>{chain}", move={"pattern": FusePattern.BROADCAST})
    assert decide(spread, "move", "conv").reason.code == "too_large_to_try"


def test_a_reader_that_went_to_another_group_is_no_op_in_between():
    """A residual: ``add`` joined the norm, which comes first."""
    reason = decide(graph("norm>add conv>add"), "conv", "add").reason
    assert reason.message == (
        "the group of add, where the paths of conv meet, holds an op that conv is not fused into"
    )
    assert reason.would_fuse_if == "the group of add held no such op"


# -- at least what stock FuseOps fuses -------------------------------------------------------

relax_op, nn = relax.op, relax.op.nn
SHAPES = [(8, 16), (8, 16), (16,), (16, 16)]


def shape_of(value: relax.Expr) -> tuple[int, ...]:
    return tuple(int(extent) for extent in value.ty.shape)


def random_module(seed: int) -> tvm.IRModule:
    """A function of up to nine random ops over fixed shapes, legalized."""
    rng = random.Random(seed)
    params = [relax.Var(f"p{i}", relax.TensorType(s, "float32")) for i, s in enumerate(SHAPES)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            values: list[Any] = list(params)
            for _ in range(rng.randint(2, 9)):
                recent = values[-4:] if rng.random() < 0.7 else values
                for result in random_op(rng, builder, rng.choice(recent), values):
                    values.append(builder.emit(result))
            made = values[len(params) :]
            results = dict.fromkeys([made[-1], *(v for v in made if rng.random() < 0.1)])
            result = relax.Tuple(list(results)) if len(results) > 1 else made[-1]
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return tell_calls_apart(relax.transform.LegalizeOps()(builder.get()))


def random_op(rng: random.Random, builder: Any, x: Any, values: list[Any]) -> list[relax.Expr]:
    """The results of one random op on ``x`` and perhaps another value."""
    shape = shape_of(x)

    def other(*shapes: tuple[int, ...]) -> Any:
        fitting = [v for v in values if shape_of(v) in shapes]
        return rng.choice(fitting[-5:]) if fitting else None

    plain = {
        "exp": lambda: [relax_op.exp(x)],
        "relu": lambda: [nn.relu(x)],
        "add": lambda: [relax_op.add(x, other(shape, shape[-1:]))],
        "multiply": lambda: [relax_op.multiply(x, other(shape, (*shape[:-1], 1)))],
        "reshape": lambda: [relax_op.reshape(x, rng.choice([(-1,), (8, -1), (-1, 8)]))],
    }
    matrix = {
        "transpose": lambda: [relax_op.permute_dims(x)],
        "sum": lambda: [relax_op.sum(x, -1, keepdims=rng.random() < 0.7)],
        "softmax": lambda: [nn.softmax(x)],
        "concat": lambda: [relax_op.concat([x, other(shape)], 1)],
        "split": lambda: split(),
        "matmul": lambda: matmul(),
    }

    def split() -> list[relax.Expr]:
        if shape[1] % 2:
            return plain["relu"]()
        halves = builder.emit(relax_op.split(x, 2, 1))
        return [relax.TupleGetItem(halves, 0), relax.TupleGetItem(halves, 1)]

    def matmul() -> list[relax.Expr]:
        right = other(*(s for s in map(shape_of, values) if len(s) == 2 and s[0] == shape[1]))
        return plain["exp"]() if right is None else [relax_op.matmul(x, right)]

    weights = {"exp": 2, "relu": 2, "add": 3, "multiply": 2, "matmul": 2}
    choice = {**plain, **(matrix if len(shape) == 2 else {})}
    name = rng.choices(list(choice), [weights.get(name, 1) for name in choice])[0]
    return choice[name]()


def tell_calls_apart(mod: tvm.IRModule) -> tvm.IRModule:
    """Give each call a PrimFunc of its own, so that its name tells where it ended up."""
    main = mod["main"]
    functions, bindings = {}, []
    for i, binding in enumerate(main.body.blocks[0].bindings):
        value = binding.value
        if isinstance(value, relax.Call):
            callee = tvm.ir.GlobalVar(f"f{i}_{value.args[0].name_hint}")
            functions[callee] = mod[value.args[0]]
            relax.expr._update_type(callee, functions[callee].ty)
            args = [callee, *value.args[1:]]
            value = relax.Call(value.op, args, value.attrs, value.ty_args, ret_ty=value.ty)
        bindings.append(relax.VarBinding(binding.var, value))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], main.body.body)
    made = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs)
    functions[mod.get_global_var("main")] = made
    return relax.transform.DeadCodeElimination()(tvm.IRModule(functions))


def fused_by_stock(mod: tvm.IRModule) -> list[set[str]]:
    """For each group of stock FuseOps the PrimFuncs that it calls."""
    steps = [relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps()]
    fused = tvm.transform.Sequential(steps)(mod)
    found = []
    for func in fused.functions.values():
        if isinstance(func, relax.Function) and func.attrs and "Primitive" in func.attrs:
            calls = [b.value for b in func.body.blocks[0].bindings]
            found.append({c.args[0].name_hint for c in calls if isinstance(c, relax.Call)})
    return found


def pairs_that_only_stock_fuses(mod: tvm.IRModule) -> tuple[list[tuple[str, str]], int]:
    """Pairs of ops, reshapes left out, in one group of stock and not of ours; and stock's pairs."""
    graph = build_block_graph(mod, mod["main"].body.blocks[0]).graph
    found = Dominator().partition(graph, Limits(), Device()).groups
    ours = [{graph.ops[i].function for i in group.ops} for group in found]
    reshapes = {op.function for op in graph.ops if op.is_reshape}
    stock = [
        pair
        for group in fused_by_stock(mod)
        for pair in itertools.combinations(sorted(group - reshapes), 2)
    ]
    return [pair for pair in stock if not any(set(pair) <= group for group in ours)], len(stock)


@pytest.mark.parametrize("ten", range(15))
def test_all_that_stock_fuses_is_fused_on_random_modules(ten):
    total = 0
    for seed in range(10 * ten, 10 * ten + 10):
        mod = random_module(seed)
        missing, number = pairs_that_only_stock_fuses(mod)
        assert not missing, f"seed {seed}: {missing} in\n{mod.script()}"
        total += number
    assert total, "stock fused nothing at all"


def test_a_matrix_times_a_vector_takes_what_comes_before_it_as_stock_does():
    params = [
        relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", (8, 16)), ("v", (16,)))
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            output = builder.emit_output(relax_op.matmul(relax_op.exp(params[0]), params[1]))
        builder.emit_func_output(output)
    mod = tell_calls_apart(relax.transform.LegalizeOps()(builder.get()))
    assert any(isinstance(func, tirx.PrimFunc) for func in mod.functions.values())
    missing, number = pairs_that_only_stock_fuses(mod)
    assert (missing, number) == ([], 1)
