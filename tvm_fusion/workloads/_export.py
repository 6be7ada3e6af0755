"""What every workload needs: registration, checks of its arguments and the export to Relax.

The networks are written with `tvm.relax.frontend.nn`, whose export has options that make no
difference here. This file settles them once, so that all workloads have the same calling
convention: one function `main`, inputs first, weights after them, no effects.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import spec

Dim = int | str
"""A size: an integer, or the name of a symbolic dimension."""

DTYPES = ("float32", "float16", "bfloat16")
"""Data types that a workload can be built in."""

WORKLOADS: dict[str, Callable[..., IRModule]] = {}
"""Constructors of all workloads, by name."""

SMALL: dict[str, dict[str, Any]] = {}
"""For every workload the keyword arguments that make it small enough for a quick test."""

Constructor = TypeVar("Constructor", bound=Callable[..., IRModule])


def workload(**small: Any) -> Callable[[Constructor], Constructor]:
    """Register a constructor in `WORKLOADS` under its own name.

    Parameters
    ----------
    **small
        Keyword arguments of the constructor for a test size: at most two million multiply-adds
        and a few hundred kilobytes of weights.

    Returns
    -------
    Callable
        A decorator that returns the constructor unchanged.
    """

    def register(constructor: Constructor) -> Constructor:
        WORKLOADS[constructor.__name__] = constructor
        SMALL[constructor.__name__] = small
        return constructor

    return register


def check_dtype(dtype: str) -> None:
    """Raise ValueError unless `dtype` is one of `DTYPES`."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is not supported: use one of {', '.join(DTYPES)}")


def check_static(**sizes: int) -> None:
    """Raise ValueError, naming the size, unless all sizes are positive integers."""
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            why = "it cannot be symbolic in this workload, " if isinstance(size, str) else ""
            raise ValueError(f"{name} is {size!r}: {why}give a positive integer")


def check_symbolic(**sizes: Dim) -> None:
    """Raise ValueError, naming the size, unless all are positive integers or identifiers."""
    for name, size in sizes.items():
        if not isinstance(size, str):
            check_static(**{name: size})
        elif not size.isidentifier():
            raise ValueError(
                f"{name} is {size!r}: the name of a symbolic dimension must be an identifier"
            )


def check_divides(**sizes: int) -> None:
    """Raise ValueError unless the first of two sizes divides the second.

    Parameters
    ----------
    **sizes
        Two sizes by name, the divisor first, such as ``heads=12, channels=768``.
    """
    check_static(**sizes)
    (part_name, part), (whole_name, whole) = sizes.items()
    if whole % part:
        raise ValueError(
            f"{whole_name} ({whole}) is not divisible by {part_name} ({part}): "
            f"choose {whole_name} as a multiple of {part_name}"
        )


def tensor(shape: tuple[Dim, ...], dtype: str) -> spec.Tensor:
    """Describe one input of a network: its shape (names are symbolic) and its data type."""
    return spec.Tensor(shape, dtype)


def export(network: nn.Module, **inputs: spec.Tensor) -> IRModule:
    """Export a network to an IRModule with the one function `main`.

    Parameters
    ----------
    network
        The network; its method `forward` takes tensors only.
    **inputs
        The inputs of `forward` in order, each described by `tensor`. The same name of a
        dimension in two inputs is the same dimension.

    Returns
    -------
    IRModule
        ``main(*inputs, *weights)``. Its attribute ``num_input`` is the number of inputs.
    """
    method = spec.MethodSpec(
        network.forward,
        arg_names=list(inputs),
        arg_specs=list(inputs.values()),
        param_mode="plain",
        effect_mode="none",
    )
    mod, _ = network.export_tvm({"main": method})
    return mod
