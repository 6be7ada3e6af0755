"""Kernels and modelled bytes of networks: unfused, stock TVM, ours, and reference figures.

    python benchmarks/kernels.py --target nvidia/nvidia-h100 --json kernels.json gpt2_block
    python benchmarks/kernels.py --emulate softmax_chain

A cell holds the kernels that are no contraction, sort or top-k, those that are, and megabytes of
global memory. C0, C1 and C2 are what ``tvm_fusion.analysis.references`` says of the same module.

With ``--emulate``, small sizes also run on the emulator, which counts the loads that the kernels
make: how often each element that is loaded is loaded, 1 for a kernel that reads its inputs once. It
needs what ``pip install 'tvm-fusion[emulator]'`` brings, and g++.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

from tvm_fusion import emulator
from tvm_fusion.analysis.references import References, references
from tvm_fusion.analysis.traffic import Totals
from tvm_fusion.report import explain
from tvm_fusion.transform import FuseOps, InlineScalarConstants, SplitComposites
from tvm_fusion.workloads import WORKLOADS, random_inputs, small

WAYS = ("unfused", "stock", "ours")


@dataclass(frozen=True)
class KernelLoads:
    """What one kernel loads, over all its launches.

    ``arguments`` has by name how often each element that is loaded is loaded; ``average`` is the
    same over all arguments, 0 for a kernel that loads nothing. Lanes of one warp that load one
    element together count once.
    """

    kernel: str
    launches: int
    arguments: dict[str, float]
    average: float


def default_policy() -> str:
    """The policy that FuseOps has if none is given."""
    return str(inspect.signature(FuseOps).parameters["policy"].default)


def reference_figures(mod: tvm.IRModule, target: tvm.target.Target) -> References:
    """The reference figures of a module that is not legalized."""
    passes = [
        *relax.pipeline.library_dispatch_passes(target),
        relax.transform.LegalizeOps(),
        relax.transform.FoldConstant(),
        InlineScalarConstants(),
        SplitComposites(),
    ]
    with target:
        return references(tvm.transform.Sequential(passes)(mod))


def emulated_loads(
    mod: tvm.IRModule, target: tvm.target.Target, policy: str
) -> tuple[KernelLoads, ...]:
    """Run a module on the emulator and count the loads of every kernel."""
    arch = re.match(r"sm_\d+", str(target.attrs.get("arch")))
    emulator.install(arch=arch[0] if arch else "sm_80")
    device = tvm.cuda(0)
    pipeline = relax.get_pipeline("tvm_fusion", policy=policy)
    with_host = target if target.host is not None else target.with_host("llvm")
    executable = tvm.compile(mod, with_host, relax_pipeline=pipeline)
    machine = relax.VirtualMachine(executable, device, memory_cfg="naive")
    arguments = [tvm.runtime.tensor(array, device) for array in random_inputs(mod)]
    with emulator.configure(profile=True):
        machine["main"](*arguments)
        kernels = emulator.profile().kernels
    return tuple(_loads(kernel) for kernel in kernels)


def _loads(kernel: emulator.KernelProfile) -> KernelLoads:
    loading = [argument for argument in kernel.arguments if argument.bytes_loaded]
    loaded = sum(argument.bytes_loaded for argument in loading)
    inputs = sum(argument.bytes_loaded / argument.loads_per_element for argument in loading)
    return KernelLoads(
        kernel.name,
        kernel.launches,
        {argument.name: argument.loads_per_element for argument in loading},
        loaded / max(inputs, 1.0),
    )


def measure(name: str, mod: tvm.IRModule, target: tvm.target.Target, policy: str) -> dict[str, Any]:
    """The modelled figures of one workload, as they go into the JSON file."""
    report = explain(mod, target, policy=policy, compare_stock=True)
    figures: dict[str, Any] = {"workload": name, "notes": list(report.notes)}
    for way in WAYS:
        totals = report.header.totals[way]
        figures[way] = None if totals is None else asdict(totals)
    figures["references"] = asdict(reference_figures(mod, target))
    return figures


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f}"


def _row(figures: dict[str, Any]) -> list[str]:
    cells = [figures["workload"]]
    for way in WAYS:
        if figures[way] is None:
            cells.append("-")
            continue
        totals = Totals(**figures[way])
        kernels = f"{totals.kernels_other}+{totals.kernels_heavy}"
        cells.append(f"{kernels}, {_megabytes(totals.bytes)}")
    found = References(**figures["references"])
    kernels = f"{found.c1_kernels_other}+{found.c1_kernels_heavy}"
    cells.append(_megabytes(found.c0_bytes))
    cells.append(f"{kernels}, {_megabytes(found.c1_bytes)}")
    return [*cells, _megabytes(found.c2_bytes)]


def _emulate(
    all_figures: list[dict[str, Any]], target: tvm.target.Target, policy: str, console: Console
) -> Table:
    """Run each workload at its small size, add what was counted to its figures, make a table.

    All else comes first: once the emulator is there, it compiles what is built.
    """
    table = Table("network, small", "kernel", "launches", "loads an element")
    for figures in all_figures:
        name = figures["workload"]
        with console.status(f"{name} on the emulator"):
            found = emulated_loads(small(name), target, policy)
        figures["emulated"] = [asdict(loads) for loads in found]
        for loads in found:
            table.add_row(name, loads.kernel, str(loads.launches), f"{loads.average:.2f}")
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, and write the JSON file if one is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workload", nargs="*", help="default: all of tvm_fusion.workloads")
    parser.add_argument("--policy", default=default_policy())
    parser.add_argument("--target", default="nvidia/nvidia-a100")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--emulate", action="store_true", help="count loads on the emulator")
    args = parser.parse_args(argv)
    unknown = [name for name in args.workload if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]!r}: choose of {', '.join(sorted(WORKLOADS))}")
    target = tvm.target.Target(args.target)
    console = Console(width=None if sys.stdout.isatty() else 110)
    all_figures = []
    table = Table(title=f"{args.target}, policy {args.policy}: kernels other+heavy, MB")
    for column in ("network", *WAYS, "C0", "C1", "C2"):
        table.add_column(column, no_wrap=True)
    for name in args.workload or sorted(WORKLOADS):
        with console.status(name):
            all_figures.append(measure(name, WORKLOADS[name](), target, args.policy))
        table.add_row(*_row(all_figures[-1]))
    console.print(table)
    if args.emulate:
        console.print(_emulate(all_figures, target, args.policy, console))
    if args.json is not None:
        made = {"target": args.target, "policy": args.policy, "workloads": all_figures}
        args.json.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
