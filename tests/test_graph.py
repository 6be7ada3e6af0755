"""The dataflow graph by hand: errors, order, dominators, convexity, against definitions."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_fusion.analysis import DataflowGraph, Op, OpKind
from tvm_fusion.analysis import graph as graph_module
from tvm_fusion.errors import GraphError, TVMFusionError

E = OpKind.ELEMENTWISE
SEARCH = settings(deadline=None, derandomize=True, max_examples=200)


def graph(text: str, outputs: str = "", **kinds: OpKind) -> DataflowGraph:
    """A graph from edges like ``"a>b b>c"``; ops of no edge are written alone."""
    edges = [tuple(word.split(">")) for word in text.split() if ">" in word]
    names = dict.fromkeys(name for word in text.split() for name in word.split(">"))
    return DataflowGraph.build({name: kinds.get(name, E) for name in names}, edges, outputs.split())


def names(graph: DataflowGraph, ops: list[int] | tuple[int, ...]) -> str:
    """The ops by name, in the order given."""
    return " ".join(graph.ops[op].name for op in ops)


# -- what is refused -----------------------------------------------------------------------


def test_a_cycle_is_an_error_that_names_its_ops():
    with pytest.raises(GraphError, match=r"cycle through a, b, c$"):
        graph("a>b b>c c>a d")


def test_an_op_that_reads_itself_is_a_cycle():
    with pytest.raises(GraphError, match=r"cycle through b$"):
        graph("a>b b>b")


def test_a_cycle_does_not_name_the_ops_behind_it():
    with pytest.raises(GraphError, match=r"cycle through b, c$"):
        graph("a>b b>c c>b c>d d>e")


def test_an_order_without_a_value_can_close_a_cycle():
    ops = [Op("a", E), Op("b", E)]
    with pytest.raises(GraphError, match="cycle through a, b"):
        DataflowGraph(ops, [(0, 1)], order=[(1, 0)])


def test_an_unknown_name_in_an_edge_is_an_error_that_tells_the_names_there_are():
    with pytest.raises(GraphError, match="no op is named 'c': the graph has a, b"):
        DataflowGraph.build({"a": E, "b": E}, [("a", "c")])


def test_an_unknown_name_in_the_outputs_is_an_error():
    with pytest.raises(GraphError, match="no op is named 'z': the graph has a"):
        DataflowGraph.build({"a": E}, [], ["z"])


def test_an_unknown_name_in_a_graph_without_ops_is_an_error():
    with pytest.raises(GraphError, match="no op is named 'z': the graph has none"):
        DataflowGraph.build({}, [], ["z"])


@pytest.mark.parametrize(
    "arguments",
    [{"edges": [(0, 2)]}, {"edges": [(-1, 0)]}, {"edges": [], "outputs": [2]}],
    ids=["consumer", "producer", "output"],
)
def test_an_index_out_of_range_is_an_error(arguments):
    with pytest.raises(GraphError, match=r"refers to op -?\d: the graph has 2 ops"):
        DataflowGraph([Op("a", E), Op("b", E)], **arguments)


def test_an_order_to_an_unknown_op_is_an_error():
    with pytest.raises(GraphError, match="refers to op 5"):
        DataflowGraph([Op("a", E)], [], order=[(0, 5)])


def test_two_ops_of_one_name_are_an_error_that_names_them_once():
    with pytest.raises(GraphError, match="ops named twice: a, c: give each op its own name"):
        DataflowGraph([Op(name, E) for name in "cabac"], [])


def test_a_graph_error_is_a_value_error_and_an_error_of_this_package():
    assert issubclass(GraphError, ValueError)
    assert issubclass(GraphError, TVMFusionError)


# -- edges and order -----------------------------------------------------------------------


def test_an_empty_graph_is_a_graph():
    empty = DataflowGraph([], [])
    assert len(empty) == 0
    assert empty.topological_order == empty.post_dominators == empty.dominators == ()
    assert empty.is_convex([])


def test_parallel_edges_count_separately_but_are_one_pair():
    add_x_x = graph("x>add x>add")
    assert list(add_x_x.producers(1)) == [0, 0]
    assert list(add_x_x.consumers(0)) == [1, 1]
    assert add_x_x.edges() == [(0, 1)]
    assert [op.name for op in add_x_x.consumers_of("x")] == ["add"]
    assert [op.name for op in add_x_x.producers_of("add")] == ["x"]


def test_producers_keep_the_order_of_the_arguments():
    two = DataflowGraph.build({"c": E, "b": E, "a": E}, [("a", "c"), ("b", "c")])
    assert [op.name for op in two.producers_of("c")] == ["a", "b"]


def test_ops_in_order_stay_in_that_order():
    assert graph("a b c d a>c b>c").topological_order == (0, 1, 2, 3)


def test_ops_out_of_order_are_sorted():
    backwards = DataflowGraph.build({"c": E, "b": E, "a": E}, [("a", "b"), ("b", "c")])
    assert names(backwards, backwards.topological_order) == "a b c"
    assert backwards.position == (2, 1, 0)


def test_with_ops_keeps_edges_outputs_and_order():
    ops = [Op("a", E), Op("b", E), Op("c", E)]
    original = DataflowGraph(ops, [(0, 1), (0, 1)], [1], order=[(2, 0)])
    other = original.with_ops([Op(op.name, OpKind.BARRIER) for op in ops])
    assert {op.kind for op in other.ops} == {OpKind.BARRIER}
    assert list(other.producers(1)) == [0, 0]
    assert other.outputs == {1}
    assert other.topological_order == original.topological_order == (2, 0, 1)


# -- dominators by example -----------------------------------------------------------------


def test_the_paths_of_a_diamond_meet_at_its_end():
    diamond = graph("top>left top>right left>bottom right>bottom", "bottom")
    top, left, right, bottom = range(4)
    assert diamond.post_dominators[top] == bottom
    assert diamond.post_dominators[left] == diamond.post_dominators[right] == bottom
    assert diamond.post_dominators[bottom] is None
    assert diamond.dominators[bottom] == top


def test_a_value_that_leaves_the_graph_has_no_post_dominator():
    assert graph("a>b", "b").post_dominators == (1, None)
    assert graph("a>b", "a b").post_dominators == (None, None)


def test_a_result_that_nobody_reads_ends_a_path_like_an_output():
    assert graph("a>b a>dead", "b").post_dominators[0] is None


def test_a_tensor_from_outside_is_a_second_way_in():
    ops = [Op("a", E), Op("b", E), Op("c", E, external_inputs=("weight",))]
    chain = DataflowGraph(ops, [(0, 1), (1, 2)])
    assert chain.dominators == (None, 0, None)


# -- random graphs against brute force -----------------------------------------------------


@st.composite
def dags(draw, most=9):
    """A graph of up to ``most`` ops in any order, with parallel edges, orders and outputs."""
    size = draw(st.integers(1, most))
    place = draw(st.permutations(range(size)))  # place[op]: when it may run
    pairs = [(a, b) for a in range(size) for b in range(size) if place[a] < place[b]]
    some = st.lists(st.sampled_from(pairs), max_size=2 * size) if pairs else st.just([])
    edges = draw(some)
    order = draw(some.map(lambda found: found[:2]))
    outputs = draw(st.sets(st.integers(0, size - 1)))
    outside = draw(st.sets(st.integers(0, size - 1)))
    ops = [Op(f"op{i}", E, external_inputs=("x",) if i in outside else ()) for i in range(size)]
    return DataflowGraph(ops, edges, outputs, order)


@st.composite
def dags_with_sets(draw, most=9):
    """A graph and a set of its ops."""
    found = draw(dags(most))
    return found, draw(st.sets(st.integers(0, len(found) - 1)))


@st.composite
def dags_with_groups(draw, most=9):
    """A graph and disjoint groups of its ops."""
    found = draw(dags(most))
    label = draw(st.lists(st.integers(0, 3), min_size=len(found), max_size=len(found)))
    groups = [tuple(op for op in range(len(found)) if label[op] == g) for g in (1, 2, 3)]
    return found, [group for group in groups if group]


def steps(graph: DataflowGraph) -> set[tuple[int, int]]:
    """(earlier, later) by values and by orders without values."""
    return set(graph.edges()) | set(graph._order)


def paths(start: int, following: dict[int, list[int]], ends: set[int]) -> list[set[int]]:
    """The ops on each path from ``start`` to an op of ``ends``, by enumeration."""
    found = [{start}] if start in ends else []
    for after in following[start]:
        found += [{start} | path for path in paths(after, following, ends)]
    return found


def nearest_on_all_paths(start: int, following: dict[int, list[int]], ends: set[int]) -> int | None:
    """The op other than ``start`` on every path to ``ends`` that comes first on them."""
    shared = set.intersection(*paths(start, following, ends)) - {start}
    for op in shared:
        if all(op == other or other in reached(op, following) for other in shared):
            return op
    return None


def reached(start: int, following: dict[int, list[int]]) -> set[int]:
    """All ops behind ``start``."""
    found: set[int] = set()
    for after in following[start]:
        found |= {after} | reached(after, following)
    return found


def readers(graph: DataflowGraph) -> dict[int, list[int]]:
    return {op: sorted(set(graph.consumers(op))) for op in range(len(graph))}


def sources(graph: DataflowGraph) -> dict[int, list[int]]:
    return {op: sorted(set(graph.producers(op))) for op in range(len(graph))}


@given(dags())
@SEARCH
def test_the_topological_order_holds_every_op_once_and_respects_every_edge(graph):
    assert sorted(graph.topological_order) == list(range(len(graph)))
    assert all(graph.position[a] < graph.position[b] for a, b in steps(graph))
    assert [graph.topological_order[place] for place in graph.position] == list(range(len(graph)))


@given(dags())
@SEARCH
def test_a_post_dominator_is_the_nearest_op_on_every_way_out(graph):
    following = readers(graph)
    ends = set(graph.outputs) | {op for op, after in following.items() if not after}
    expected = [nearest_on_all_paths(op, following, ends) for op in range(len(graph))]
    assert list(graph.post_dominators) == expected


@given(dags())
@SEARCH
def test_a_dominator_is_the_nearest_op_on_every_way_in(graph):
    before = sources(graph)
    entries = {op for op, made in before.items() if not made or graph.ops[op].external_inputs}
    expected = [nearest_on_all_paths(op, before, entries) for op in range(len(graph))]
    assert list(graph.dominators) == expected


@given(dags_with_sets())
@SEARCH
def test_a_set_is_convex_if_no_op_outside_lies_between_two_of_its_own(drawn):
    graph, members = drawn
    following = {op: sorted(b for a, b in steps(graph) if a == op) for op in range(len(graph))}
    between = [
        (first, outside, last)
        for first, last in itertools.product(members, repeat=2)
        for outside in set(range(len(graph))) - members
        if outside in reached(first, following) and last in reached(outside, following)
    ]
    assert graph.is_convex(members) is not bool(between)
    detour = graph.detour(members)
    assert (detour is None) is not bool(between)
    if detour is not None:
        assert detour in {(first, outside) for first, outside, _ in between}


@given(dags_with_groups())
@SEARCH
def test_cyclic_groups_are_those_on_or_between_cycles_of_the_contracted_graph(drawn):
    graph, groups = drawn
    node = {op: ("op", op) for op in range(len(graph))}
    node.update({op: ("group", g) for g, members in enumerate(groups) for op in members})
    following = {name: set() for name in node.values()}
    for a, b in steps(graph):
        if node[a] != node[b]:
            following[node[a]].add(node[b])
    behind = {name: set(after) for name, after in following.items()}
    for _ in behind:  # the transitive closure: no path is longer than there are nodes
        for after in behind.values():
            after |= set().union(*(behind[name] for name in after))
    on_a_cycle = {name for name, after in behind.items() if name in after}
    after_one = on_a_cycle | set().union(*(behind[name] for name in on_a_cycle))
    before_one = {name for name, after in behind.items() if after & on_a_cycle} | on_a_cycle
    expected = {number for what, number in after_one & before_one if what == "group"}
    assert graph.cyclic_groups(groups) == expected


@given(dags_with_sets())
@SEARCH
def test_components_are_the_classes_of_ops_that_values_connect(drawn):
    graph, members = drawn
    class_of = {op: {op} for op in members}
    for a, b in graph.edges():
        if a in members and b in members and class_of[a] is not class_of[b]:
            merged = class_of[a] | class_of[b]
            class_of.update(dict.fromkeys(merged, merged))
    parts = graph.components(members)
    assert {frozenset(part) for part in parts} == {frozenset(c) for c in class_of.values()}
    assert sum(map(len, parts)) == len(members)
    for part in parts:
        assert list(part) == sorted(part, key=graph.position.__getitem__)


# -- size ----------------------------------------------------------------------------------


class Counting(list):
    """A list that counts how often it is looked at, all such lists together."""

    looks = 0

    def __getitem__(self, index):
        Counting.looks += 1
        return super().__getitem__(index)


def chain_with_long_skips(size: int) -> DataflowGraph:
    """``op0 > op1 > ...``, every tenth op read at the very end too, and nested skips."""
    edges = [(i, i + 1) for i in range(size - 1)]
    edges += [(i, size - 1) for i in range(0, size - 2, 10)]
    edges += [(i, size - 1 - i) for i in range(1, size // 2 - 1, 10)]
    return DataflowGraph([Op(f"op{i}", E) for i in range(size)], edges, [size - 1])


def neighbour_lookups(size: int) -> int:
    """How many neighbour lookups the two dominator trees of a long graph take."""
    graph = chain_with_long_skips(size)
    graph._consumers = [Counting(readers) for readers in graph._consumers]
    graph._producers = [Counting(made) for made in graph._producers]
    Counting.looks = 0
    assert len(graph.post_dominators) == len(graph.dominators) == size
    return Counting.looks


def test_dominators_look_at_each_edge_a_constant_number_of_times():
    assert 0 < neighbour_lookups(10_000) <= 11 * neighbour_lookups(1_000)


class CountingTree(graph_module.AncestorTree):
    """Counts the steps on the way to common ancestors."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.parent = Counting(self.parent)
        self._jump = Counting(self._jump)


def ladder(size: int) -> DataflowGraph:
    """Two chains from one op, and ops that read both: their common ancestor is far away."""
    edges = [(i, i + 1) for i in range(size - 1)]
    edges += [(0, size)] + [(size + i, size + i + 1) for i in range(size - 1)]
    edges += [(i, 2 * size + i) for i in range(size)]
    edges += [(size + i, 2 * size + i) for i in range(size)]
    return DataflowGraph([Op(f"op{i}", E) for i in range(3 * size)], edges)


def ancestor_steps(size: int) -> int:
    """How many steps the dominators of a ladder take."""
    graph = ladder(size)
    Counting.looks = 0
    assert set(graph.dominators[2 * size :]) == {0}
    return Counting.looks


def test_common_ancestors_are_found_in_logarithmic_time(monkeypatch):
    """Ten times as many queries, each ten times as far away: not a hundred times the steps."""
    monkeypatch.setattr(graph_module, "AncestorTree", CountingTree)
    assert 0 < ancestor_steps(5_000) <= 20 * ancestor_steps(500)


def test_twenty_thousand_ops_with_long_skips_are_a_matter_of_seconds():
    started = time.perf_counter()
    graph = chain_with_long_skips(20_000)
    assert graph.post_dominators[0] == 19_999
    assert graph.dominators[19_999] == 0
    assert graph.is_convex(range(20_000))
    assert not graph.is_convex([0, 19_999])
    assert graph.components(range(0, 20_000, 2))
    assert not graph.cyclic_groups([tuple(range(i, i + 4)) for i in range(0, 20_000, 4)])
    assert time.perf_counter() - started < 20
