"""The workloads once more in NumPy, in double precision, as the standard for their results.

Written from the definitions of the networks, not from the code under `tvm_fusion.workloads`.
Every function of a network takes its inputs and ``w``, the weights by name.
"""

import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray
Weights = dict[str, Array]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def layer_norm(x: Array, w: Weights, name: str, eps: float = 1e-5) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


def rms_norm(x: Array, w: Weights, name: str, eps: float = 1e-6) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[f"{name}.weight"]


def group_norm(x: Array, w: Weights, name: str, groups: int, eps: float = 1e-5) -> Array:
    rows = x.reshape(x.shape[0], groups, -1)
    centred = rows - rows.mean(-1, keepdims=True)
    x = (centred / np.sqrt(rows.var(-1, keepdims=True) + eps)).reshape(x.shape)
    return x * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]


def batch_norm(x: Array, w: Weights, name: str, eps: float = 1e-5) -> Array:
    mean, var, weight, bias = (
        w[f"{name}.{part}"][:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / np.sqrt(var + eps) * weight + bias


def linear(x: Array, w: Weights, name: str) -> Array:
    return x @ w[f"{name}.weight"] + w.get(f"{name}.bias", 0.0)


def conv2d(x: Array, w: Weights, name: str) -> Array:
    """Convolve with an odd window at stride one and keep the size; depthwise if so shaped."""
    weight = w[f"{name}.weight"]
    window, (height, width) = weight.shape[2], x.shape[2:]
    pad = window // 2
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    depthwise = weight.shape[1] == 1
    y = np.zeros((x.shape[0], weight.shape[0], height, width))
    for i in range(window):
        for j in range(window):
            part = x[:, :, i : i + height, j : j + width]
            if depthwise:
                y += part * weight[:, 0, i, j][:, None, None]
            else:
                y += np.einsum("bchw,oc->bohw", part, weight[:, :, i, j])
    return y + (w[f"{name}.bias"][:, None, None] if f"{name}.bias" in w else 0.0)


def heads_first(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attention(query: Array, key: Array, value: Array, allowed: Array | None = None) -> Array:
    """Attend over (b, h, s, d) and return (b, s, h * d)."""
    scores = np.einsum("bhid,bhjd->bhij", query, key) / math.sqrt(query.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -1e9)
    y = np.einsum("bhij,bhjd->bihd", softmax(scores), value)
    return y.reshape(*y.shape[:2], -1)


def lower_triangle(size: int) -> Array:
    return np.tril(np.ones((size, size), dtype=bool))


def gpt2_block(w: Weights, x: Array, *, heads: int = 4) -> Array:
    qkv = np.split(linear(layer_norm(x, w, "norm1"), w, "qkv"), 3, -1)
    query, key, value = (heads_first(part, heads) for part in qkv)
    y = attention(query, key, value, lower_triangle(x.shape[1]))
    x = x + linear(y, w, "proj")
    y = gelu_tanh(linear(layer_norm(x, w, "norm2"), w, "fc1"))
    return x + linear(y, w, "fc2")


def bert_layer(w: Weights, x: Array, attention_mask: Array, *, heads: int = 4) -> Array:
    query, key, value = (
        heads_first(linear(x, w, name), heads) for name in ("query", "key", "value")
    )
    y = attention(query, key, value, attention_mask[:, None, None, :])
    x = layer_norm(x + linear(y, w, "proj"), w, "norm1", 1e-12)
    return layer_norm(x + linear(gelu(linear(x, w, "fc1")), w, "fc2"), w, "norm2", 1e-12)


def vit_block(w: Weights, x: Array, *, heads: int = 2) -> Array:
    qkv = np.split(linear(layer_norm(x, w, "norm1", 1e-6), w, "qkv"), 3, -1)
    x = x + linear(attention(*(heads_first(part, heads) for part in qkv)), w, "proj")
    return x + linear(gelu(linear(layer_norm(x, w, "norm2", 1e-6), w, "fc1")), w, "fc2")


def vit_block_decomposed(w: Weights, x: Array) -> Array:
    return vit_block(w, x)


def rope(x: Array) -> Array:
    """Rotate channel i against channel i + d / 2, as complex numbers."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[2])[:, None] * 1e4 ** (-np.arange(half) / half)
    rotated = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)
    return np.concatenate([rotated.real, rotated.imag], -1)


def llama_block(w: Weights, x: Array, *, heads: int = 4, kv_heads: int = 2) -> Array:
    y = rms_norm(x, w, "norm1")
    query = rope(heads_first(linear(y, w, "query"), heads))
    key = rope(heads_first(linear(y, w, "key"), kv_heads))
    value = heads_first(linear(y, w, "value"), kv_heads)
    shared = np.arange(heads) // (heads // kv_heads)
    y = attention(query, key[:, shared], value[:, shared], lower_triangle(x.shape[1]))
    x = x + linear(y, w, "proj")
    y = rms_norm(x, w, "norm2")
    return x + linear(silu(linear(y, w, "gate")) * linear(y, w, "up"), w, "down")


def moe_layer(w: Weights, x: Array, *, top: int = 2) -> Array:
    y = np.zeros_like(x)
    probability = softmax(linear(x, w, "router"))
    for token in np.ndindex(x.shape[:2]):
        best = np.argsort(-probability[token], kind="stable")[:top]
        for expert in best:
            hidden = silu(x[token] @ w["gate"][expert]) * (x[token] @ w["up"][expert])
            share = probability[token][expert] / probability[token][best].sum()
            y[token] += share * (hidden @ w["down"][expert])
    return y


def moe_layer_eq(w: Weights, x: Array) -> Array:
    return moe_layer(w, x)


def mamba_block(w: Weights, x: Array, *, state: int = 4, rank: int = 4) -> Array:
    u, gate = np.split(linear(rms_norm(x, w, "norm"), w, "in_proj"), 2, -1)
    kernel = w["conv_weight"][:, 0]
    padded = np.pad(u, [(0, 0), (kernel.shape[1] - 1, 0), (0, 0)])
    taps = [padded[:, k : k + u.shape[1]] * kernel[:, k] for k in range(kernel.shape[1])]
    u = silu(sum(taps) + w["conv_bias"])
    dt, b, c = np.split(linear(u, w, "x_proj"), [rank, rank + state], -1)
    dt = np.log1p(np.exp(linear(dt, w, "dt_proj")))
    hidden, outputs = np.zeros((x.shape[0], u.shape[-1], state)), []
    for t in range(x.shape[1]):
        decay = np.exp(dt[:, t, :, None] * -np.exp(w["a_log"]))
        hidden = decay * hidden + (dt[:, t] * u[:, t])[..., None] * b[:, t, None, :]
        outputs.append(np.einsum("bdn,bn->bd", hidden, c[:, t]))
    y = np.stack(outputs, 1) + u * w["skip"]
    return x + linear(y * silu(gate), w, "out_proj")


def resnet_basic(w: Weights, x: Array) -> Array:
    y = np.maximum(batch_norm(conv2d(x, w, "conv1"), w, "norm1"), 0)
    return np.maximum(batch_norm(conv2d(y, w, "conv2"), w, "norm2") + x, 0)


def convnext_block(w: Weights, x: Array) -> Array:
    y = layer_norm(conv2d(x, w, "conv").transpose(0, 2, 3, 1), w, "norm", 1e-6)
    y = linear(gelu(linear(y, w, "fc1")), w, "fc2") * w["gamma"]
    return x + y.transpose(0, 3, 1, 2)


def unet_resblock(w: Weights, x: Array, time: Array, *, groups: int = 4) -> Array:
    y = conv2d(silu(group_norm(x, w, "norm1", groups)), w, "conv1")
    y = y + linear(silu(time), w, "time")[:, :, None, None]
    return x + conv2d(silu(group_norm(y, w, "norm2", groups)), w, "conv2")


def ln_gelu_res(w: Weights, x: Array, residual: Array) -> Array:
    return layer_norm(gelu(x) + residual, w, "norm")


def softmax_chain(w: Weights, x: Array, mask: Array) -> Array:
    return softmax(x * 0.125 + mask) * 0.9


def attention_pool(w: Weights, x: Array, *, heads: int = 4) -> Array:
    weight = softmax(linear(x, w, "score").swapaxes(1, 2))
    value = linear(x, w, "value").reshape(*x.shape[:2], heads, -1)
    return np.einsum("bhs,bshd->bhd", weight, value).reshape(x.shape[0], -1)


def squeeze_excite(w: Weights, x: Array, residual: Array) -> Array:
    y = linear(np.maximum(linear(x.mean((2, 3)), w, "fc1"), 0), w, "fc2")
    return np.maximum(x / (1 + np.exp(-y))[:, :, None, None] + residual, 0)


REFERENCES: dict[str, Callable[..., Array]] = {
    function.__name__: function
    for function in (
        gpt2_block,
        bert_layer,
        vit_block,
        vit_block_decomposed,
        llama_block,
        moe_layer,
        moe_layer_eq,
        mamba_block,
        resnet_basic,
        convnext_block,
        unet_resblock,
        ln_gelu_res,
        softmax_chain,
        attention_pool,
        squeeze_excite,
    )
}
"""The networks at the sizes of `tvm_fusion.workloads.small`, by name."""
