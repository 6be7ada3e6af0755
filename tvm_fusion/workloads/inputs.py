"""Random arguments for a module, so that tests and benchmarks need no weights from elsewhere.

Weights are scaled such that a deep network neither explodes nor dies out: a comparison of two
results means something only while they are of ordinary magnitude.
"""

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, tirx
from tvm.ir import IRModule

INTEGER_RANGE = 8
"""Random integers are from 0 up to, but not including, this number."""


def random_inputs(
    mod: IRModule,
    *,
    seed: int = 0,
    assume: Mapping[str, int] | None = None,
    scale: float | None = None,
) -> list[np.ndarray]:
    """Draw random arguments for the function `main` of a module.

    Parameters
    ----------
    mod
        Any module with a Relax function `main` whose parameters are all tensors. Parameters
        from the attribute ``num_input`` on are taken for weights; without that attribute none
        are.
    seed
        Seed of the random numbers. The same module and seed give the same arguments.
    assume
        Values of symbolic dimensions by name. Names that `main` does not use are ignored.
    scale
        Standard deviation of the floating-point inputs; 1 if not given. Weights are not
        affected.

    Returns
    -------
    list of numpy.ndarray
        One array for each parameter, in order, of the parameter's shape and data type. Inputs
        are standard normal. Weights of two and more dimensions are normal with variance 1 /
        fan-in; vectors are near one for factors of normalisations and near zero for biases;
        running variances are positive. Integers are below `INTEGER_RANGE`.

    Raises
    ------
    ValueError
        If `assume` lacks a symbolic dimension, or a parameter is not a tensor of known shape.
    """
    main = mod["main"]
    num_input = int(main.attrs["num_input"]) if "num_input" in (main.attrs or {}) else None
    generator = np.random.default_rng(seed)
    arrays = []
    array: np.ndarray
    for index, param in enumerate(main.params):
        shape, dtype = _shape_and_dtype(param, assume or {})
        if dtype == "bool":
            array = generator.random(shape) < 0.5
        elif dtype.startswith(("int", "uint")):
            array = generator.integers(0, INTEGER_RANGE, shape)
        elif num_input is None or index < num_input:
            array = generator.standard_normal(shape) * (1.0 if scale is None else scale)
        else:
            array = _random_weight(param.name, shape, generator)
        arrays.append(np.asarray(array).astype(_numpy_dtype(dtype)))
    return arrays


def _shape_and_dtype(param: relax.Var, assume: Mapping[str, int]) -> tuple[tuple[int, ...], str]:
    """Concrete shape and data type of a parameter."""
    try:
        dims = param.ty.shape.values
    except AttributeError:
        raise ValueError(
            f"parameter {param.name} is {param.ty}: random_inputs needs tensors of known shape"
        ) from None
    shape = tuple(_evaluate(dim, param.name, assume) for dim in dims)
    return shape, str(param.ty.dtype)


def _evaluate(dim: tirx.Expr, name: str, assume: Mapping[str, int]) -> int:
    """Value of one dimension of parameter `name`."""
    analyzer = tvm.sym.Analyzer()
    for var in tirx.analysis.undefined_vars(dim):
        if var.name not in assume:
            raise ValueError(
                f"symbolic dimension {var.name!r} of parameter {name} has no value: "
                f"pass assume={{{var.name!r}: ...}}"
            )
        analyzer.bind(var, tirx.IntImm("int64", assume[var.name]))
    return int(analyzer.simplify(dim))


def _random_weight(name: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """A weight of ordinary magnitude; what it is for is guessed from its name and shape."""
    normal = generator.standard_normal(shape)
    if name.endswith(("var", "variance")):
        return 0.5 + generator.random(shape)
    if len(shape) >= 2:
        return normal / math.sqrt(max(1, _fan_in(name, shape)))
    is_offset = name.endswith(("bias", "beta", "mean"))
    is_factor = any(part in name for part in ("norm", "gamma", "weight"))
    return 0.1 * normal + (1.0 if is_factor and not is_offset else 0.0)


def _fan_in(name: str, shape: tuple[int, ...]) -> int:
    """How many products each output of a weight sums up.

    Kernels of convolutions are (out, in, *window); all else is (..., in, out).
    """
    is_convolution = len(shape) >= 4 or (len(shape) == 3 and "conv" in name)
    return math.prod(shape[1:]) if is_convolution else shape[-2]


def _numpy_dtype(dtype: str) -> np.dtype:
    """NumPy's data type for one of TVM's; bfloat16 and the like come from ml_dtypes."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype))
