"""Turns the argument MODEL into an IRModule."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

import tvm
from tvm import relax

from ..errors import ModelError, one_line
from ..workloads import WORKLOADS
from .onnx_model import load_onnx


def load_model(model: str, inputs: Mapping[str, Sequence[int]] | None = None) -> tvm.IRModule:
    """Import a model.

    Parameters
    ----------
    model : str
        An ONNX file, ``file.py:NAME``, or the name of a workload.
    inputs : mapping of str to sequence of int, optional
        Shapes of an ONNX model's inputs by name.

    Returns
    -------
    tvm.IRModule

    Raises
    ------
    ModelError
        There is no such model, or it cannot be imported.
    """
    path, _, name = model.rpartition(":")
    if model.endswith(".onnx"):
        return _checked(model, load_onnx(Path(model), inputs or {}))
    if inputs:
        raise ModelError(
            f"--input gives shapes to ONNX files, and {model} is none: leave it out, or give the "
            f"shapes in the module"
        )
    if path.endswith(".py"):
        return _checked(model, _from_python(Path(path), name))
    if model in WORKLOADS:
        return WORKLOADS[model]()
    raise ModelError(
        f"there is no model {model!r}: give a file that ends in .onnx, file.py:NAME, or one of "
        f"{', '.join(sorted(WORKLOADS))}"
    )


def _checked(model: str, mod: tvm.IRModule) -> tvm.IRModule:
    if not any(isinstance(func, relax.Function) for func in mod.functions.values()):
        raise ModelError(f"{model} holds no Relax function: there is nothing to fuse")
    try:
        relax.analysis.well_formed(mod)
    except Exception as error:  # TVM raises several kinds
        raise ModelError(f"{model} is malformed, repair it: {one_line(error)}") from error
    return mod


def _from_python(path: Path, name: str) -> tvm.IRModule:
    if not path.is_file():
        raise ModelError(f"there is no file {path}: check the path")
    namespace = vars(_execute(path))
    value = namespace.get(name)
    if not isinstance(value, tvm.IRModule):
        modules = [key for key, item in namespace.items() if isinstance(item, tvm.IRModule)]
        what = (
            f"{name!r} in it is of type {type(value).__name__}"
            if name in namespace
            else f"no {name!r}"
        )
        remedy = f"choose one of {', '.join(modules)}" if modules else "define one there"
        raise ModelError(f"{path} has no IRModule of that name ({what}): {remedy}")
    return value


def _execute(path: Path) -> ModuleType:
    """Run a Python file as a module of its own; TVMScript looks its source up by that name."""
    name = f"tvm_fusion_model_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything may happen in a user's file
        raise ModelError(f"{path} cannot be executed, repair it: {one_line(error)}") from error
    return module
