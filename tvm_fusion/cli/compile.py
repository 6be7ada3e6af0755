"""``tvm-fusion compile``: a model in, CUDA source, fused module and summary out."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm

from ..codegen import cuda_source
from ..export import export_library
from ..report import Summary, make_console, render, summarise
from .models import load_model
from .options import Settings


@dataclass(frozen=True)
class Build:
    """A compiled model: as it was imported, what came out, and its summary."""

    imported: tvm.IRModule
    fused: tvm.IRModule
    executable: Any
    summary: Summary


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
    files = (settings.json, settings.export)
    for directory in (settings.out, *(file.parent for file in files if file is not None)):
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
    with progress() as say, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say("import")
        started = time.perf_counter()
        mod = load_model(model, settings.inputs)
        seconds = {"import": time.perf_counter() - started}
        summary, fused, executable = summarise(
            mod,
            settings.target,
            settings.policy,
            settings.limits,
            settings.no_fuse,
            settings.assume,
            settings.compare_stock,
            settings.feedback,
            say,
        )
    summary = replace(summary, seconds={**seconds, **summary.seconds})
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        if text not in summary.notes:
            print(f"tvm-fusion: warning: {text}", file=sys.stderr)
    made = Build(mod, fused, executable, summary)
    _write(made, settings)
    render(summary, make_console(sys.stdout))
    if settings.export is not None:
        compiler = export_library(made.fused, tvm.target.Target(settings.target), settings.export)
        print(f"wrote {settings.export}, device code by {compiler}")
    if settings.out is not None:
        print(f"wrote kernels.cu, fused.py and summary.json to {settings.out}")
    return made


def _write(made: Build, settings: Settings) -> None:
    text = json.dumps(made.summary.to_json(), indent=2) + "\n"
    if settings.out is not None:
        _write_text(settings.out / "kernels.cu", cuda_source(made.executable))
        _write_text(settings.out / "fused.py", made.fused.script() + "\n")
        _write_text(settings.out / "summary.json", text)
    if settings.json is not None:
        _write_text(settings.json, text)


def _write_text(path: Path, text: str) -> None:
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
