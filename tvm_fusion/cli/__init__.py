"""The command line ``tvm-fusion``: what each command is called with, and how it ends.

Exit status 0; 1 where the model cannot be imported or compiled, or demo or verify finds a
difference (one line says why); 2 for wrong usage. TVM is imported only by what needs it.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence

from .. import __version__
from ..errors import EmulatorError, TVMFusionError, one_line
from . import options


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if not given.

    Returns
    -------
    int
        The exit status: 0 or 1.

    Raises
    ------
    SystemExit
        With status 2 for wrong usage, as argparse does; with 0 after ``--help``.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        settings = options.settings(args)
    except ValueError as error:
        parser.error(str(error))
    try:
        if args.command == "demo":
            from .demo import demo

            return demo(settings)
        if args.command == "verify":
            from .verify import verify

            return verify(args.model, settings)
        if args.command == "explain":
            from .explain import explain_model

            return explain_model(args.model, settings, options.questions(args))
        from .compile import compile_model

        return compile_model(args.model, settings)
    except Exception as error:
        if settings.traceback:
            traceback.print_exc()
        print(f"tvm-fusion: error: {_explain(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tvm-fusion", description="Operator fusion for Apache TVM on NVIDIA GPUs."
    )
    parser.add_argument("--version", action="version", version=f"tvm-fusion {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    compiling = commands.add_parser(
        "compile",
        help="fuse and compile a model, and show its groups",
        description="Fuse a model, compile it to CUDA, and show groups, kernels and bytes.",
    )
    options.add_model(compiling)
    options.add_options(compiling)
    options.add_build_files(compiling)
    _add_compare_stock(compiling)
    explaining = commands.add_parser(
        "explain",
        help="say what was fused, why not the rest, and what it saves",
        description="Fuse a model and report every decision: as tables, as answers to --why, as a "
        "page, a graph and JSON. MODEL may also be a report that was written with --json.",
    )
    options.add_model(explaining)
    options.add_options(explaining)
    options.add_questions(explaining)
    _add_compare_stock(explaining)
    verifying = commands.add_parser(
        "verify",
        help="run a model's kernels, without a GPU too, and compare with the unfused model",
        description="Compile a model, run its kernels on random inputs, on the GPU or else on the "
        "emulator, and compare the results with the unfused model's on the CPU.",
    )
    options.add_model(verifying)
    options.add_options(verifying)
    options.add_build_files(verifying)
    verifying.add_argument(
        "--check",
        action="store_true",
        help="on the emulator: look for data races, accesses out of bounds, overflow (slower)",
    )
    demo = commands.add_parser(
        "demo",
        help="the same for a built-in GPT-2 block, and run it on the CPU",
        description="Compile a GPT-2 block, compare it with TVM's own fusion, and run it fused "
        "against unfused on the CPU.",
    )
    options.add_options(demo)
    options.add_build_files(demo)
    return parser


def _add_compare_stock(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compare-stock", action="store_true", help="count TVM's own fusion and schedules as well"
    )


def _explain(error: Exception) -> str:
    """What went wrong and what to do, in one line; an error in a kernel also says where."""
    text = str(error).strip()
    if isinstance(error, EmulatorError):
        return text
    if isinstance(error, TVMFusionError | ValueError) and "\n" not in text:
        return text
    if isinstance(error, OSError):
        return f"{text}: choose another path"

    return f"the build failed inside TVM with {one_line(error)} (--traceback shows where)"
