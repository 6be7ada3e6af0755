"""A mixture of experts in the dense formulation: all experts run and a mask weighs them.

It is the form that exporters produce, since its shapes do not depend on the data, and it mixes a
softmax, a top-k, comparisons and batched products of three-dimensional weights.
"""

from tvm import relax, tirx
from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.relax.frontend.nn.core import wrap_nested

from ._export import Dim, check_dtype, check_static, check_symbolic, export, tensor, workload
from .layers import Linear, apply


class _MoELayer(nn.Module):
    """A router and its experts, each a gated feed-forward network (SwiGLU).

    ``compare`` makes the one-hot code of the chosen experts by a comparison with all of them.
    """

    def __init__(
        self, channels: int, hidden: int, experts: int, top: int, compare: bool, dtype: str
    ):
        self.experts, self.top, self.compare = experts, top, compare
        self.router = Linear(channels, experts, dtype, bias=False)
        self.gate = nn.Parameter((experts, channels, hidden), dtype)
        self.up = nn.Parameter((experts, channels, hidden), dtype)
        self.down = nn.Parameter((experts, hidden, channels), dtype)

    def expert_weights(self, x: nn.Tensor) -> nn.Tensor:
        """How much each expert counts for each token, (tokens, experts), in float32.

        The probabilities of the `top` best experts are scaled to a sum of one, all others are
        zero. Models route in float32, since near ties decide which expert runs.
        """
        probability = op.softmax(self.router(x).astype("float32"), axis=-1)
        value, index = op.topk(probability, self.top, axis=-1, dtype="int32")
        value = value / op.sum(value, axis=-1, keepdims=True)
        return op.sum(self.one_hot(index) * op.unsqueeze(value, 2), axis=1)

    def one_hot(self, index: nn.Tensor) -> nn.Tensor:
        """The code of the chosen experts, (tokens, top) to (tokens, top, experts)."""
        if self.compare:
            expert = op.arange(0, self.experts, dtype="int32")
            return op.equal(op.unsqueeze(index, 2), expert).astype("float32")
        on, off = tirx.FloatImm("float32", 1.0), tirx.FloatImm("float32", 0.0)
        code = relax.op.one_hot(index._expr, on, off, depth=self.experts, axis=-1)
        return wrap_nested(code, "one_hot")

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, seq, channels = x.shape
        tokens = op.reshape(x, (batch * seq, channels))
        weights = op.permute_dims(self.expert_weights(tokens).astype(x.dtype), [1, 0])
        tokens = apply(
            relax.op.broadcast_to,
            op.unsqueeze(tokens, 0),
            shape=(self.experts, batch * seq, channels),
        )
        hidden = op.silu(op.matmul(tokens, self.gate)) * op.matmul(tokens, self.up)
        outputs = op.matmul(hidden, self.down) * op.unsqueeze(weights, 2)
        return op.reshape(op.sum(outputs, axis=0), (batch, seq, channels))


def _export_layer(
    batch: Dim,
    seq: Dim,
    channels: int,
    hidden: int,
    experts: int,
    top: int,
    compare: bool,
    dtype: str,
) -> IRModule:
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_static(channels=channels, hidden=hidden, experts=experts, top=top)
    if top > experts:
        raise ValueError(f"top ({top}) is more than experts ({experts}): lower top")
    return export(
        _MoELayer(channels, hidden, experts, top, compare, dtype),
        x=tensor((batch, seq, channels), dtype),
    )


@workload(batch=2, seq=8, channels=16, hidden=32)
def moe_layer(
    *,
    batch: Dim = 1,
    seq: Dim = 64,
    channels: int = 256,
    hidden: int = 512,
    experts: int = 4,
    top: int = 2,
    dtype: str = "float32",
) -> IRModule:
    """A mixture-of-experts layer: softmax router, top-k, all experts run, masked sum.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer.
    hidden
        Width of an expert's feed-forward part.
    experts
        Number of experts.
    top
        Number of experts that count for a token; at most `experts`.
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
    return _export_layer(batch, seq, channels, hidden, experts, top, False, dtype)


@workload(batch=2, seq=8, channels=16, hidden=32)
def moe_layer_eq(
    *,
    batch: Dim = 1,
    seq: Dim = 64,
    channels: int = 256,
    hidden: int = 512,
    experts: int = 4,
    top: int = 2,
    dtype: str = "float32",
) -> IRModule:
    """`moe_layer` with the chosen experts found by comparison instead of ``one_hot``.

    Parameters
    ----------
    batch, seq
        Sizes of the input; an integer, or a string that names a symbolic dimension.
    channels
        Width of the layer.
    hidden
        Width of an expert's feed-forward part.
    experts
        Number of experts.
    top
        Number of experts that count for a token; at most `experts`.
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
    return _export_layer(batch, seq, channels, hidden, experts, top, True, dtype)
