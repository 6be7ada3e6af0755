"""``tvm-fusion compile``: a model in, CUDA source, fused module and report out."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from ..codegen import cuda_source
from ..export import export_library
from ..report import FusionReport, build_and_explain, make_console, render
from .models import load_model
from .options import Settings


@dataclass(frozen=True)
class Build:
    """A compiled model: as it was imported, what came out, and its report."""

    imported: tvm.IRModule
    fused: tvm.IRModule
    executable: Any
    report: FusionReport


def compile_model(model: str, settings: Settings) -> int:
    """Run the command.

    Parameters
    ----------
    model : str
        The argument MODEL.
    settings : Settings
        The options.

    Returns
    -------
    int
        The exit status, 0.

    Raises
    ------
    TVMFusionError
        The model cannot be imported or compiled.
    """
    build(model, settings)
    return 0


def build(model: str, settings: Settings) -> Build:
    """Import and compile a model, write the files that were asked for, and print the tables."""
    make_directories(settings.out, settings.json, settings.export)
    with progress() as say:
        imported, fused, report = fuse_and_explain(model, settings, say)
        say("compile")
        gpu = tvm.target.Target(settings.target)
        executable = tvm.compile(fused, gpu if gpu.host is not None else gpu.with_host("llvm"))
    made = Build(imported, fused, executable, report)
    _write(made, settings)
    render(report, make_console(sys.stdout))
    if settings.export is not None:
        compiler = export_library(made.fused, gpu, settings.export)
        print(f"wrote {settings.export}, device code by {compiler}")
    if settings.out is not None:
        print(f"wrote kernels.cu, fused.py and report.json to {settings.out}")
    return made


def fuse_and_explain(
    model: str, settings: Settings, say: Callable[[str], None]
) -> tuple[tvm.IRModule, tvm.IRModule, FusionReport]:
    """Import a model, fuse it, and tell about it; warnings go to stderr, each once.

    Parameters
    ----------
    model : str
        The argument MODEL.
    settings : Settings
        The options.
    say : callable
        Called with the name of each phase when it starts.

    Returns
    -------
    imported, fused : tvm.IRModule
    report : FusionReport
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say("import")
        imported = load_model(model, settings.inputs)
        report, fused = build_and_explain(
            imported,
            settings.target,
            settings.policy,
            settings.limits,
            settings.no_fuse,
            settings.assume,
            settings.compare_stock,
            settings.feedback,
            say,
        )
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if text not in report.notes:
            print(f"tvm-fusion: warning: {text}", file=sys.stderr)
    return imported, fused, report


def make_directories(out: Path | None, *files: Path | None) -> None:
    """Make the directories that results will be written to, before any work is done."""
    for directory in (out, *(file.parent for file in files if file is not None)):
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)


def _write(made: Build, settings: Settings) -> None:
    if settings.out is not None:
        write_text(settings.out / "kernels.cu", cuda_source(made.executable))
        write_text(settings.out / "fused.py", made.fused.script() + "\n")
        made.report.save(settings.out / "report.json")
    if settings.json is not None:
        made.report.save(settings.json)


def write_text(path: Path, text: str) -> None:
    """Write a text file as every command does."""
    path.write_text(text, encoding="utf-8")


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Show the current phase on stderr while the block runs; nothing where it is no terminal."""
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda _phase: None
        return
    with console.status("starting") as status:
        yield status.update
