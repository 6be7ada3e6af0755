"""Kernels and modelled bytes of every built-in network: unfused, stock TVM, ours.

python benchmarks/workloads.py --target nvidia/nvidia-h100 --dtype float16 --markdown
"""

from __future__ import annotations

import argparse

import tvm
from rich.console import Console
from rich.table import Table

from tvm_fusion.analysis.traffic import Totals
from tvm_fusion.policy import DEFAULT_POLICY
from tvm_fusion.report import explain
from tvm_fusion.workloads import WORKLOADS

_COLUMNS = ("unfused", "stock", "ours")


def cell(totals: Totals | None) -> str:
    """Kernels and megabytes of one way to compile."""
    return "-" if totals is None else f"{totals.kernels}, {totals.bytes / 1e6:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="nvidia/nvidia-a100")
    parser.add_argument("--policy", default=DEFAULT_POLICY)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    args = parser.parse_args()
    rows = []
    for name, constructor in sorted(WORKLOADS.items()):
        report = explain(
            constructor(dtype=args.dtype),
            tvm.target.Target(args.target),
            policy=args.policy,
            compare_stock=True,
        )
        rows.append((name, *(cell(report.header.totals[way]) for way in _COLUMNS)))
    if args.markdown:
        print(f"| network | {' | '.join(_COLUMNS)} |")
        print("|---|" + "---|" * len(_COLUMNS))
        for row in rows:
            print("| " + " | ".join(row) + " |")
        return
    table = Table("network", *_COLUMNS)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
