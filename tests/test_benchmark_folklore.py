"""The benchmark that tests common claims: verdicts computed from figures, and the figures."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tvm_fusion import codegen
from tvm_fusion.errors import CompilerError

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "folklore.py"


@pytest.fixture(scope="module")
def folklore() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("benchmark_folklore", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses looks for the annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def figures(folklore: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a quick run writes."""
    try:
        codegen.find_compiler("nvrtc")
    except CompilerError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("folklore") / "folklore.json"
    folklore.main(["--quick", "--json", str(path)])
    return json.loads(path.read_text())


def chains(figures: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [c for c in figures["chains"] if all(c[key] == wanted[key] for key in wanted)]


def test_every_claim_has_a_verdict_and_figures(folklore, figures):
    assert figures["compiler"].startswith("nvrtc ")
    assert len(figures["claims"]) == len(folklore.CLAIMS) == 6
    for claim in figures["claims"]:
        assert claim["verdict"] in (folklore.HOLDS, folklore.IN_PART, folklore.FAILS)
        assert claim["claim"]
        assert claim["measured"]
        assert claim["figures"]


def test_every_limit_is_justified(folklore, figures):
    named = {default["limit"] for default in figures["defaults"]}
    assert named == {"max_depth", "registers_per_thread", "min_occupancy", "shared_memory_bytes"}
    assert all(default["follows"] for default in figures["defaults"])


def test_plain_chains_take_no_more_registers_as_they_grow(figures):
    plain = chains(figures, kind="plain", dtype="float32", width=1024)
    assert {chain["depth"] for chain in plain} == {1, 6, 8, 16}
    assert all(chain["spill_bytes"] == 0 for chain in plain)
    registers = {chain["depth"]: chain["registers"] for chain in plain}
    assert registers[16] <= registers[1]


def test_spills_would_be_seen(figures):
    assert figures["control_spill_bytes"] > 100


def test_bytes_of_chains(figures):
    ratios = {(g["kind"], g["dtype"], g["depth"]): g["bytes_ratio"] for g in figures["gains"]}
    assert ratios["transcendental", "float32", 8] == pytest.approx(8)
    # 8 ops of three tensors each against 9 inputs and a result
    assert ratios["inputs", "float32", 8] == pytest.approx(24 / 10)


def test_the_compiler_refuses_too_much_shared_memory(figures):
    for probe in figures["probes"]:
        assert bool(probe["error"]) == (probe["shared_bytes"] > 48 * 1024)
    assert any("too much shared data" in probe["error"] for probe in figures["probes"])


def test_products_are_counted_from_shapes(folklore):
    mod = folklore.WORKLOADS["gpt2_block"]()
    tokens, channels = 128, 768
    weights = 2 * tokens * 12 * channels**2
    attention = 2 * 2 * tokens**2 * channels
    assert folklore.matmul_flops(mod) == weights + attention


@pytest.mark.parametrize(
    ("kind", "depth", "calls"),
    [("plain", 5, 5), ("transcendental", 4, 4), ("live", 1, 1), ("live", 8, 8), ("softmax", 6, 7)],
)
def test_a_chain_has_the_ops_it_says(folklore, kind, depth, calls):
    mod = folklore.chain_module(kind, depth, 64, "float32")
    assert len(folklore.called_functions(mod)) == calls


def test_verdicts_follow_the_cases(folklore):
    assert folklore.verdict(3, 3) == folklore.HOLDS
    assert folklore.verdict(1, 3) == folklore.IN_PART
    assert folklore.verdict(0, 3) == folklore.FAILS
    with pytest.raises(ValueError, match="without a case"):
        folklore.verdict(0, 0)


def test_a_chain_of_several_kernels_is_refused(folklore):
    mod = folklore.chain_module("plain", 2, 64, "float32")
    apart, _ = folklore.build(mod, "sm_80", fuse=False)
    with pytest.raises(ValueError, match="became 2 kernels"):
        folklore.single_kernel(apart, "sm_80", "a chain")
