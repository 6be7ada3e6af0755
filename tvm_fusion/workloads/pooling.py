"""Blocks that reduce over another axis than the last, and broadcast the result back.

Reductions over rows in memory and over columns are scheduled differently; most networks have only
the former.
"""

from tvm import relax
from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from ._export import (
    Dim,
    check_divides,
    check_dtype,
    check_static,
    check_symbolic,
    export,
    tensor,
    workload,
)
from .layers import Linear, apply


class _AttentionPool(nn.Module):
    """Attention with one learned query a head: softmax and sum run over the sequence."""

    def __init__(self, channels: int, heads: int, dtype: str):
        self.heads = heads
        self.score = Linear(channels, heads, dtype)
        self.value = Linear(channels, channels, dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, seq, channels = x.shape
        shape = (batch, seq, self.heads, channels // self.heads)
        weight = op.softmax(self.score(x).astype("float32"), axis=1)
        value = op.reshape(self.value(x).astype("float32"), shape)
        pooled = op.sum(op.unsqueeze(weight, 3) * value, axis=1)
        return op.reshape(pooled, (batch, channels)).astype(x.dtype)


@workload(batch=2, seq=16, channels=32, heads=4)
def attention_pool(
    *,
    batch: Dim = 8,
    seq: Dim = 128,
    channels: int = 256,
    heads: int = 4,
    dtype: str = "float32",
) -> IRModule:
    """Attention pooling: a softmax over the sequence, which is not the last axis, weighs a sum.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer.
    heads
        Number of attention heads; must divide `channels`.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, *weights)``, x (batch, seq, channels), the result (batch, channels).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_divides(heads=heads, channels=channels)
    return export(
        _AttentionPool(channels, heads, dtype),
        x=tensor((batch, seq, channels), dtype),
    )


class _SqueezeExcite(nn.Module):
    """The end of a block of SE-ResNet: channels are weighed by what their means say."""

    def __init__(self, channels: int, squeezed: int, dtype: str):
        self.fc1 = Linear(channels, squeezed, dtype)
        self.fc2 = Linear(squeezed, channels, dtype)

    def forward(self, x: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        batch, channels = x.shape[:2]
        mean = apply(relax.op.mean, x.astype("float32"), axis=[2, 3]).astype(x.dtype)
        gate = op.sigmoid(self.fc2(op.relu(self.fc1(mean))))
        return op.relu(x * op.reshape(gate, (batch, channels, 1, 1)) + residual)


@workload(batch=2, channels=16, squeezed=4, size=8)
def squeeze_excite(
    *,
    batch: Dim = 1,
    channels: int = 256,
    squeezed: int = 16,
    size: int = 56,
    dtype: str = "float32",
) -> IRModule:
    """Squeeze and excitation with a residual sum, as SE-ResNet ends its blocks.

    Parameters
    ----------
    batch
        Number of images; an integer, or a string that names a symbolic dimension.
    channels
        Number of channels.
    squeezed
        Width between the two linear layers.
    size
        Height and width of the image.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, residual, *weights)``, x, residual and the result (batch, channels, size, size).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch)
    check_static(channels=channels, squeezed=squeezed, size=size)
    shape = (batch, channels, size, size)
    return export(
        _SqueezeExcite(channels, squeezed, dtype),
        x=tensor(shape, dtype),
        residual=tensor(shape, dtype),
    )
