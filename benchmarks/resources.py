"""What asking the compiler costs, and how far off the planner's estimates are.

    python benchmarks/resources.py
    python benchmarks/resources.py --arch sm_90 --json resources.json gpt2_block

The first table has for each network the seconds of a build without feedback, and of one with it,
with nothing in the cache (cold) and with everything (warm): what feedback adds is the difference.
The second has registers as estimated and as compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

import tvm_fusion as tf
from tvm_fusion.codegen import find_compiler
from tvm_fusion.transform.kernels import KernelTrial
from tvm_fusion.workloads import WORKLOADS, small


@dataclass(frozen=True)
class Cost:
    """Seconds of one build of a network, and its kernels."""

    network: str
    kernels: int
    steps: int
    off: float
    cold: float
    warm: float


@dataclass(frozen=True)
class Estimate:
    """Registers of one planned kernel."""

    network: str
    kernel: str
    estimated: int
    compiled: int
    spill_bytes: int
    planned_shared_bytes: int
    compiled_shared_bytes: int


def target_of(arch: str) -> tvm.target.Target:
    """A CUDA target of an architecture, with a host."""
    attrs = {
        "kind": "cuda", "arch": arch, "max_num_threads": 1024, "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152, "thread_warp_size": 32,
    }  # fmt: skip
    return tvm.target.Target(attrs, host="llvm")


@contextmanager
def empty_cache() -> Iterator[None]:
    """A cache on disk of its own, for the length of the block."""
    before = os.environ.get("TVM_FUSION_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TVM_FUSION_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TVM_FUSION_CACHE"]
            else:
                os.environ["TVM_FUSION_CACHE"] = before


def build(mod: tvm.IRModule, target: tvm.target.Target, feedback: str) -> tuple[tf.Trace, float]:
    """One build, with no schedule remembered from an earlier one, and its seconds."""
    KernelTrial._cache.clear()
    with target, tf.record() as trace:
        started = time.perf_counter()
        tf.OperatorFusion(feedback=feedback)(mod)
        return trace, time.perf_counter() - started


def cost_of(network: str, target: tvm.target.Target, is_small: bool) -> tuple[Cost, tf.Trace]:
    """Build a network without feedback, cold and warm."""
    mod = small(network) if is_small else WORKLOADS[network]()
    legal = relax.transform.LegalizeOps()(mod)
    build(legal, target, "off")  # what is read once a process is read now
    _, off = build(legal, target, "off")
    with empty_cache():
        trace, cold = build(legal, target, "compiler")
        _, warm = build(legal, target, "compiler")
    return Cost(network, len(trace.kernels), len(trace.feedback), off, cold, warm), trace


def estimates_of(network: str, trace: tf.Trace) -> list[Estimate]:
    """Estimates of the kernels that were planned, against the compiler's figures."""
    return [
        Estimate(
            network,
            name,
            record.plan.registers,
            record.figures.registers,
            record.figures.spill_bytes or 0,
            record.plan.shared_bytes,
            record.figures.shared_bytes,
        )
        for name, record in trace.kernels.items()
        if record.plan is not None and record.plan.longer is None
        if record.figures is not None and record.figures.registers is not None
    ]


def rank_correlation(estimates: Sequence[Estimate]) -> float:
    """Spearman's coefficient of estimated and compiled registers."""
    columns = [[e.estimated for e in estimates], [e.compiled for e in estimates]]
    ranks = [[(sum(o < v for o in c) + sum(o <= v for o in c) - 1) / 2 for v in c] for c in columns]
    return statistics.correlation(*ranks)


def cost_table(costs: Sequence[Cost], compiler: str) -> Table:
    """Seconds of builds."""
    table = Table(title=f"Seconds of a build; compiler {compiler}")
    table.add_column("network")
    columns = ("kernels", "steps", "without", "cold", "warm", "adds cold", "adds warm")
    for column in columns:
        table.add_column(column, justify="right")
    for cost in costs:
        seconds = (cost.off, cost.cold, cost.warm, cost.cold - cost.off, cost.warm - cost.off)
        cells = [str(cost.kernels), str(cost.steps), *(f"{s:.2f}" for s in seconds)]
        table.add_row(cost.network, *cells)
    return table


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    """Registers of each network's kernels: as estimated, as compiled, and the error."""
    table = Table(title="Registers of planned kernels: estimated, compiled")
    for column in ("network", "kernel"):
        table.add_column(column, overflow="fold")
    for column in ("estimated", "compiled", "error", "shared B"):
        table.add_column(column, justify="right")
    for one in estimates:
        error = f"{one.compiled - one.estimated:+d}"
        cells = [str(one.estimated), str(one.compiled), error, str(one.compiled_shared_bytes)]
        table.add_row(one.network, one.kernel, *cells)
    return table


def summary(estimates: Sequence[Estimate]) -> dict[str, Any]:
    """How good the estimates are, in few figures."""
    errors = [one.compiled - one.estimated for one in estimates]
    return {
        "kernels": len(estimates),
        "rank_correlation": round(rank_correlation(estimates), 3),
        "mean_absolute_error": round(statistics.mean(map(abs, errors)), 2),
        "largest_underestimate": max(errors),
        "largest_overestimate": -min(errors),
        "spilling": sum(one.spill_bytes > 0 for one in estimates),
        "shared_memory_off": sum(
            one.planned_shared_bytes != one.compiled_shared_bytes for one in estimates
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the tables, and write the JSON that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="default: all workloads")
    parser.add_argument("--arch", default="sm_80", help="architecture (default sm_80)")
    parser.add_argument("--small", action="store_true", help="the sizes of the tests")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    args = parser.parse_args(arguments)
    unknown = set(args.networks) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown network {min(unknown)!r}: choose among {', '.join(WORKLOADS)}")
    compiler = find_compiler()
    if compiler is None:
        parser.error("no CUDA compiler is installed: pip install 'tvm-fusion[cuda]'")
    target = target_of(args.arch)
    costs, estimates = [], []
    for network in args.networks or WORKLOADS:
        cost, trace = cost_of(network, target, args.small)
        costs.append(cost)
        estimates += estimates_of(network, trace)
    console = Console()
    console.print(cost_table(costs, compiler.name))
    console.print(estimate_table(estimates))
    console.print(summary(estimates))
    if args.json is not None:
        data = {
            "compiler": compiler.name,
            "arch": args.arch,
            "costs": [asdict(cost) for cost in costs],
            "estimates": [asdict(one) for one in estimates],
            "summary": summary(estimates),
        }
        args.json.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()
