"""A Mamba block with its selective scan unrolled: a long chain of small operators.

Unrolled recurrences are where a fusion pass gains most launches, and where one whose time grows
with the square of the graph shows it.
"""

from tvm import relax
from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from ._export import Dim, check_dtype, check_static, check_symbolic, export, tensor, workload
from .layers import Linear, RMSNorm, apply


def _step(x: nn.Tensor, t: int) -> nn.Tensor:
    """Position t of axis 1, which stays as an axis of size one."""
    return apply(relax.op.strided_slice, x, axes=[1], begin=[t], end=[t + 1])


class _MambaBlock(nn.Module):
    """The block; d stands for its inner width, n for the size of its state."""

    def __init__(self, channels: int, state: int, rank: int, kernel: int, dtype: str):
        inner = 2 * channels
        self.state, self.rank = state, rank
        self.norm = RMSNorm(channels, dtype)
        self.in_proj = Linear(channels, 2 * inner, dtype, bias=False)
        self.conv_weight = nn.Parameter((inner, 1, kernel), dtype)
        self.conv_bias = nn.Parameter((inner,), dtype)
        self.x_proj = Linear(inner, rank + 2 * state, dtype, bias=False)
        self.dt_proj = Linear(rank, inner, dtype)
        self.a_log = nn.Parameter((inner, state), dtype)
        self.skip = nn.Parameter((inner,), dtype)
        self.out_proj = Linear(inner, channels, dtype, bias=False)

    def causal_conv(self, x: nn.Tensor) -> nn.Tensor:
        """A depthwise convolution along s, (b, s, d), that looks at no later position."""
        inner, _, kernel = self.conv_weight.shape
        y = apply(
            relax.op.nn.conv1d,
            op.permute_dims(x, [0, 2, 1]),
            self.conv_weight,
            padding=(kernel - 1, 0),
            groups=inner,
        )
        y = y + op.reshape(self.conv_bias, (1, inner, 1))
        return op.permute_dims(y, [0, 2, 1])

    def scan(self, x: nn.Tensor) -> nn.Tensor:
        """The selective scan, (b, s, d) to (b, s, d), one group of operators a position.

        ``state = exp(dt * a) * state + dt * b * x`` and ``y = sum(state * c) + skip * x``.
        """
        bounds = [self.rank, self.rank + self.state]
        dt, b, c = op.split(self.x_proj(x), bounds, axis=-1)
        dt = op.unsqueeze(op.softplus(self.dt_proj(dt)), 3)
        decay = op.exp(dt * op.negative(op.exp(self.a_log)))
        update = dt * op.unsqueeze(b, 2) * op.unsqueeze(x, 3)
        c = op.unsqueeze(c, 2)
        state, outputs = _step(update, 0), []
        for t in range(x.shape[1]):
            if t:
                state = _step(decay, t) * state + _step(update, t)
            outputs.append(op.sum(state * _step(c, t), axis=-1))
        return op.concat(outputs, dim=1) + x * self.skip

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        inner, gate = op.split(self.in_proj(self.norm(x)), 2, axis=-1)
        inner = op.silu(self.causal_conv(inner))
        return x + self.out_proj(self.scan(inner) * op.silu(gate))


@workload(batch=2, seq=4, channels=16, state=4, rank=4)
def mamba_block(
    *,
    batch: Dim = 1,
    seq: int = 16,
    channels: int = 128,
    state: int = 16,
    rank: int = 8,
    kernel: int = 4,
    dtype: str = "float32",
) -> IRModule:
    """A Mamba block: RMSNorm, causal depthwise convolution, selective scan, gate.

    Parameters
    ----------
    batch
        Number of sequences; an integer, or a string that names a symbolic dimension.
    seq
        Length of the sequences; an integer only, as the scan is unrolled over it.
    channels
        Width of the layer; the inner width is twice that.
    state
        Size of the state of each inner channel.
    rank
        Rank of the projection of the step size.
    kernel
        Number of positions that the convolution sees.
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
    check_symbolic(batch=batch)
    check_static(seq=seq, channels=channels, state=state, rank=rank, kernel=kernel)
    return export(
        _MambaBlock(channels, state, rank, kernel, dtype),
        x=tensor((batch, seq, channels), dtype),
    )
