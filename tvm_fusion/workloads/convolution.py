"""Blocks of convolutional networks: ResNet, ConvNeXt and the U-Net of diffusion models.

Their fusions lie around convolutions: normalisation, activation and residual sum. The batch can
be symbolic; the size of the image is fixed.
"""

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
from .layers import BatchNorm, GroupNorm, LayerNorm, Linear


class _ResNetBasic(nn.Module):
    """The basic block of ResNet-18 and ResNet-34."""

    def __init__(self, channels: int, dtype: str):
        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1, bias=False, dtype=dtype)
        self.norm1 = BatchNorm(channels, dtype)
        self.conv2 = nn.Conv2D(channels, channels, 3, padding=1, bias=False, dtype=dtype)
        self.norm2 = BatchNorm(channels, dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = op.relu(self.norm1(self.conv1(x)))
        return op.relu(self.norm2(self.conv2(y)) + x)


@workload(batch=2, channels=8, size=10)
def resnet_basic(
    *, batch: Dim = 1, channels: int = 64, size: int = 56, dtype: str = "float32"
) -> IRModule:
    """A basic ResNet block: twice a 3x3 convolution with batch norm, ReLU, residual sum.

    Parameters
    ----------
    batch
        Number of images; an integer, or a string that names a symbolic dimension.
    channels
        Number of channels.
    size
        Height and width of the image.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, *weights)``, x and the result (batch, channels, size, size).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch)
    check_static(channels=channels, size=size)
    return export(
        _ResNetBasic(channels, dtype),
        x=tensor((batch, channels, size, size), dtype),
    )


class _ConvNeXtBlock(nn.Module):
    """A ConvNeXt block; all but the convolution works on channels in the last axis."""

    def __init__(self, channels: int, dtype: str):
        self.conv = nn.Conv2D(channels, channels, 7, padding=3, groups=channels, dtype=dtype)
        self.norm = LayerNorm(channels, dtype, eps=1e-6)
        self.fc1 = Linear(channels, 4 * channels, dtype)
        self.fc2 = Linear(4 * channels, channels, dtype)
        self.gamma = nn.Parameter((channels,), dtype)

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        y = op.permute_dims(self.conv(x), [0, 2, 3, 1])
        y = self.fc2(op.gelu(self.fc1(self.norm(y)))) * self.gamma
        return x + op.permute_dims(y, [0, 3, 1, 2])


@workload(batch=2, channels=16, size=8)
def convnext_block(
    *, batch: Dim = 1, channels: int = 96, size: int = 56, dtype: str = "float32"
) -> IRModule:
    """A ConvNeXt block: depthwise 7x7 convolution, layer norm, GELU, layer scale, residual sum.

    Parameters
    ----------
    batch
        Number of images; an integer, or a string that names a symbolic dimension.
    channels
        Number of channels.
    size
        Height and width of the image.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, *weights)``, x and the result (batch, channels, size, size).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch)
    check_static(channels=channels, size=size)
    return export(
        _ConvNeXtBlock(channels, dtype),
        x=tensor((batch, channels, size, size), dtype),
    )


class _UNetResBlock(nn.Module):
    """A residual block of a diffusion U-Net."""

    def __init__(self, channels: int, groups: int, embedding: int, dtype: str):
        self.norm1 = GroupNorm(groups, channels, dtype)
        self.conv1 = nn.Conv2D(channels, channels, 3, padding=1, dtype=dtype)
        self.time = Linear(embedding, channels, dtype)
        self.norm2 = GroupNorm(groups, channels, dtype)
        self.conv2 = nn.Conv2D(channels, channels, 3, padding=1, dtype=dtype)

    def forward(self, x: nn.Tensor, time: nn.Tensor) -> nn.Tensor:
        batch, channels = x.shape[:2]
        shift = op.reshape(self.time(op.silu(time)), (batch, channels, 1, 1))
        y = self.conv1(op.silu(self.norm1(x))) + shift
        return x + self.conv2(op.silu(self.norm2(y)))


@workload(batch=2, channels=16, groups=4, size=8, embedding=32)
def unet_resblock(
    *,
    batch: Dim = 1,
    channels: int = 128,
    groups: int = 32,
    size: int = 32,
    embedding: int = 256,
    dtype: str = "float32",
) -> IRModule:
    """A U-Net residual block: group norm, SiLU, 3x3 convolution, time embedding in between.

    Parameters
    ----------
    batch
        Number of images; an integer, or a string that names a symbolic dimension.
    channels
        Number of channels.
    groups
        Number of groups to normalise; must divide `channels`.
    size
        Height and width of the image.
    embedding
        Width of the time embedding.
    dtype
        "float32", "float16" or "bfloat16".

    Returns
    -------
    IRModule
        ``main(x, time, *weights)``, x and the result (batch, channels, size, size), time
        (batch, embedding).

    Raises
    ------
    ValueError
        If an argument is none of the above.
    """
    check_dtype(dtype)
    check_symbolic(batch=batch)
    check_static(size=size, embedding=embedding)
    check_divides(groups=groups, channels=channels)
    return export(
        _UNetResBlock(channels, groups, embedding, dtype),
        x=tensor((batch, channels, size, size), dtype),
        time=tensor((batch, embedding), dtype),
    )
