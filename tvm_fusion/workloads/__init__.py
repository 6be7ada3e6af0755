"""Classic small inference networks: demonstration, test and benchmark of the fusion passes.

``WORKLOADS`` maps the name of a network to its constructor, a plain function of sizes and data
type that returns an `IRModule`. Nothing but TVM and NumPy is needed, and no weights: see
`random_inputs`.
"""

from typing import Any

from tvm.ir import IRModule

# Importing a family registers its workloads.
from . import convolution, llama, mamba, micro, moe, pooling, transformer  # noqa: F401
from ._export import SMALL, WORKLOADS
from .inputs import random_inputs

__all__ = ["WORKLOADS", "random_inputs", "small"]


def small(name: str, **overrides: Any) -> IRModule:
    """Build a workload at a size for quick tests.

    Parameters
    ----------
    name
        Name of the workload, a key of `WORKLOADS`.
    **overrides
        Keyword arguments of the constructor that take precedence over the small sizes, such as
        ``batch="b"`` or ``dtype="float16"``.

    Returns
    -------
    IRModule
        What the constructor returns, with at most two million multiply-adds and a few hundred
        kilobytes of weights, unless the overrides make it larger.

    Raises
    ------
    ValueError
        If there is no such workload, or the constructor refuses an argument.
    """
    if name not in WORKLOADS:
        raise ValueError(f"no workload {name!r}: choose one of {', '.join(sorted(WORKLOADS))}")
    return WORKLOADS[name](**{**SMALL[name], **overrides})
