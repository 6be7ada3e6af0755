"""Two chains without a product, the smallest cases on which a fusion pass can show its worth.

Each could be one kernel that reads its inputs once.
"""

from tvm.ir import IRModule
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op

from ._export import Dim, check_dtype, check_static, check_symbolic, export, tensor, workload
from .layers import LayerNorm


class _LNGeluRes(nn.Module):
    def __init__(self, channels: int, dtype: str):
        self.norm = LayerNorm(channels, dtype)

    def forward(self, x: nn.Tensor, residual: nn.Tensor) -> nn.Tensor:
        return self.norm(op.gelu(x) + residual)


@workload(batch=2, seq=8, channels=64)
def ln_gelu_res(
    *, batch: Dim = 8, seq: Dim = 128, channels: int = 768, dtype: str = "float32"
) -> IRModule:
    """``LayerNorm(gelu(x) + residual)``.

    Parameters
    ----------
    batch, seq
        Sizes of the inputs; an integer, or a string that names a symbolic dimension.
    channels
        Length of the axis that is normalised.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, residual, *weights)``, x, residual and the result (batch, seq, channels).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_static(channels=channels)
    shape = (batch, seq, channels)
    return export(
        _LNGeluRes(channels, dtype),
        x=tensor(shape, dtype),
        residual=tensor(shape, dtype),
    )


class _SoftmaxChain(nn.Module):
    def forward(self, x: nn.Tensor, mask: nn.Tensor) -> nn.Tensor:
        return op.softmax(x * 0.125 + mask, axis=-1) * 0.9


@workload(batch=2, heads=2, seq=16)
def softmax_chain(
    *, batch: Dim = 8, heads: int = 12, seq: Dim = 128, dtype: str = "float32"
) -> IRModule:
    """``softmax(x * 0.125 + mask) * 0.9``, the middle of attention.

    Parameters
    ----------
    batch, seq
        Sizes of the inputs; an integer, or a string that names a symbolic dimension.
    heads
        Number of attention heads.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, mask)``, x and the result (batch, heads, seq, seq), mask (batch, 1, 1, seq).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch, seq=seq)
    check_static(heads=heads)
    return export(
        _SoftmaxChain(),
        x=tensor((batch, heads, seq, seq), dtype),
        mask=tensor((batch, 1, 1, seq), dtype),
    )
