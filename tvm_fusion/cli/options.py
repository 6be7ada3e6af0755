"""The options that the commands share, read and checked before any work starts."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..limits import FEEDBACK, Limits

_TARGET = "nvidia/nvidia-a100"
_POLICY = "stitch"


@dataclass(frozen=True)
class Settings:
    """What the options of one command line ask for."""

    target: str = _TARGET
    policy: str = _POLICY
    limits: Limits = field(default_factory=Limits)
    no_fuse: tuple[str, ...] = ()
    assume: dict[str, int] = field(default_factory=dict)
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    out: Path | None = None
    json: Path | None = None
    export: Path | None = None
    compare_stock: bool = False
    feedback: str = "auto"
    check: bool = False
    traceback: bool = False


@dataclass(frozen=True)
class Questions:
    """What is asked of a report, and the files that it is written to."""

    why: tuple[tuple[str, str], ...] = ()
    group: tuple[str, ...] = ()
    diff: Path | None = None
    html: Path | None = None
    graphviz: Path | None = None
    mermaid: Path | None = None
    model_explorer: Path | None = None
    chrome_trace: Path | None = None

    @property
    def files(self) -> tuple[Path | None, ...]:
        """Files to be written."""
        graphs = (self.graphviz, self.mermaid, self.model_explorer)
        return (self.html, *graphs, self.chrome_trace)


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
    add("--json", metavar="FILE", type=Path, help="write the report to this file")
    add("--traceback", action="store_true", help="show where an error was raised")


def add_build_files(parser: argparse.ArgumentParser) -> None:
    """Add the options for the files of a command that compiles a model to the end."""
    add = parser.add_argument
    add(
        "--out",
        metavar="DIR",
        type=Path,
        help="write kernels.cu, fused.py and report.json to this directory",
    )
    add(
        "--export",
        metavar="FILE.so",
        type=Path,
        help="write a library with finished device code, for TVM's runtime on a GPU machine",
    )


def add_questions(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``explain``: what is asked of the report, and where it is written to."""
    add = parser.add_argument
    add(
        "--why",
        metavar=("A", "B"),
        nargs=2,
        action="append",
        default=[],
        help="say why two ops, or ops of two PrimFuncs, are or are not in one kernel (several "
        "times)",
    )
    add(
        "--group",
        metavar="NAME",
        action="append",
        default=[],
        help="show a group, by its name or that of an op, with TVMScript and CUDA (several times)",
    )
    add("--diff", metavar="OLD.json", type=Path, help="say what changed from an older report")
    add("--html", metavar="FILE", type=Path, help="write a page that needs no network")
    add("--graphviz", metavar="FILE", type=Path, help="write the graph in the DOT language")
    add("--mermaid", metavar="FILE", type=Path, help="write the graph as a Mermaid flowchart")
    add("--model-explorer", metavar="FILE", type=Path, help="write the graph for Model Explorer")
    add("--chrome-trace", metavar="FILE", type=Path, help="write the phases of the build")


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
        out=getattr(args, "out", None),
        json=args.json,
        export=getattr(args, "export", None),
        compare_stock=getattr(args, "compare_stock", args.command == "demo"),
        check=getattr(args, "check", False),
        traceback=args.traceback,
    )


def questions(args: argparse.Namespace) -> Questions:
    """What parsed arguments of ``explain`` ask of the report."""
    return Questions(
        why=tuple((first, second) for first, second in args.why),
        group=tuple(args.group),
        diff=args.diff,
        html=args.html,
        graphviz=args.graphviz,
        mermaid=args.mermaid,
        model_explorer=args.model_explorer,
        chrome_trace=args.chrome_trace,
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
