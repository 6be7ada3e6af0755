"""The benchmark that counts kernels and bytes: its tables, its JSON file, its loads."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import tvm

from tvm_fusion.transform import FuseOps
from tvm_fusion.workloads import WORKLOADS, small

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "kernels.py"
TARGET = tvm.target.Target("nvidia/nvidia-a100")


@pytest.fixture(scope="module")
def kernels():
    spec = importlib.util.spec_from_file_location("benchmark_kernels", SCRIPT)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses looks for the annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_figures_go_into_a_file_and_a_table(kernels, tmp_path, capsys):
    path = tmp_path / "kernels.json"
    kernels.main(["--json", str(path), "--policy", "dominator", "softmax_chain"])
    made = json.loads(path.read_text())
    assert (made["target"], made["policy"]) == ("nvidia/nvidia-a100", "dominator")
    (figures,) = made["workloads"]
    assert figures["workload"] == "softmax_chain"
    assert figures["unfused"]["kernels_other"] == 4
    tensor = 4 * 8 * 12 * 128 * 128
    assert figures["references"]["c1_bytes"] == 2 * tensor + 4 * 8 * 128
    assert figures["ours"]["bytes_other"] >= figures["references"]["c1_bytes"]
    assert "12.59" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_workload_has_references(kernels, name):
    figures = kernels.reference_figures(small(name), TARGET)
    assert 0 < figures.c0_bytes <= figures.c2_bytes <= figures.c1_bytes


def test_the_default_policy_is_that_of_the_pass(kernels):
    assert kernels.default_policy() == FuseOps().policy.name


def test_an_unknown_workload_is_refused(kernels, capsys):
    with pytest.raises(SystemExit):
        kernels.main(["no_such_net"])
    assert "no workload 'no_such_net': choose of attention_pool" in capsys.readouterr().err


def test_loads_are_counted(kernels, emulated):
    found = kernels.emulated_loads(small("softmax_chain"), TARGET, "single_chain")
    softmax = next(loads for loads in found if "softmax" in loads.kernel)
    assert softmax.launches == 1
    assert list(softmax.arguments.values()) == [pytest.approx(softmax.average)]
    assert all(loads.average >= 1 for loads in found)
