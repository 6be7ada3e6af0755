"""Where the compilers and headers are: g++, and NVIDIA's tools from their wheels or a toolkit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def _wheel_folders() -> Iterator[Path]:
    """Folders that NVIDIA's wheels of CUDA 13 are unpacked to."""
    spec = find_spec("nvidia")
    for home in (spec.submodule_search_locations if spec else None) or []:
        yield from sorted(Path(home).glob("cu13*"))


def _toolkit_folders() -> Iterator[Path]:
    """Where a CUDA toolkit is: as the environment says, or around the ``nvcc`` on the PATH."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    on_path = shutil.which("nvcc")
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent


def _first(candidates: Iterator[Path]) -> Path | None:
    return next((path for path in candidates if path.exists()), None)


@cache
def host_compiler() -> str | None:
    """Path of g++: what ``$CXX`` names, or ``g++``; None where there is none."""
    for name in (os.environ.get("CXX"), "g++"):
        path = shutil.which(name) if name and "clang" not in name else None
        if path is not None:
            return path
    return None


@cache
def cuda_headers() -> Path | None:
    """The folder of CUDA's headers; None where there is none that has all we need."""
    wanted = ("cuda.h", "cuda_fp16.h", "cuda_fp8.h", "cuda_occupancy.h", "crt/host_defines.h")
    for folder in (*_wheel_folders(), *_toolkit_folders()):
        if all((folder / "include" / name).exists() for name in wanted):
            return folder / "include"
    return None


@cache
def nvrtc_library() -> Path | None:
    """``libnvrtc.so``, the compiler as a library; its builtins lie next to it."""
    patterns = ("lib/libnvrtc.so.1*", "lib64/libnvrtc.so.1*")
    folders = (*_wheel_folders(), *_toolkit_folders())
    found = (p for folder in folders for pattern in patterns for p in sorted(folder.glob(pattern)))
    return _first(found)


@cache
def cuda_tool(name: str) -> Path | None:
    """A program of the CUDA toolkit, like ``nvcc``: from a wheel, a toolkit, or the PATH."""
    folders = (*_wheel_folders(), *_toolkit_folders())
    found = _first(folder / "bin" / name for folder in folders)
    on_path = shutil.which(name)
    return found or (Path(on_path) if on_path else None)
