"""Encoder and decoder layers of the GPT-2, BERT and ViT families.

They cover attention in four forms: causal with a mask from positions, with a mask that is an
input, as the one composite operator, and as exporters write that out. All sizes of batch and
sequence can be symbolic.
"""

import math

from tvm import relax
from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from ._export import Dim, check_divides, check_dtype, check_symbolic, export, tensor, workload
from .layers import LayerNorm, Linear, apply, attention, causal_mask, merge_heads, split_heads


class _GPT2Block(nn.Module):
    """A decoder layer: normalisation before attention and before the feed-forward part."""

    def __init__(self, channels: int, heads: int, dtype: str):
        self.heads = heads
        self.norm1 = LayerNorm(channels, dtype)
        self.qkv = Linear(channels, 3 * channels, dtype)
        self.proj = Linear(channels, channels, dtype)
        self.norm2 = LayerNorm(channels, dtype)
        self.fc1 = Linear(channels, 4 * channels, dtype)
        self.fc2 = Linear(4 * channels, channels, dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        qkv = op.split(self.qkv(self.norm1(x)), 3, axis=-1)
        query, key, value = (split_heads(part, self.heads) for part in qkv)
        attended = attention(query, key, value, mask=causal_mask(x.shape[1]))
        x = x + self.proj(merge_heads(attended))
        return x + self.fc2(op.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


@workload(batch=2, seq=16, channels=32, heads=4)
def gpt2_block(
    *,
    batch: Dim = 1,
    seq: Dim = 128,
    channels: int = 768,
    heads: int = 12,
    dtype: str = "float32",
) -> IRModule:
    """A GPT-2 decoder layer: layer norm, causal attention, GELU (tanh) feed-forward.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer; the feed-forward part is four times as wide.
    heads
        Number of attention heads; must divide `channels`.
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
    check_divides(heads=heads, channels=channels)
    return export(
        _GPT2Block(channels, heads, dtype),
        x=tensor((batch, seq, channels), dtype),
    )


class _BERTLayer(nn.Module):
    """An encoder layer: normalisation after attention and after the feed-forward part."""

    def __init__(self, channels: int, heads: int, dtype: str):
        self.heads = heads
        self.query = Linear(channels, channels, dtype)
        self.key = Linear(channels, channels, dtype)
        self.value = Linear(channels, channels, dtype)
        self.proj = Linear(channels, channels, dtype)
        self.norm1 = LayerNorm(channels, dtype, eps=1e-12)
        self.fc1 = Linear(channels, 4 * channels, dtype)
        self.fc2 = Linear(4 * channels, channels, dtype)
        self.norm2 = LayerNorm(channels, dtype, eps=1e-12)

    def forward(self, x: nn.Tensor, attention_mask: nn.Tensor) -> nn.Tensor:
        query, key, value = (
            split_heads(project(x), self.heads) for project in (self.query, self.key, self.value)
        )
        batch, seq = attention_mask.shape
        mask = op.reshape(attention_mask, (batch, 1, 1, seq))
        x = self.norm1(x + self.proj(merge_heads(attention(query, key, value, mask=mask))))
        return self.norm2(x + self.fc2(op.gelu(self.fc1(x))))


@workload(batch=2, seq=16, channels=32, heads=4)
def bert_layer(
    *,
    batch: Dim = 1,
    seq: Dim = 128,
    channels: int = 768,
    heads: int = 12,
    dtype: str = "float32",
) -> IRModule:
    """A BERT encoder layer: masked attention, GELU (erf) feed-forward, norms after the sums.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer; the feed-forward part is four times as wide.
    heads
        Number of attention heads; must divide `channels`.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, attention_mask, *weights)``, x and the result (batch, seq, channels),
        attention_mask (batch, seq) of bool, True where there is a token to look at.

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_divides(heads=heads, channels=channels)
    return export(
        _BERTLayer(channels, heads, dtype),
        x=tensor((batch, seq, channels), dtype),
        attention_mask=tensor((batch, seq), "bool"),
    )


class _ViTBlock(nn.Module):
    """A vision transformer layer on the composite operator `relax.nn.attention`."""

    def __init__(self, channels: int, heads: int, dtype: str):
        self.heads = heads
        self.norm1 = LayerNorm(channels, dtype, eps=1e-6)
        self.qkv = Linear(channels, 3 * channels, dtype)
        self.proj = Linear(channels, channels, dtype)
        self.norm2 = LayerNorm(channels, dtype, eps=1e-6)
        self.fc1 = Linear(channels, 4 * channels, dtype)
        self.fc2 = Linear(4 * channels, channels, dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, seq, channels = x.shape
        shape = (batch, seq, self.heads, channels // self.heads)
        qkv = op.split(self.qkv(self.norm1(x)), 3, axis=-1)
        query, key, value = (op.reshape(part, shape) for part in qkv)
        attended = op.scaled_dot_product_attention(query, key, value)
        x = x + self.proj(op.reshape(attended, (batch, seq, channels)))
        return x + self.fc2(op.gelu(self.fc1(self.norm2(x))))


@workload(batch=2, seq=17, channels=32, heads=2)
def vit_block(
    *,
    batch: Dim = 1,
    seq: Dim = 197,
    channels: int = 384,
    heads: int = 6,
    dtype: str = "float32",
) -> IRModule:
    """A ViT layer: layer norm, composite attention, GELU (erf) feed-forward.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension. 197 is 14
        by 14 patches and a class token.
    channels
        Width of the layer; the feed-forward part is four times as wide.
    heads
        Number of attention heads; must divide `channels`.
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
    check_divides(heads=heads, channels=channels)
    return export(
        _ViTBlock(channels, heads, dtype),
        x=tensor((batch, seq, channels), dtype),
    )


class _ViTBlockDecomposed(_ViTBlock):
    """The same layer with the operators that exporters make of its attention."""

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, seq, channels = x.shape
        depth = channels // self.heads
        qkv = op.reshape(self.qkv(self.norm1(x)), (batch, seq, 3, self.heads, depth))
        qkv = op.permute_dims(qkv, [2, 0, 3, 1, 4])
        query, key, value = (op.squeeze(part, 0) for part in op.split(qkv, 3, axis=0))
        root = depth**-0.25
        scores = op.matmul(query * root, op.permute_dims(key, [0, 1, 3, 2]) * root)
        attended = op.matmul(_guarded_softmax(scores), value)
        x = x + self.proj(merge_heads(attended))
        return x + self.fc2(op.gelu(self.fc1(self.norm2(x))))


def _guarded_softmax(scores: nn.Tensor) -> nn.Tensor:
    """Softmax over the last axis, and zero in rows that are minus infinity throughout."""
    lowest = nn.Tensor.from_scalar(-math.inf, scores.dtype)
    present = apply(relax.op.logical_not, op.equal(scores, lowest)).astype("int8")
    some = op.max(present, axis=-1, keepdims=True).astype("bool")
    nothing = op.zeros(scores.shape, scores.dtype)
    return op.where(apply(relax.op.logical_not, some), nothing, op.softmax(scores, axis=-1))


@workload(batch=2, seq=17, channels=32, heads=2)
def vit_block_decomposed(
    *,
    batch: Dim = 1,
    seq: Dim = 197,
    channels: int = 384,
    heads: int = 6,
    dtype: str = "float32",
) -> IRModule:
    """`vit_block` with its attention written out as exporters do.

    Queries and keys are scaled both, and the softmax is guarded against rows without a score.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension. 197 is 14
        by 14 patches and a class token.
    channels
        Width of the layer; the feed-forward part is four times as wide.
    heads
        Number of attention heads; must divide `channels`.
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
    check_divides(heads=heads, channels=channels)
    return export(
        _ViTBlockDecomposed(channels, heads, dtype),
        x=tensor((batch, seq, channels), dtype),
    )
