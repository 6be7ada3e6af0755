"""Time of the passes on large graphs, as ratios to TVM's own within one run.

    python benchmarks/pass_speed.py [--ops 1000 2000 4000]

The graph repeats a residual block of elementwise ops, a reduction, a reshape and a matmul, so that
it has few distinct PrimFuncs, as real models do. Times are medians of three runs; only the ratios
and the growth from one size to the next mean anything on a shared machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

import tvm_fusion as tf
from tvm_fusion.policy import DEFAULT_POLICY


def repeated_blocks(ops: int) -> tvm.IRModule:
    """A function of about ``ops`` calls."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 128), "float32"))
    w = relax.Var("w", relax.TensorType((128, 128), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            value = x
            for _ in range(ops // 8):
                a = builder.emit(relax.op.nn.relu(value))
                b = builder.emit(relax.op.multiply(a, value))
                m = builder.emit(relax.op.mean(b, 1, keepdims=True))
                c = builder.emit(relax.op.subtract(b, m))
                d = builder.emit(relax.op.matmul(c, w))
                e = builder.emit(relax.op.reshape(d, (8, 8, 128)))
                f = builder.emit(relax.op.reshape(e, (64, 128)))
                value = builder.emit(relax.op.add(f, value))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return relax.transform.LegalizeOps()(builder.get())


def median_seconds(action: Callable[[], object], runs: int = 3) -> float:
    """Median time of ``action``, after one run that does not count."""
    action()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ops", type=int, nargs="+", default=[1000, 2000, 4000])
    parser.add_argument("--policy", default=DEFAULT_POLICY)
    args = parser.parse_args()
    table = Table("ops", "stock FuseOps s", "ours / stock", "growth per doubling")
    target = tvm.target.Target("nvidia/nvidia-a100")
    before = None
    for ops in args.ops:
        mod = repeated_blocks(ops)
        stock_input = relax.transform.AnnotateTIROpPattern()(mod)
        stock = median_seconds(lambda m=stock_input: relax.transform.FuseOps()(m))
        with target:
            ours = median_seconds(lambda m=mod: tf.transform.FuseOps(policy=args.policy)(m))
        growth = "" if before is None else f"{ours / before:.2f}"
        table.add_row(str(ops), f"{stock:.3f}", f"{ours / stock:.1f}", growth)
        before = ours
    Console().print(table)


if __name__ == "__main__":
    main()
