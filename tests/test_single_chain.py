"""The classic rule: equal to its literal statement, and a reason for every pair."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from single_chain_reference import single_chain

from tvm_fusion.analysis import DataflowGraph, Op, OpKind
from tvm_fusion.device import Device
from tvm_fusion.errors import PolicyError
from tvm_fusion.limits import Limits
from tvm_fusion.policy import Decision, Partition, SingleChain

E, SUM, NORM = OpKind.ELEMENTWISE, OpKind.REDUCTION, OpKind.ROW_NORM
MATMUL, CONCAT, TOPK = OpKind.CONTRACTION, OpKind.INJECTIVE, OpKind.BARRIER
DEVICE = Device()

#: Kinds of the random graphs and their names in the reference. Chains need many elementwise ops.
KINDS = {
    "elementwise": (E, False),
    "reduction": (SUM, False),
    "view": (OpKind.INJECTIVE, True),
    "contraction": (MATMUL, False),
    "row_norm": (NORM, False),
    "concat": (CONCAT, False),
    "composite": (OpKind.COMPOSITE, False),
    "barrier": (TOPK, False),
}
WEIGHTS = {"elementwise": 12, "reduction": 4, "view": 2, "contraction": 1}


def random_graph(seed: int) -> tuple[dict, DataflowGraph, Limits]:
    """A random graph, as plain dictionaries and as ours, and limits to go with it."""
    rng = random.Random(seed)
    size = rng.randint(1, 16)
    labels = [f"op{i}" for i in range(size)]
    rng.shuffle(labels)
    weights = [WEIGHTS.get(kind, 0.4) for kind in KINDS]
    kind_of = dict(zip(labels, rng.choices(list(KINDS), weights, k=size), strict=True))
    bytes_of = {op: rng.choice([0, 4, 64, 1024, 40_000, 60_000]) for op in labels}
    edges = []
    for i in range(1, size):
        # Mostly chains; some ops read nothing, several ops, or one op several times.
        for _ in range(rng.choice([0, 1, 1, 1, 1, 1, 1, 2, 3])):
            producer = i - 1 if rng.random() < 0.8 else rng.randrange(i)
            edges.append((labels[producer], labels[i]))
    rng.shuffle(edges)
    outputs = [op for op in labels if rng.random() < 0.1]
    plain_kinds = {
        op: kind if kind in ("elementwise", "reduction", "view") else "other"
        for op, kind in kind_of.items()
    }
    plain = {"kinds": plain_kinds, "bytes": bytes_of, "edges": edges, "outputs": outputs}
    ops = [
        Op(
            op,
            KINDS[kind_of[op]][0],
            is_reshape=KINDS[kind_of[op]][1],
            output_bytes=bytes_of[op],
            shared_bytes=7,  # the model of whole outputs must not look at it
            external_inputs=rng.choice([(), ("weight",)]),
        )
        for op in rng.sample(labels, size)
    ]
    limits = Limits(
        max_depth=rng.randint(1, 10), shared_memory_bytes=rng.choice([None, 0, 64, 1024, 45_000])
    )
    return plain, DataflowGraph.build(ops, edges, outputs), limits


def named(graph: DataflowGraph, partition: Partition) -> list[tuple[list[str], int]]:
    """The groups by the names of their ops, and their shared memory."""
    return [([graph.ops[op].name for op in g.ops], g.shared_bytes) for g in partition.groups]


@pytest.mark.parametrize("hundred", range(10))
def test_groups_and_figures_equal_the_literal_rule_on_a_thousand_random_graphs(hundred):
    policy = SingleChain(shared_memory_model="whole_output")
    found = 0
    for seed in range(100 * hundred, 100 * hundred + 100):
        plain, graph, limits = random_graph(seed)
        budget = DEVICE.shared_memory_budget(limits)
        expected = single_chain(plain, limits.max_depth, budget)
        actual = named(graph, policy.partition(graph, limits, DEVICE))
        assert sorted(actual) == sorted(expected), f"seed {seed}"
        found += len(expected)
    assert found > 50, "the random graphs have hardly any chains"


@pytest.mark.parametrize("hundred", range(10))
def test_every_pair_has_one_decision_and_it_says_fused_where_the_groups_do(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        _, graph, limits = random_graph(seed)
        limits = replace(limits, max_fusions=None if seed % 2 else seed % 7)
        partition = SingleChain("whole_output").partition(graph, limits, DEVICE)
        pairs = [(graph.index[d.producer], graph.index[d.consumer]) for d in partition.decisions]
        assert sorted(pairs) == sorted(set(graph.edges())), f"seed {seed}"
        group_of = {op: i for i, group in enumerate(partition.groups) for op in group.ops}
        for (producer, consumer), decision in zip(pairs, partition.decisions, strict=True):
            together = producer in group_of and group_of[producer] == group_of.get(consumer)
            assert decision.fused is together, f"seed {seed}: {decision}"
            assert decision.reason.code in {"fused", *REFUSALS}, f"seed {seed}: {decision}"


def test_groups_come_in_order_and_hold_their_ops_in_order():
    for seed in range(200):
        _, graph, limits = random_graph(seed)
        groups = SingleChain().partition(graph, limits, DEVICE).groups
        places = [[graph.position[op] for op in group.ops] for group in groups]
        assert places == sorted(places)
        assert all(inside == sorted(inside) for inside in places)


def test_a_chain_takes_eight_ops_unless_the_limits_say_otherwise():
    graph = chain(*[E] * 20)
    sizes = [len(g.ops) for g in SingleChain().partition(graph, Limits(), DEVICE).groups]
    assert sizes == [8, 8, 4]


def test_a_thread_block_stages_less_than_the_whole_output():
    """The same sum: 128 bytes in one thread block, 60,000 bytes as a whole output."""
    ops = [Op("exp", E), Op("sum", SUM, output_bytes=60_000, shared_bytes=128)]
    graph = DataflowGraph.build(ops, [("exp", "sum")], ["sum"])
    assert named(graph, SingleChain().partition(graph, Limits(), DEVICE)) == [(["exp", "sum"], 128)]
    assert not SingleChain("whole_output").partition(graph, Limits(), DEVICE).groups


def test_an_unknown_shared_memory_model_is_an_error():
    with pytest.raises(PolicyError, match="'half': choose one of thread_block, whole_output"):
        SingleChain(shared_memory_model="half")


def test_at_most_max_fusions_pairs_are_fused():
    graph = chain(*[E] * 20)
    for most in range(20):
        partition = SingleChain().partition(graph, Limits(max_fusions=most), DEVICE)
        assert sum(decision.fused for decision in partition.decisions) <= most
    assert not SingleChain().partition(graph, Limits(max_fusions=0), DEVICE).groups


# -- every reason: one graph that triggers it, and one that just does not --------------------


def chain(*kinds: OpKind | Op, outputs: str | None = None) -> DataflowGraph:
    """Ops called a, b, c, ... of which each reads the one before; the last is the output."""
    letters = "abcdefghijklmnopqrstuvwxyz"[: len(kinds)]
    ops = [
        replace(kind, name=letter) if isinstance(kind, Op) else Op(letter, kind)
        for letter, kind in zip(letters, kinds, strict=True)
    ]
    return DataflowGraph.build(ops, pairwise(letters), letters[-1] if outputs is None else outputs)


def graph_of(text: str, outputs: str) -> DataflowGraph:
    """Elementwise ops and edges like ``"a>b b>c"``."""
    edges = [tuple(word.split(">")) for word in text.split()]
    ops = {name: E for edge in edges for name in edge}
    return DataflowGraph.build(ops, edges, outputs.split())


VIEW = Op("", CONCAT, is_reshape=True)


def row_sum(size: int) -> Op:
    return Op("", SUM, shared_bytes=size, output_bytes=4)


def with_inputs(*numbers: int) -> DataflowGraph:
    """A chain of which each op reads that many tensors from outside."""
    ops = []
    for place, number in enumerate(numbers):
        ops.append(Op("", E, external_inputs=tuple(f"x{place}_{i}" for i in range(number))))
    return chain(*ops)


#: reason code -> (the pair in question, a graph that is refused, one that is not, limits, message)
REFUSALS: dict[str, tuple[str, Callable, Callable, Limits, str]] = {
    "blocked": (
        "ab",
        lambda: chain(E, Op("", E, blocked="belongs to cuBLAS")),
        lambda: chain(E, Op("", E, blocked=None)),
        Limits(),
        "b belongs to cuBLAS",
    ),
    "barrier": (
        "ab",
        lambda: chain(E, CONCAT),
        lambda: chain(E, E),
        Limits(),
        "b is INJECTIVE, which this policy does not fuse",
    ),
    "view": (
        "ab",
        lambda: chain(E, VIEW, CONCAT),
        lambda: chain(E, VIEW, E),
        Limits(),
        "b only reshapes: it becomes a view and costs no kernel",
    ),
    "chain_closed": (
        "bc",
        lambda: chain(E, SUM, E),
        lambda: chain(E, E, SUM),
        Limits(),
        "b is a reduction, which closes a chain",
    ),
    "many_consumers": (
        "ab",
        lambda: chain(E, E, outputs="ab"),
        lambda: chain(E, E, outputs="b"),
        Limits(),
        "a is read 2 times (a function output counts as one)",
    ),
    "many_producers": (
        "ac",
        lambda: graph_of("a>c b>c", "c"),
        lambda: graph_of("a>c", "c"),
        Limits(),
        "c reads results of other ops 2 times",
    ),
    "max_depth": (
        "cd",
        lambda: chain(E, E, E, E),
        lambda: chain(TOPK, E, E, E),
        Limits(max_depth=3),
        "the group would have 4 ops, the limit is 3",
    ),
    "max_group_size": (
        "cd",
        lambda: chain(E, E, E, E),
        lambda: chain(TOPK, E, E, E),
        Limits(max_group_size=3),
        "the group would have 4 ops, max_group_size is 3",
    ),
    "max_fusions": (
        "cd",
        lambda: chain(E, E, E, E),
        lambda: chain(TOPK, E, E, E),
        Limits(max_fusions=2),
        "this would be fusion 3, max_fusions allows 2",
    ),
    "kernel_args": (
        "ab",
        lambda: with_inputs(4, 4),  # eight inputs and one output
        lambda: with_inputs(4, 3),
        Limits(max_kernel_args=8),
        "the kernel would take 9 arguments, 8 are allowed",
    ),
    "shared_memory": (
        "ab",
        lambda: chain(E, row_sum(4097)),
        lambda: chain(E, row_sum(4096)),
        Limits(shared_memory_bytes=4096),
        "b needs 4097 bytes of shared memory, 4096 are allowed",
    ),
}


def decide(graph: DataflowGraph, pair: str, limits: Limits) -> Decision:
    """The decision on one pair."""
    decisions = SingleChain().partition(graph, limits, DEVICE).decisions
    return next(d for d in decisions if (d.producer, d.consumer) == tuple(pair))


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_has_a_reason_with_its_figures(code):
    pair, refused, _, limits, message = REFUSALS[code]
    decision = decide(refused(), pair, limits)
    assert (decision.fused, decision.reason.code) == (False, code)
    assert decision.reason.message == message
    assert all(str(figure) in message for figure in decision.reason.figures.values())


@pytest.mark.parametrize("code", REFUSALS)
def test_a_pair_that_the_reason_just_spares_is_fused(code):
    pair, _, allowed, limits, _ = REFUSALS[code]
    assert decide(allowed(), pair, limits).fused


def test_each_read_of_another_op_counts_as_a_predecessor():
    reason = decide(graph_of("a>c b>c b>c", "c"), "ac", Limits()).reason
    assert reason.message == "c reads results of other ops 3 times"


def test_the_same_op_read_twice_is_two_readers_and_two_predecessors():
    assert decide(graph_of("a>b a>b", "b"), "ab", Limits()).reason.code == "many_consumers"


def test_a_reshape_whose_result_leaves_the_function_is_not_said_to_become_a_view():
    graph = chain(replace(VIEW, pinned=True), E, outputs="ab")
    assert decide(graph, "ab", Limits()).reason.code == "many_consumers"
