"""Is the summary of a build what was built, and does the build survive the comparison?"""

import io
import json
import os
import signal

import pytest
import tvm
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fusion import Limits, ModelError, TVMFusionError
from tvm_fusion.analysis.traffic import measure, total
from tvm_fusion.codegen import cuda_source, parse_kernels
from tvm_fusion.report import make_console, render, stock, summarise
from tvm_fusion.workloads import small

TARGET = "nvidia/nvidia-a100"

KEYS = {
    "schema", "versions", "target", "policy", "limits", "kernels", "bytes", "groups", "edges",
    "notes", "seconds", "figures", "feedback",
}  # fmt: skip
GROUP_KEYS = {
    "name", "ops", "kinds", "kernels", "bytes_read", "bytes_written", "registers", "spill_bytes",
    "shared_bytes", "threads", "occupancy", "limiter", "compiler",
}  # fmt: skip


@pytest.fixture(scope="module")
def gpt2():
    return summarise(small("gpt2_block"), TARGET, compare_stock=True)


def text_of(summary):
    file = io.StringIO()
    render(summary, make_console(file))
    return file.getvalue()


def test_json_has_the_layout_that_is_promised(gpt2):
    data = gpt2[0].to_json()
    assert json.loads(json.dumps(data)) == data
    assert set(data) == KEYS
    assert data["schema"] == 2
    assert set(data["versions"]) == {"tvm", "tvm_ffi", "tvm_fusion", "python"}
    assert (data["target"], data["policy"]) == (TARGET, "stitch")
    assert data["limits"] == Limits().as_dict()
    for counted in (data["kernels"], data["bytes"]):
        assert list(counted) == ["unfused", "stock", "ours"]
        assert all(set(way) == {"other", "heavy"} for way in counted.values())
    assert all(set(group) == GROUP_KEYS for group in data["groups"])
    edge_keys = {"producer", "consumer", "fused", "reason", "message"}
    assert all(set(edge) == edge_keys for edge in data["edges"])
    assert {"legalize", "fuse", "unfused", "stock", "compile"} <= set(data["seconds"])


def test_counts_are_those_of_the_module_that_was_built(gpt2):
    summary, fused, executable = gpt2
    ours = summary.totals["ours"]
    assert ours == total(fused)
    assert ours.kernels < summary.totals["unfused"].kernels
    assert ours.bytes < summary.totals["unfused"].bytes
    assert ours.kernels <= summary.totals["stock"].kernels
    kernels = {kernel.name for kernel in parse_kernels(cuda_source(executable))}
    for group in summary.groups:
        moved = measure(fused[group.name])
        assert (group.bytes_read, group.bytes_written) == (moved.bytes_read, moved.bytes_written)
        assert group.kernels == 1
        assert f"{group.name}_kernel" in kernels
        assert len(group.ops) == len(group.kinds) > 1
    assert sum(group.kernels for group in summary.groups) <= ours.kernels


def test_edges_tell_the_groups_and_have_reasons(gpt2):
    summary, _, _ = gpt2
    group_of = {op: group for group in summary.groups for op in group.ops}
    assert summary.edges
    for edge in summary.edges:
        together = group_of.get(edge.producer, 1) is group_of.get(edge.consumer, 2)
        assert edge.fused == together == (edge.reason == "fused")
        assert edge.reason
        assert edge.message
        assert edge.producer_function


def test_unfused_has_a_kernel_for_each_op():
    summary, fused, _ = summarise(small("ln_gelu_res"), TARGET)
    assert summary.totals["unfused"].kernels == 3
    assert summary.totals["ours"].kernels == 1
    assert summary.totals["stock"] is None
    assert tvm.relax.analysis.check_well_formed(fused)


def test_symbolic_extents_need_a_value():
    mod = small("softmax_chain", batch="n")
    with pytest.raises(TVMFusionError, match="--assume n=128"):
        summarise(mod, TARGET)
    one, two = (summarise(mod, TARGET, assume={"n": n})[0].totals["ours"].bytes for n in (8, 16))
    assert two == 2 * one


def test_the_input_module_stays_as_it_is():
    mod = small("softmax_chain")
    before = mod.script()
    summarise(mod, TARGET, compare_stock=True)
    assert mod.script() == before


def test_target_may_be_an_object():
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"})
    with pytest.warns(UserWarning, match="max_shared_memory_per_block"):
        summary, _, _ = summarise(small("softmax_chain"), target)
    assert "sm_90" in summary.target


def test_limits_and_exclusions_act():
    mod = small("gpt2_block")

    def groups(**options):
        return summarise(mod, TARGET, **options)[0].groups

    assert max(len(group.ops) for group in groups()) > 2
    assert max(len(group.ops) for group in groups(limits=Limits(max_depth=2))) == 2
    assert groups(no_fuse=lambda op: True) == ()
    assert any("gelu" in group.name for group in groups())
    assert not any("gelu" in group.name for group in groups(no_fuse=["gelu_tanh"]))
    with pytest.raises(ModelError, match=r"'gelu_tahn'.*layer_norm"):
        summarise(mod, TARGET, no_fuse=["gelu_tahn"])


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
    summary, _, _ = summarise(small("softmax_chain"), TARGET, compare_stock=True)
    assert summary.totals["stock"] is None
    assert summary.to_json()["kernels"]["stock"] is None
    assert [note for note in summary.notes if told in note]
    assert told in " ".join(text_of(summary).split())


def test_stock_passes_that_take_too_long_are_ended(monkeypatch):
    monkeypatch.setattr(stock, "stock_module", lambda *_: signal.pause())
    monkeypatch.setattr(stock, "_MOST_SECONDS", 0.2)
    totals, failure = stock.stock_totals(small("softmax_chain"), tvm.target.Target(TARGET))
    assert totals is None
    assert "took over 0.2 seconds" in failure


def test_tables_are_plain_and_within_100_columns(gpt2):
    text = text_of(gpt2[0])
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    for way, totals in gpt2[0].totals.items():
        row = next(line for line in text.splitlines() if line.split()[:1] == [way])
        assert row.split()[1:3] == [str(totals.kernels), str(totals.kernels_heavy)]
    refused = [edge.reason for edge in gpt2[0].edges if not edge.fused]
    for reason in set(refused):
        rows = [line.split()[:2] for line in text.splitlines()]
        assert rows.count([reason, str(refused.count(reason))]) == 1


def test_a_module_without_groups_has_a_summary():
    @I.ir_module
    class Single:
        @R.function
        def main(x: R.Tensor((8, 16), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            return y

    summary, _, _ = summarise(Single, TARGET)
    assert (summary.groups, summary.edges) == ((), ())
    assert "No groups" in text_of(summary)
