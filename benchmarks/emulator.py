"""How fast the emulator is: elements per second of softmax, multiply-adds per second of matmul.

python benchmarks/emulator.py
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import tvm
from rich.console import Console
from rich.table import Table
from tvm import relax

from tvm_fusion import emulator

MODES: dict[str, dict[str, Any]] = {
    "plain, all cores": {},
    "plain, one core": {"order": "reverse"},
    "check": {"check": True},
    "profile, 4 blocks": {"profile": 4},
}


def build(function: Any, *shapes: tuple[int, ...]) -> tuple[Any, list[Any]]:
    """A function on the emulator, compiled by TVM's own pipeline, and random arguments."""
    params = [relax.Var(f"x{i}", relax.TensorType(s, "float32")) for i, s in enumerate(shapes)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(function(*params))
        builder.emit_func_output(out)
    target = tvm.target.Target("nvidia/nvidia-a100", host="llvm")
    machine = relax.VirtualMachine(tvm.compile(builder.finalize(), target), tvm.cuda(0))
    arrays = [np.random.default_rng(0).random(shape, "float32") for shape in shapes]
    return machine["main"], [tvm.runtime.tensor(array, tvm.cuda(0)) for array in arrays]


def main() -> None:
    """Print the table."""
    emulator.install()
    relax_softmax = relax.op.nn.softmax
    cases = {
        "softmax 512 x 4096": (build(relax_softmax, (512, 4096)), 512 * 4096),
        "softmax 12288 x 128": (build(relax_softmax, (12288, 128)), 12288 * 128),
        "matmul 256 x 256 x 256": (build(relax.op.matmul, (256, 256), (256, 256)), 256**3),
    }
    table = Table("", *MODES, title=f"millions a second, {len(os.sched_getaffinity(0))} cores")
    for name, ((function, arguments), count) in cases.items():
        row = []
        for settings in MODES.values():
            with emulator.configure(**settings):
                function(*arguments)  # compiles
                started = time.perf_counter()
                function(*arguments)
                row.append(f"{count / (time.perf_counter() - started) / 1e6:.2f}")
        table.add_row(name, *row)
    Console().print(table)


if __name__ == "__main__":
    main()
