"""Is the report of a build what was built, and does it tell of every pair exactly once?"""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import signal
from collections import Counter
from dataclasses import replace
from itertools import combinations, pairwise

import pytest
import random_modules
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import tvm_fusion as tf
from tvm_fusion import (
    FusionReport,
    Limits,
    ModelError,
    ReportError,
    TargetError,
    TVMFusionError,
    explain,
)
from tvm_fusion.analysis.traffic import measure, total
from tvm_fusion.codegen import cuda_source, parse_kernels
from tvm_fusion.planning.kernel_plan import PLACES
from tvm_fusion.report import SiblingEntry, build_and_explain, make_console, render, stock
from tvm_fusion.workloads import WORKLOADS, small

TARGET = "nvidia/nvidia-a100"


@pytest.fixture(scope="module")
def gpt2():
    return build_and_explain(small("gpt2_block"), TARGET, compare_stock=True)


@pytest.fixture(scope="module")
def llama():
    return explain(WORKLOADS["llama_block"](), TARGET)


def text_of(report):
    file = io.StringIO()
    render(report, make_console(file))
    return file.getvalue()


@I.ir_module
class TwoFunctions:
    """Two functions that use the same names."""

    @R.function
    def main(x: R.Tensor((64, 256), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sum(a, axis=1)
            R.output(b)
        return b

    @R.function
    def other(x: R.Tensor((64, 256), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.max(a, axis=1)
            R.output(b)
        return b


@I.ir_module
class Branches:
    """A condition whose branches are fused each by itself, and calls outside of dataflow blocks."""

    @R.function
    def main(x: R.Tensor((64, 256), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        (64, 256), "float32"
    ):
        if c:
            a = R.exp(x)
            y = R.add(a, x)
        else:
            a = R.tanh(x)
            y = R.multiply(a, x)
        return y


# -- every pair has one decision, and the sums agree ---------------------------------------------


def ends_of(pair):
    """Names of the two ops of an edge or of siblings."""
    if isinstance(pair, SiblingEntry):
        return pair.first, pair.second
    return pair.producer, pair.consumer


def check_report(report):
    """What holds for every report."""
    ops = {op.name: op for op in report.ops}
    assert len(ops) == len(report.ops)
    owner = Counter(op for group in report.groups for op in group.ops)
    assert owner == dict.fromkeys(ops, 1)
    groups = {group.name: group for group in report.groups}
    assert len(groups) == len(report.groups)
    assert all(op.name in groups[op.group].ops for op in report.ops)
    pairs = list(map(ends_of, (*report.edges, *report.siblings)))
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    for pair in (*report.edges, *report.siblings):
        names = (
            (pair.first, pair.second) if hasattr(pair, "first") else (pair.producer, pair.consumer)
        )
        together = ops[names[0]].group == ops[names[1]].group
        assert pair.reason.verdict in (("fused", "duplicated") if together else ("refused",)), names
        assert pair.reason.code
        assert pair.reason.message
        assert not pair.tried or {*names} <= {*pair.tried} <= {*ops}
    header = report.header
    before, after = header.totals["unfused"], header.totals["ours"]
    assert sum(g.bytes_saved for g in report.groups) == before.bytes - after.bytes
    assert sum(op.before.bytes for op in report.ops) == sum(g.before.bytes for g in report.groups)
    for group in report.groups:
        assert group.kind in ("fused", "single", "view", "other")
        assert (group.after.kernels == 0) == (group.kind in ("view", "other"))
        if group.kind == "fused":
            assert group.after.kernels == 1
    return ops


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, "stitch") for name in sorted(WORKLOADS)),
        *(("moe_layer", policy) for policy in ("single_chain", "dominator")),
        *(("llama_block", policy) for policy in ("single_chain", "dominator")),
    ],
)
def test_every_pair_has_one_decision_and_sums_agree(name, policy):
    report = explain(small(name), TARGET, policy=policy)
    check_report(report)
    assert sum(op.before.bytes for op in report.ops) == report.header.totals["unfused"].bytes
    assert sum(g.after.bytes for g in report.groups) == report.header.totals["ours"].bytes
    assert sum(op.before.kernels for op in report.ops) == report.header.totals["unfused"].kernels
    assert sum(g.after.kernels for g in report.groups) == report.header.totals["ours"].kernels


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_edges_and_siblings_are_those_of_the_graph(name, cuda_target):
    """Counted on the graph itself: every edge, and every two near readers of a large tensor."""
    with cuda_target, tf.record() as trace:
        tf.OperatorFusion()(tvm.relax.transform.LegalizeOps()(small(name)))
    for block in trace.blocks:
        graph = block.graph
        decided = [(d.producer, d.consumer) for d in block.decisions]
        assert decided == [graph.names(edge) for edge in graph.edges()]
        merged = {frozenset(group.ops) for group in block.groups}
        pairs = {(s.first, s.second) for s in block.siblings}
        for readers in graph.readers.values():
            for first, second in pairwise(readers):
                names = graph.names((first, second))
                if second in graph.consumers(first) or names[0] == names[1]:
                    continue
                together = any({*names} <= group for group in merged)
                if together and not graph.ops[first].is_view and not graph.ops[second].is_view:
                    assert names in pairs, names


#: Limits of the random modules: none, and each of those that refuse something.
LIMITS = [
    Limits(),
    Limits(max_group_size=3),
    Limits(max_fusions=2),
    Limits(max_kernel_args=4),
    Limits(shared_memory_bytes=16),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_reports_on_random_modules_hold_together(seed):
    policy = ("stitch", "dominator", "single_chain")[seed % 3]
    mod = random_modules.random_module(seed, most_ops=12)
    report = explain(mod, TARGET, policy=policy, limits=LIMITS[seed % len(LIMITS)])
    check_report(report)
    assert FusionReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    for first, second in combinations([op.name for op in report.ops], 2):
        assert report.why(first, second)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("policy", ["stitch", "dominator", "single_chain"])
@pytest.mark.parametrize("ten", range(10))
def test_reports_on_many_random_modules_hold_together(ten, policy):
    for seed in range(100 + 10 * ten, 110 + 10 * ten):
        mod = random_modules.random_module(seed, most_ops=12)
        check_report(explain(mod, TARGET, policy=policy, limits=LIMITS[seed % len(LIMITS)]))


def test_several_functions_keep_their_names_apart():
    report = explain(TwoFunctions, TARGET)
    ops = check_report(report)
    assert set(ops) == {"main.a", "main.b", "other.a", "other.b"}
    assert "main.a -> main.b: fused" in report.why("main.a", "main.b")


def test_what_stands_outside_of_dataflow_blocks_is_counted_on_both_sides():
    report = explain(Branches, TARGET)
    check_report(report)
    assert report.header.totals["unfused"].bytes > report.header.totals["ours"].bytes


@I.ir_module
class ThreeExtents:
    """One PrimFunc, called with rows of three numbers."""

    @T.prim_func(private=True, s_tir=True)
    def double(a: T.handle, b: T.handle):
        rows = T.int64()
        x = T.match_buffer(a, (rows, 64), "float32")
        y = T.match_buffer(b, (rows, 64), "float32")
        for i, j in T.grid(rows, 64):
            with T.sblock("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32(2)

    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        y: R.Tensor(("m", 64), "float32"),
        z: R.Tensor((32, 64), "float32"),
    ):
        n = T.int64()
        m = T.int64()
        cls = ThreeExtents
        with R.dataflow():
            a = R.call_tir(cls.double, (x,), out_ty=R.Tensor((n, 64), "float32"))
            b = R.call_tir(cls.double, (y,), out_ty=R.Tensor((m, 64), "float32"))
            c = R.call_tir(cls.double, (z,), out_ty=R.Tensor((32, 64), "float32"))
            R.output(a, b, c)
        return (a, b, c)


def test_each_call_is_counted_with_its_own_extents():
    """Also where a name of the callee is one that was given a value for the callers."""
    report = explain(ThreeExtents, TARGET, assume={"n": 10, "m": 1000, "rows": 7})
    check_report(report)
    moved = {op.name: op.before.bytes for op in report.ops}
    assert moved == {"a": 512 * 10, "b": 512 * 1000, "c": 512 * 32}


def test_a_module_may_hold_functions_that_are_neither_relax_nor_tir():
    mod = small("softmax_chain", batch="n")
    outside = {tvm.ir.GlobalVar("outside"): tvm.relax.ExternFunc("outside")}
    report = explain(
        tvm.IRModule({**dict(mod.functions.items()), **outside}), TARGET, assume={"n": 8}
    )
    check_report(report)


def test_calls_in_no_dataflow_block_are_noted():
    @I.ir_module
    class Bare:
        @R.function
        def main(x: R.Tensor((64, 128), "float32")):
            a = R.exp(x)
            return a

    report = explain(Bare, TARGET)
    assert report.header.totals["ours"].kernels == 1
    assert report.ops == ()
    assert any("1 calls stand outside of dataflow blocks" in note for note in report.notes)


def test_a_repeated_op_is_told_and_costs_nothing_before():
    report = explain(small("moe_layer"), TARGET)
    check_report(report)
    (edge,) = [e for e in report.edges if e.reason.verdict == "duplicated"]
    (op,) = [op for op in report.ops if op.name == edge.producer]
    assert op.before.bytes == 0
    assert "makes again what" in report.why(edge.producer, edge.consumer)


def test_counts_are_those_of_the_module_that_was_built(gpt2):
    report, fused = gpt2
    ours = report.header.totals["ours"]
    assert ours == total(fused)
    assert ours.kernels <= report.header.totals["stock"].kernels
    executable = tvm.compile(fused, tvm.target.Target(TARGET, host="llvm"))
    kernels = {kernel.name for kernel in parse_kernels(cuda_source(executable))}
    for group in report.groups:
        if group.kind == "fused":
            moved = measure(fused[group.kernel])
            assert group.after.bytes_read == moved.bytes_read
            assert group.after.bytes_written == moved.bytes_written
            assert f"{group.kernel}_kernel" in kernels
            assert f"{group.kernel}_kernel" in report.group(group.name).cuda
    assert check_report(report)


def test_storage_tells_where_every_result_of_a_planned_group_lives(llama):
    planned = [g for g in llama.groups if g.kind == "fused" and llama.group(g.name).kernel.layout]
    assert planned
    for group in planned:
        assert {entry.place for entry in group.storage} <= set(PLACES)
        named = {entry.tensor.name.split("[")[0].split(" ")[0] for entry in group.storage}
        assert set(group.ops) <= named
        written = [entry.tensor.name for entry in group.storage if entry.place == "global"]
        outside = {
            e.producer
            for e in llama.edges
            if e.producer in group.ops and e.consumer not in group.ops
        }
        assert outside <= set(written)


def test_unfused_has_a_kernel_for_each_op():
    report = explain(small("ln_gelu_res"), TARGET)
    assert report.header.totals["unfused"].kernels == 3
    assert report.header.totals["ours"].kernels == 1
    assert report.header.totals["stock"] is None


def test_symbolic_extents_need_a_value():
    mod = small("softmax_chain", batch="n")
    with pytest.raises(TVMFusionError, match="--assume n=128"):
        explain(mod, TARGET)
    reports = [explain(mod, TARGET, assume={"n": n}) for n in (8, 16)]
    one, two = (report.header.totals["ours"].bytes for report in reports)
    assert two == 2 * one
    assert any("n = 8" in text for text in reports[0].assumptions)
    assert "n" in reports[0].edges[0].tensors[0].shape
    assert reports[0].edges[0].tensors[0].nbytes is None
    check_report(reports[0])


def test_the_input_module_stays_as_it_is():
    mod = small("softmax_chain")
    before = mod.script()
    explain(mod, TARGET, compare_stock=True)
    assert mod.script() == before


def test_target_may_be_an_object():
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    with pytest.warns(UserWarning, match="max_shared_memory_per_block"):
        report = explain(small("softmax_chain"), target)
    assert "sm_90" in report.header.target
    assert "sm_90" in report.header.device.source


def test_other_targets_are_refused():
    with pytest.raises(TargetError, match="'llvm' is none: give a tag like 'nvidia"):
        explain(small("softmax_chain"), "llvm")


def test_limits_and_exclusions_act():
    mod = small("gpt2_block")

    def groups(**options):
        report = explain(mod, TARGET, **options)
        return [group for group in report.groups if group.kind == "fused"]

    assert max(len(group.ops) for group in groups()) > 2
    assert max(len(group.ops) for group in groups(limits=Limits(max_depth=2))) == 2
    assert groups(no_fuse=lambda op: True) == []
    assert any("gelu" in group.name for group in groups())
    assert not any("gelu" in group.name for group in groups(no_fuse=["gelu_tanh"]))
    with pytest.raises(ModelError, match=r"'gelu_tahn'.*layer_norm"):
        explain(mod, TARGET, no_fuse=["gelu_tahn"])


# -- JSON ----------------------------------------------------------------------------------------


def test_json_is_the_same_after_reading_and_writing(gpt2, llama, tmp_path):
    symbolic = explain(small("softmax_chain", batch="n"), TARGET, assume={"n": 64})
    for report in (gpt2[0], llama, symbolic):
        file = tmp_path / "report.json"
        report.save(file)
        text = file.read_text()
        read = FusionReport.load(file)
        assert read == report
        read.save(file)
        assert file.read_text() == text
        assert read.to_json()["schema"] == 3


def test_json_that_is_no_report_is_a_clear_error(gpt2, tmp_path):
    data = gpt2[0].to_json()
    for other in (2, 4, "3", None):
        with pytest.raises(ReportError, match="this version of tvm_fusion reads 3"):
            FusionReport.from_json({**data, "schema": other})
    with pytest.raises(ReportError, match="no fusion report"):
        FusionReport.from_json([])
    with pytest.raises(ReportError, match="damaged"):
        FusionReport.from_json({**data, "ops": [{"name": 1}]})
    with pytest.raises(ReportError, match="damaged"):
        FusionReport.from_json({key: value for key, value in data.items() if key != "groups"})
    with pytest.raises(ReportError, match="damaged"):
        FusionReport.from_json({**data, "more": 1})
    file = tmp_path / "report.json"
    for text in ("{", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(ReportError, match="no JSON"):
            FusionReport.load(file)


def change(data, path, value):
    """A copy of a report's JSON with one value replaced."""
    made = copy.deepcopy(data)
    *outer, last = path
    place = made
    for key in outer:
        place = place[key]
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("groups", 0, "kind"), "round"),
        (("groups", 0, "ops"), []),
        (("groups", 0, "kernel"), "none"),
        (("groups", 1, "name"), "softmax"),
        (("groups", 0, "after", "kernels"), 1.7),
        (("ops", 0, "group"), "none"),
        (("ops", 0, "is_output"), "false"),
        (("ops", 0, "inputs"), "abc"),
        (("edges", 0, "producer"), "none"),
        (("edges", 0, "tried"), ["none"]),
        (("edges", 0, "reason", "verdict"), "maybe"),
        (("schema",), 3.0),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_json_that_contradicts_itself_is_a_clear_error(gpt2, path, value):
    data = json.loads(json.dumps(gpt2[0].to_json()))
    assert FusionReport.from_json(data) == gpt2[0]
    with pytest.raises(ReportError, match="make it anew"):
        FusionReport.from_json(change(data, path, value))


def test_bad_input_is_named():
    mod = small("softmax_chain")
    with pytest.raises(TargetError, match="unknown target 'nonsense': give a tag"):
        explain(mod, "nonsense")
    with pytest.raises(TargetError, match="None is no target"):
        explain(mod, None)
    with pytest.raises(ModelError, match="of type int: give an IRModule"):
        explain(5, TARGET)
    with pytest.raises(tf.LimitsError, match="of type dict: give"):
        explain(mod, TARGET, limits={"max_depth": 2})
    with pytest.raises(ModelError, match="no symbolic extent is named 'k': the model has none"):
        explain(mod, TARGET, assume={"k": 3})
    with pytest.raises(ModelError, match="named 'k': the model has n"):
        explain(small("softmax_chain", batch="n"), TARGET, assume={"n": 8, "k": 3})
    one = explain(mod, TARGET, no_fuse="softmax")
    assert one.header.no_fuse == ("softmax",)
    assert [c.what for c in explain(mod, TARGET).diff(one).settings] == ["no_fuse"]


# -- questions -----------------------------------------------------------------------------------


def test_why_tells_of_edges_in_sentences(llama):
    text = llama.why("mul3", "matmul1")
    assert text.startswith("mul3 -> matmul1: refused (contraction)\n")
    assert "mul3 (multiply3, ELEMENTWISE) passes float32[1, 128, 512], 262 kB" in text
    assert "they would fuse if" in text
    text = llama.why("mul1", "mean")
    assert text.startswith("mul1 -> mean: fused\n")
    assert "mul1 is evaluated where it is read" in text
    assert llama.why("mean", "mul1") == text


def test_why_tells_of_readers_of_one_tensor(llama):
    assert "both read mul3" in llama.why("matmul1", "matmul2")


def test_why_takes_primfuncs_and_tells_of_all_their_pairs(llama):
    text = llama.why("multiply2", "multiply3")
    assert [line for line in text.splitlines() if "->" in line] == [
        "mul2 -> mul3: fused",
        "mul10 -> mul11: fused",
    ]


def test_why_tells_the_way_between_ops_that_are_not_neighbours(llama):
    text = llama.why("mul1", "rsqrt")
    assert "are in one kernel" in text
    assert text.splitlines()[-1].strip().startswith("add -> rsqrt: fused")
    text = llama.why("mul1", "matmul8")
    assert "do not pass a tensor to each other" in text
    assert "refused" in text
    assert "mul1 is one op" in llama.why("mul1", "mul1")
    report = explain(TwoFunctions, TARGET)
    assert "nothing to do with each other" in report.why("main.a", "other.b")


def test_unknown_names_are_answered_with_near_ones(llama):
    with pytest.raises(ReportError, match=r"'softmaks': try one of softmax"):
        llama.why("softmaks", "matmul")
    with pytest.raises(ReportError, match=r"'softmaks': try one of softmax"):
        llama.group("softmaks")


def test_a_group_is_found_by_its_name_its_kernel_and_its_ops(llama):
    (group,) = [g for g in llama.groups if "silu" in g.ops]
    for name in (group.name, group.kernel, "silu"):
        found = llama.group(name)
        assert found.entry == group
        assert "T.prim_func" in found.tvmscript
        assert "__global__" in found.cuda
        assert "silu" in str(found)
    view = next(g for g in llama.groups if g.kind == "view")
    assert (llama.group(view.name).cuda, llama.group(view.name).tvmscript) == ("", "")


def test_diff_tells_what_a_limit_changed(gpt2):
    old = gpt2[0]
    assert old.diff(old).is_empty
    assert str(old.diff(old)) == "nothing changed"
    new = explain(small("gpt2_block"), TARGET, limits=Limits(max_depth=2))
    found = old.diff(new)
    assert [c.what for c in found.settings] == ["Limits.max_depth"]
    assert found.groups_lost
    assert any("the limit is 2" in c.new for c in found.pairs)
    assert not found.ops_lost
    assert not found.ops_gained
    text = str(found)
    assert "Limits.max_depth: None -> 2" in text
    assert str(new.diff(old)) != text
    other = old.diff(explain(TwoFunctions, TARGET))
    assert set(other.ops_gained) == {"main.a", "main.b", "other.a", "other.b"}
    assert len(other.ops_lost) == len(old.ops)


# -- other renderings ----------------------------------------------------------------------------


def test_graph_texts_hold_every_op_and_edge(gpt2):
    report = gpt2[0]
    dot, mermaid = report.to_graphviz(), report.to_mermaid()
    assert dot.count(" -> ") == len(report.edges)
    assert mermaid.count("-->") + mermaid.count(".->") == len(report.edges)
    fused = [group for group in report.groups if group.kind == "fused"]
    assert dot.count("subgraph cluster_") == mermaid.count("subgraph ") == len(fused)
    assert mermaid.count(".->") == sum(e.reason.verdict == "refused" for e in report.edges)
    hostile = replace(report.ops[0], name='a"]; end <b>', function="f")
    odd = replace(
        report,
        ops=(hostile,),
        edges=(),
        groups=(replace(report.groups[0], ops=(hostile.name,), kind="single"),),
    )
    assert 'label="a\\"]; end <b>: f"' in odd.to_graphviz()
    assert '["a#34;#93;#59; end #60;b#62;: f"]' in odd.to_mermaid()


def test_graphs_that_nobody_can_read_are_refused(gpt2):
    report = gpt2[0]
    ops = tuple(replace(report.ops[0], name=f"op{i}") for i in range(201))
    for draw in (FusionReport.to_graphviz, FusionReport.to_mermaid):
        with pytest.raises(ReportError, match="use the HTML page"):
            draw(replace(report, ops=ops))


def test_model_explorer_json_refers_to_nodes_that_are_there(gpt2):
    report = gpt2[0]
    (graph,) = report.to_model_explorer()["graphs"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert set(nodes) >= {op.name for op in report.ops}
    edges = [edge for node in nodes.values() for edge in node.get("incomingEdges", [])]
    assert all(edge["sourceNodeId"] in nodes for edge in edges)
    inputs = sum(len(op.inputs) for op in report.ops)
    assert len(edges) == len(report.edges) + inputs
    namespaces = {node["namespace"] for node in nodes.values()}
    assert set(graph["groupNodeAttributes"]) <= namespaces
    assert json.loads(json.dumps(graph)) == graph


def test_the_chrome_trace_has_the_phases_within_each_other(gpt2):
    report = gpt2[0]
    events = {event["name"]: event for event in report.to_chrome_trace()["traceEvents"]}
    outer, inner = events["fuse/FuseOps"], events["fuse/FuseOps/policy"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events.values())
    phases = {"legalize", "fuse", "fuse/Schedule", "unfused", "stock"}
    assert phases <= set(report.header.seconds)
    assert phases <= set(events)
    top = sum(seconds for name, seconds in report.header.seconds.items() if "/" not in name)
    assert top <= max(span.start + span.seconds for span in report.spans)


def test_tables_are_plain_and_within_100_columns(gpt2):
    report = gpt2[0]
    text = text_of(report)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    for way, totals in report.header.totals.items():
        row = next(line for line in text.splitlines() if line.split()[:1] == [way])
        assert row.split()[1:3] == [str(totals.kernels), str(totals.kernels_heavy)]
    refused = Counter(e.reason.code for e in report.edges if e.reason.verdict == "refused")
    readers = Counter(s.reason.code for s in report.siblings if s.reason.verdict == "refused")
    rows = [line.split()[:3] for line in text.splitlines()]
    for code in refused | readers:
        assert rows.count([code, str(refused[code]), str(readers[code])]) == 1


def test_a_module_without_groups_has_a_report():
    @I.ir_module
    class Single:
        @R.function
        def main(x: R.Tensor((8, 16), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    report = explain(Single, TARGET)
    assert [group.kind for group in report.groups] == ["single"]
    assert report.edges == ()
    assert "No groups" in text_of(report)
    assert FusionReport.from_json(report.to_json()) == report


# -- comparison with stock -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), "crashed with SIGSEGV"),
        (lambda *_: os._exit(3), "ended with exit status 3"),
        (lambda *_: {}["matmul"], "failed with KeyError: 'matmul'"),
    ],
    ids=["crash", "exit", "raise"],
)
def test_build_survives_the_end_of_the_stock_passes(monkeypatch, end, told):
    monkeypatch.setattr(stock, "stock_module", end)
    report = explain(small("softmax_chain"), TARGET, compare_stock=True)
    assert report.header.totals["stock"] is None
    assert [note for note in report.notes if told in note]
    assert told in " ".join(text_of(report).split())


def test_stock_passes_that_take_too_long_are_ended(monkeypatch):
    monkeypatch.setattr(stock, "stock_module", lambda *_: signal.pause())
    monkeypatch.setattr(stock, "_MOST_SECONDS", 0.2)
    totals, failure = stock.stock_totals(small("softmax_chain"), tvm.target.Target(TARGET))
    assert totals is None
    assert "took over 0.2 seconds" in failure


# -- the logger ----------------------------------------------------------------------------------


def test_the_logger_is_quiet_by_default_and_tells_when_asked(capfd, caplog):
    mod = small("softmax_chain")
    explain(mod, TARGET)
    assert "tvm_fusion" not in capfd.readouterr().err
    with caplog.at_level(logging.INFO, logger="tvm_fusion"):
        explain(mod, TARGET)
    assert "main: 4 ops, 1 groups by policy stitch, 0 pairs not fused" in caplog.text
    assert " -> " not in caplog.text
    with caplog.at_level(logging.DEBUG, logger="tvm_fusion"):
        explain(mod, TARGET)
    assert " -> " in caplog.text
