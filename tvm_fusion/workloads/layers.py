"""Layers that several workloads share and that `tvm.relax.frontend.nn` lacks or does otherwise.

Tensors are `nn.Tensor`. Shapes are given with b for the batch, s for the sequence, c for the
channels, h for the heads and d for the channels of one head.
"""

import math
from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.core import wrap_nested


def apply(operator: Callable[..., relax.Expr], *args: nn.Tensor, **attributes: Any) -> nn.Tensor:
    """Apply a Relax operator that `nn.op` does not offer, such as `relax.op.rsqrt`."""
    call = operator(*(arg._expr for arg in args), **attributes)
    return wrap_nested(call, operator.__name__)


class Linear(nn.Module):
    """A linear layer, (..., in_features) to (..., out_features).

    The weight has shape (in_features, out_features), as the product wants it. `nn.Linear`
    stores it the other way round and transposes it in the graph.
    """

    def __init__(self, in_features: int, out_features: int, dtype: str, bias: bool = True):
        self.weight = nn.Parameter((in_features, out_features), dtype)
        self.bias = nn.Parameter((out_features,), dtype) if bias else None

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Multiply by the weight and add the bias."""
        y = op.matmul(x, self.weight)
        return y if self.bias is None else y + self.bias


class LayerNorm(nn.LayerNorm):
    """The composite `relax.nn.layer_norm` over the last axis, in every data type.

    TVM has no bfloat16 layer norm, so that one is computed in float32; in float16 TVM does the
    same inside the operator.
    """

    def __init__(self, channels: int, dtype: str, eps: float = 1e-5):
        super().__init__(channels, eps=eps, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Normalise x, (..., channels)."""
        weight, bias = _widen_bfloat16(self.weight), _widen_bfloat16(self.bias)
        y = op.layer_norm(_widen_bfloat16(x), self.normalized_shape, weight, bias, self.eps)
        return y.astype(x.dtype)


class GroupNorm(nn.GroupNorm):
    """The composite `relax.nn.group_norm` of (b, c, height, width), in every data type."""

    def __init__(self, groups: int, channels: int, dtype: str, eps: float = 1e-5):
        super().__init__(groups, channels, eps=eps, dtype=dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Normalise each group of channels of x."""
        weight, bias = _widen_bfloat16(self.weight), _widen_bfloat16(self.bias)
        y = op.group_norm(_widen_bfloat16(x), self.num_groups, weight, bias, self.eps)
        return y.astype(x.dtype)


def _widen_bfloat16(x: nn.Tensor) -> nn.Tensor:
    """Turn bfloat16 into float32 and leave other types alone."""
    return x.astype("float32") if x.dtype == "bfloat16" else x


class RMSNorm(nn.Module):
    """Root-mean-square normalisation over the last axis, written out in elementary operators.

    The composite `relax.nn.rms_norm` becomes one kernel by itself; models imported from
    elsewhere arrive in this form. As there, half-precision inputs are normalised in float32.
    """

    def __init__(self, channels: int, dtype: str, eps: float = 1e-6):
        self.weight = nn.Parameter((channels,), dtype)
        self.eps = eps

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Normalise x, (..., channels)."""
        y = x.astype("float32")
        mean_square = apply(relax.op.mean, y * y, axis=-1, keepdims=True)
        y = y * apply(relax.op.rsqrt, mean_square + self.eps)
        return y.astype(x.dtype) * self.weight


class BatchNorm(nn.Module):
    """Batch normalisation of (b, c, height, width) at inference, written out.

    Running statistics are weights here. This is what `relax.transform.DecomposeOpsForInference`
    makes of `relax.nn.batch_norm`.
    """

    def __init__(self, channels: int, dtype: str, eps: float = 1e-5):
        self.weight = nn.Parameter((channels,), dtype)
        self.bias = nn.Parameter((channels,), dtype)
        self.running_mean = nn.Parameter((channels,), dtype)
        self.running_var = nn.Parameter((channels,), dtype)
        self.eps = eps

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        """Normalise x with the running statistics."""
        mean, var, weight, bias = (
            op.reshape(value, (1, -1, 1, 1))
            for value in (self.running_mean, self.running_var, self.weight, self.bias)
        )
        return (x - mean) / op.sqrt(var + self.eps) * weight + bias


def split_heads(x: nn.Tensor, heads: int) -> nn.Tensor:
    """Turn (b, s, h * d) into (b, h, s, d)."""
    batch, seq, channels = x.shape
    return op.permute_dims(op.reshape(x, (batch, seq, heads, channels // heads)), [0, 2, 1, 3])


def merge_heads(x: nn.Tensor) -> nn.Tensor:
    """Turn (b, h, s, d) into (b, s, h * d)."""
    batch, heads, seq, depth = x.shape
    return op.reshape(op.permute_dims(x, [0, 2, 1, 3]), (batch, seq, heads * depth))


def masked_value(dtype: str) -> float:
    """The score of a masked position: finite in `dtype` and far below all other scores."""
    return -6e4 if dtype == "float16" else -1e9


def causal_mask(seq: Any) -> nn.Tensor:
    """Where a query may look, (s, s) of bool: at its own position and those before it.

    Computed from positions in the graph, so that it is the same for a symbolic `seq`.
    """
    position = op.arange(0, seq, dtype="int64")
    return op.greater_equal(op.unsqueeze(position, 1), op.unsqueeze(position, 0))


def causal_bias(seq: Any, dtype: str) -> nn.Tensor:
    """The causal mask as numbers to add to the scores, (s, s): zero or `masked_value`."""
    masked = op.full((seq, seq), masked_value(dtype), dtype)
    return op.triu(masked, diagonal=1)


def attention(
    query: nn.Tensor,
    key: nn.Tensor,
    value: nn.Tensor,
    mask: nn.Tensor | None = None,
    bias: nn.Tensor | None = None,
) -> nn.Tensor:
    """Softmax attention in elementary operators.

    Parameters
    ----------
    query, key, value
        Shape (b, h, s, d).
    mask
        Optional, of bool, broadcastable to (b, h, s, s): True where a query may look.
    bias
        Optional, broadcastable to (b, h, s, s): added to the scores.

    Returns
    -------
    nn.Tensor
        Shape (b, h, s, d).
    """
    scores = op.matmul(query, op.permute_dims(key, [0, 1, 3, 2]))
    scores = scores * (1.0 / math.sqrt(query.shape[-1]))
    if mask is not None:
        masked = nn.Tensor.from_scalar(masked_value(query.dtype), query.dtype)
        scores = op.where(mask, scores, masked)
    if bias is not None:
        scores = scores + bias
    return op.matmul(op.softmax(scores, axis=-1), value)
