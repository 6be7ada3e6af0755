"""The options that the commands share, read and checked before any work starts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..limits import FEEDBACK, Limits

_TARGET = "nvidia/nvidia-a100"
_POLICY = "stitch"


@dataclass(frozen=True)
class Settings:
    """What the options of one command line ask for."""

    target: str
    policy: str
    limits: Limits
    no_fuse: tuple[str, ...]
    assume: dict[str, int]
    inputs: dict[str, tuple[int, ...]]
    out: Path | None
    json: Path | None
    export: Path | None
    compare_stock: bool
    feedback: str
    check: bool
    traceback: bool


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add the argument MODEL."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="an ONNX file, file.py:NAME of an IRModule, or the name of a built-in workload",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that compiles a model."""
    add = parser.add_argument
    add("--target", metavar="TAG", type=_target, default=_TARGET, help=f"a GPU (default {_TARGET})")
    add("--policy", type=_policy, default=_POLICY, help=f"which ops fuse (default {_POLICY})")
    add(
        "--shared-memory",
        metavar="BYTES|opt-in",
        type=_shared_memory,
        help="shared memory of one thread block (default: what the target says)",
    )
    add("--max-depth", metavar="N", type=int, help="most ops in one group")
    add(
        "--feedback",
        choices=FEEDBACK,
        default="auto",
        help="whether the CUDA compiler's figures have a say in what is fused (default auto)",
    )
    add("--registers", metavar="N", type=int, help="most registers of one thread")
    add("--min-occupancy", metavar="X", type=float, help="least occupancy, up to 1")
    add("--compile-seconds", metavar="S", type=float, help="most time for feedback")
    add(
        "--no-fuse",
        metavar="NAME",
        action="append",
        default=[],
        help="leave this op or PrimFunc alone (may be given several times)",
    )
    add(
        "--assume",
        metavar="NAME=N",
        type=_extent,
        action="append",
        default=[],
        help="value of a symbolic extent for the counts, like n=128 (several times)",
    )
    add(
        "--input",
        metavar="NAME=SHAPE",
        type=_input,
        action="append",
        default=[],
        help="shape of an ONNX model's input, like x=1x3x224x224 (several times)",
    )
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="write kernels.cu, fused.py and summary.json to this directory",
    )
    add(
        "--export",
        metavar="FILE.so",
        type=Path,
        help="write a library with finished device code, for TVM's runtime on a GPU machine",
    )
    add("--json", metavar="FILE", type=Path, help="write the summary to this file")
    add("--traceback", action="store_true", help="show where an error was raised")


def settings(args: argparse.Namespace) -> Settings:
    """The settings that parsed arguments ask for.

    Raises
    ------
    LimitsError
        A limit that no kernel can meet.
    """
    return Settings(
        target=args.target,
        policy=args.policy,
        limits=Limits(
            shared_memory_bytes=args.shared_memory,
            max_depth=args.max_depth,
            registers_per_thread=args.registers,
            min_occupancy=args.min_occupancy,
            compile_seconds=args.compile_seconds,
        ),
        feedback=args.feedback,
        no_fuse=tuple(args.no_fuse),
        assume=dict(args.assume),
        inputs=dict(args.input),
        out=args.out,
        json=args.json,
        export=args.export,
        compare_stock=getattr(args, "compare_stock", args.command == "demo"),
        check=getattr(args, "check", False),
        traceback=args.traceback,
    )


def _checked(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """Let argparse show what a check's ``ValueError`` says."""

    def convert(text: str) -> Any:
        try:
            return check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


@_checked
def _target(text: str) -> str:
    import tvm

    try:
        target = tvm.target.Target(text)
    except Exception:  # TVM raises several kinds, with long texts
        raise ValueError(f"unknown target {text!r}: give a tag like {_TARGET}") from None
    if target.kind.name != "cuda":
        raise ValueError(f"target {text!r} is no CUDA GPU: give a tag like {_TARGET}")
    return text


@_checked
def _policy(text: str) -> str:
    from ..policy import get_policy

    get_policy(text)
    return text


@_checked
def _shared_memory(text: str) -> int | str:
    if text == "opt-in":
        return text
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no amount: give a number of bytes, or opt-in")
    return int(text)


@_checked
def _extent(text: str) -> tuple[str, int]:
    match = re.fullmatch(r"(\w+)=(\d+)", text)
    if match is None or int(match[2]) < 1:
        raise ValueError(f"{text!r} gives no extent: write it like n=128")
    return match[1], int(match[2])


@_checked
def _input(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, shape = text.rpartition("=")
    if not name or re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", shape) is None:
        raise ValueError(f"{text!r} gives no shape: write it like x=1x3x224x224")
    return name, tuple(int(extent) for extent in shape.split("x"))
