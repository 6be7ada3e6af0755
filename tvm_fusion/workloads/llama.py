"""A decoder layer of the Llama family, the usual shape of current language models.

Beside the attention of `transformer.py` it has rotary positions, fewer key and value heads
than query heads, RMSNorm in elementary operators and a gated feed-forward part.
"""

from typing import Any

import numpy as np
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
from .layers import Linear, RMSNorm, apply, attention, causal_bias, merge_heads, split_heads


def _rope_tables(seq: Any, depth: int, dtype: str, base: float = 1e4) -> tuple[nn.Tensor, ...]:
    """Cosine and sine of the rotary angles, each (seq, depth).

    Computed in the graph from positions, so that they are the same for a symbolic `seq`.
    """
    frequency = 1.0 / base ** (np.arange(0, depth, 2, dtype="float32") / depth)
    position = op.unsqueeze(op.arange(0, seq, dtype="float32"), 1)
    half = position * nn.Tensor.from_const(frequency.astype("float32").reshape(1, -1))
    angle = op.concat([half, half], dim=-1)
    return apply(relax.op.cos, angle).astype(dtype), apply(relax.op.sin, angle).astype(dtype)


def _rotate(x: nn.Tensor, cos: nn.Tensor, sin: nn.Tensor) -> nn.Tensor:
    """Apply rotary positions to x, (b, h, s, d), with tables of (s, d)."""
    first, second = op.split(x, 2, axis=-1)
    return x * cos + op.concat([op.negative(second), first], dim=-1) * sin


class _LlamaBlock(nn.Module):
    """The decoder layer."""

    def __init__(self, channels: int, heads: int, kv_heads: int, hidden: int, dtype: str):
        self.heads, self.kv_heads, self.depth = heads, kv_heads, channels // heads
        self.norm1 = RMSNorm(channels, dtype)
        self.query = Linear(channels, channels, dtype, bias=False)
        self.key = Linear(channels, kv_heads * self.depth, dtype, bias=False)
        self.value = Linear(channels, kv_heads * self.depth, dtype, bias=False)
        self.proj = Linear(channels, channels, dtype, bias=False)
        self.norm2 = RMSNorm(channels, dtype)
        self.gate = Linear(channels, hidden, dtype, bias=False)
        self.up = Linear(channels, hidden, dtype, bias=False)
        self.down = Linear(hidden, channels, dtype, bias=False)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        seq = x.shape[1]
        cos, sin = _rope_tables(seq, self.depth, x.dtype)
        y = self.norm1(x)
        query = _rotate(split_heads(self.query(y), self.heads), cos, sin)
        key = _rotate(split_heads(self.key(y), self.kv_heads), cos, sin)
        value = split_heads(self.value(y), self.kv_heads)
        key, value = (op.repeat(part, self.heads // self.kv_heads, 1) for part in (key, value))
        attended = attention(query, key, value, bias=causal_bias(seq, x.dtype))
        x = x + self.proj(merge_heads(attended))
        y = self.norm2(x)
        return x + self.down(op.silu(self.gate(y)) * self.up(y))


@workload(batch=2, seq=16, channels=32, heads=4, kv_heads=2, hidden=48)
def llama_block(
    *,
    batch: Dim = 1,
    seq: Dim = 128,
    channels: int = 512,
    heads: int = 8,
    kv_heads: int = 4,
    hidden: int = 1376,
    dtype: str = "float32",
) -> IRModule:
    """A Llama decoder layer: RMSNorm, rotary grouped-query causal attention, SwiGLU.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer.
    heads
        Number of query heads; must divide `channels` into an even number of channels a head.
    kv_heads
        Number of key and value heads; must divide `heads`.
    hidden
        Width of the feed-forward part.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, *weights)``, x and the result (batch, seq, channels).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_static(hidden=hidden)
    check_divides(heads=heads, channels=channels)
    check_divides(kv_heads=kv_heads, heads=heads)
    if channels // heads % 2:
        raise ValueError(
            f"rotary positions need an even number of channels a head, not {channels // heads}: "
            "change channels or heads"
        )
    return export(
        _LlamaBlock(channels, heads, kv_heads, hidden, dtype),
        x=tensor((batch, seq, channels), dtype),
    )
