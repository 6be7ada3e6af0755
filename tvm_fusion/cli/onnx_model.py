"""Imports ONNX files, also those that TVM's importer refuses: shapes computed inside the graph.

Such a model is made static and constant-folded with onnxsim first. Both packages are imported
here and nowhere else: they are an extra of the installation.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm

from ..errors import ModelError, one_line


def load_onnx(path: Path, inputs: Mapping[str, Sequence[int]]) -> tvm.IRModule:
    """Import an ONNX file with its weights as constants.

    Parameters
    ----------
    path : Path
        The file.
    inputs : mapping of str to sequence of int
        Shapes of inputs by name; those that the file leaves open must be given.

    Returns
    -------
    tvm.IRModule

    Raises
    ------
    ModelError
        A package is missing, the file is no ONNX model, an input has no fixed shape, or TVM
        cannot import an operator.
    """
    try:
        import onnx
        import onnxsim
        from tvm.relax.frontend.onnx import from_onnx
    except ImportError as error:
        raise ModelError(
            f"{path} needs the package {error.name}: pip install 'tvm-fusion[onnx]'"
        ) from error
    if not path.is_file():
        raise ModelError(f"there is no file {path}: check the path")
    try:
        model = onnx.load(path)
    except Exception as error:  # protobuf's own kinds
        raise ModelError(f"{path} is no ONNX model: export it again ({one_line(error)})") from error
    _check_inputs(path, model, inputs)
    shapes = {name: list(shape) for name, shape in inputs.items()}
    simplified, _ = _quietly(
        f"onnxsim cannot simplify {path}: check the model, and the shapes given by --input",
        lambda: onnxsim.simplify(model, overwrite_input_shapes=shapes),
    )
    mod: tvm.IRModule = _quietly(
        f"TVM cannot import {path}: export it with other operators, or other --input shapes",
        lambda: from_onnx(simplified, keep_params_in_input=False),
    )
    return mod


def _check_inputs(path: Path, model: Any, inputs: Mapping[str, Sequence[int]]) -> None:
    """Refuse shapes for what is no input, and inputs whose shape stays open."""
    weights = {weight.name for weight in model.graph.initializer}
    declared = {
        value.name: [dim.dim_value or dim.dim_param or "?" for dim in _dims(value)]
        for value in model.graph.input
        if value.name not in weights
    }
    for name, shape in inputs.items():
        if name not in declared:
            raise ModelError(
                f"{path} has no input {name!r}: give --input for {', '.join(declared)}"
            )
        if declared[name] and len(declared[name]) != len(shape):
            raise ModelError(
                f"input {name!r} of {path} is {_text(declared[name])}: give --input {name}= with "
                f"{len(declared[name])} extents"
            )
    for name, dims in declared.items():
        if name not in inputs and any(isinstance(dim, str) for dim in dims):
            example = "x".join(str(dim) if isinstance(dim, int) else "1" for dim in dims)
            raise ModelError(
                f"input {name!r} of {path} is {_text(dims)}, which is not fixed: give its shape, "
                f"like --input {name}={example}"
            )


def _dims(value: Any) -> list[Any]:
    return list(value.type.tensor_type.shape.dim)


def _text(dims: Sequence[int | str]) -> str:
    return "x".join(map(str, dims))


def _quietly(failure: str, work: Any) -> Any:
    """Do ``work`` without what it prints; what it raises becomes one sentence.

    TVM's importer prints which operator it failed at, and raises without naming it.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            return work()
    except Exception as error:  # TVM and onnxsim raise several kinds
        operator = printed.getvalue().partition(", with inputs")[0].strip()
        why = f"{operator}: {one_line(error)}" if operator else one_line(error)
        raise ModelError(f"{failure} ({why})") from error
