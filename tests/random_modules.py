"""Random Relax modules for fuzzing: small shapes, many ways to depend on each other.

Every op keeps values of magnitude about one, so that differences are differences and not noise.
"""

from __future__ import annotations

import random
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op

SHAPES = ((8, 32), (4, 2, 32), (32,), (8, 1), (32, 16), (1, 32))


def random_module(seed: int, dtype: str = "float32", most_ops: int = 12) -> tvm.IRModule:
    """A function `main` of up to `most_ops` random ops over fixed shapes, not legalized."""
    rng = random.Random(seed)
    params = [relax.Var(f"p{i}", relax.TensorType(s, dtype)) for i, s in enumerate(SHAPES)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            values: list[Any] = list(params)
            for _ in range(rng.randint(3, most_ops)):
                recent = values[-3:] if rng.random() < 0.7 else values
                values += _emit(rng, builder, rng.choice(recent), values, dtype)
            made = values[len(params) :]
            kept = [made[-1], *(value for value in made if rng.random() < 0.15)]
            results = [builder.emit_output(value) for value in dict.fromkeys(kept)]
        builder.emit_func_output(relax.Tuple(results) if len(results) > 1 else results[0])
    return builder.get()


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in value.ty.shape)


def _emit(rng: random.Random, builder: Any, x: Any, values: list[Any], dtype: str) -> list[Any]:
    shape = _shape(x)
    makers = [_unary, _binary, _select, _reduce, _reshape, _transpose, _cut, _norm, _product, _cast]
    for maker in rng.sample(makers, len(makers)):
        made = maker(rng, x, shape, values, dtype)
        if made is not None:
            result = builder.emit(made)
            if isinstance(result.ty, relax.TupleType):
                return [builder.emit(relax.TupleGetItem(result, i)) for i in range(2)]
            return [result]
    raise AssertionError("some op always applies")


def _unary(rng: random.Random, x: Any, *_: Any) -> Any:
    return rng.choice([op.tanh, op.sigmoid, op.nn.relu, op.nn.gelu, op.negative, op.abs])(x)


def _binary(rng: random.Random, x: Any, shape: Any, values: list[Any], _dtype: str) -> Any:
    fitting = [v for v in values if _broadcasts(_shape(v), shape)]
    return rng.choice([op.add, op.subtract, op.multiply, op.maximum])(x, rng.choice(fitting))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    pairs = zip(reversed(a), reversed(b), strict=False)
    return len(a) <= len(b) and all(m in (1, n) for m, n in pairs)


def _select(rng: random.Random, x: Any, shape: Any, values: list[Any], dtype: str) -> Any:
    other = rng.choice([v for v in values if _broadcasts(_shape(v), shape)])
    if rng.random() < 0.5:
        return op.where(op.greater(x, relax.const(0.1, dtype)), x, other)
    return op.where(op.less(other, x), x, relax.const(-0.5, dtype))


def _reduce(rng: random.Random, x: Any, shape: Any, *_: Any) -> Any:
    if not shape:
        return None
    which = rng.choice([op.mean, op.max, op.min, op.mean, op.variance])
    axis = None if rng.random() < 0.15 else rng.randrange(len(shape))
    return which(x, axis, keepdims=rng.random() < 0.5)


def _reshape(rng: random.Random, x: Any, shape: Any, *_: Any) -> Any:
    size = 1
    for extent in shape:
        size *= extent
    options = [(size,), (size // 2, 2), (2, size // 2), (size // 8, 2, 4), (1, *shape)]
    fitting = [s for s in options if tvm.runtime.ShapeTuple(s) and _size(s) == size and s != shape]
    return op.reshape(x, rng.choice(fitting)) if fitting and len(shape) < 4 else None


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


def _transpose(rng: random.Random, x: Any, shape: Any, *_: Any) -> Any:
    if len(shape) < 2:
        return None
    return op.permute_dims(x, rng.sample(range(len(shape)), len(shape)))


def _cut(rng: random.Random, x: Any, shape: Any, values: list[Any], _dtype: str) -> Any:
    axes = [i for i, extent in enumerate(shape) if extent % 2 == 0]
    if not axes:
        return None
    axis = rng.choice(axes)
    way = rng.randrange(4)
    if way == 0:
        return op.split(x, 2, axis)
    if way == 1:
        same = [v for v in values if _shape(v) == shape]
        return op.concat([x, rng.choice(same)], axis)
    begin = rng.choice([0, shape[axis] // 2])
    if way == 2:
        return op.strided_slice(x, [axis], [begin], [begin + shape[axis] // 2])
    return op.take(x, relax.const(begin, "int64"), axis)


def _norm(rng: random.Random, x: Any, shape: Any, values: list[Any], _dtype: str) -> Any:
    if not shape or shape[-1] < 2:
        return None
    scale = [v for v in values if _shape(v) == shape[-1:]]
    if scale and rng.random() < 0.5:
        return op.nn.layer_norm(x, scale[0], scale[0], axes=-1)
    return op.nn.softmax(x, axis=-1)


def _product(rng: random.Random, x: Any, shape: Any, values: list[Any], dtype: str) -> Any:
    if len(shape) < 2:
        return None
    fitting = [v for v in values if len(_shape(v)) == 2 and _shape(v)[0] == shape[-1]]
    if not fitting:
        return None
    return op.multiply(op.matmul(x, rng.choice(fitting)), relax.const(0.2, dtype))


def _cast(rng: random.Random, x: Any, _shape: Any, _values: Any, dtype: str) -> Any:
    if dtype != "float32":
        return None
    return op.astype(op.tanh(op.astype(x, "float64")), dtype)
