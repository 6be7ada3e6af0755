"""Do the workloads compute what they say, in the stock compiler, at any size they accept?"""

import functools
from typing import Any

import numpy as np
import pytest
import tvm
from numpy_reference import REFERENCES
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fusion.workloads import WORKLOADS, random_inputs, small

# Largest error allowed, in units of the result's standard deviation: about a hundred (float32)
# or twenty to forty (the others, which TVM also sums in the same type) times the rounding error
# of one operation, as results are sums of sums of at most 144 terms. Errors seen are 1e-6, 8e-3
# and 7e-2 at most.
TOLERANCE = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1.5e-1}

SYMBOLIC_SEQ = [
    "gpt2_block",
    "bert_layer",
    "vit_block",
    "vit_block_decomposed",
    "llama_block",
    "moe_layer",
    "moe_layer_eq",
    "ln_gelu_res",
    "softmax_chain",
    "attention_pool",
]
STATIC_SEQ = [name for name in WORKLOADS if name not in SYMBOLIC_SEQ]


@functools.cache
def compiled(name: str, **arguments: Any) -> relax.VirtualMachine:
    """Compile a small workload for the CPU with TVM's default pipeline."""
    # LLVM's optimiser would take most of the time of these tests.
    target = tvm.target.Target({"kind": "llvm", "opt-level": 1})
    executable = tvm.compile(small(name, **arguments), target)
    return relax.VirtualMachine(executable, tvm.cpu())


def run(vm: relax.VirtualMachine, arrays: list[np.ndarray]) -> np.ndarray:
    """Run `main` and return its result in double precision."""
    result = vm["main"](*(tvm.runtime.tensor(array) for array in arrays))
    return result.numpy().astype("float64")


def reference(name: str, mod: IRModule, arrays: list[np.ndarray]) -> np.ndarray:
    """Compute the result of a small workload with NumPy."""
    num_input = int(mod["main"].attrs["num_input"])
    wide = [array if array.dtype == bool else array.astype("float64") for array in arrays]
    weights = {
        param.name: array
        for param, array in zip(mod["main"].params[num_input:], wide[num_input:], strict=True)
    }
    return REFERENCES[name](weights, *wide[:num_input])


def assert_close(actual: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Compare with a tolerance relative to the spread of the expected result."""
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    spread = expected.std()
    assert spread > 1e-2, "a result that is nearly constant shows nothing"
    assert np.abs(actual - expected).max() < tolerance * spread


def test_all_names_are_there():
    assert sorted(WORKLOADS) == sorted(REFERENCES)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_agrees_with_numpy(name, dtype):
    mod = small(name, dtype=dtype)
    arrays = random_inputs(mod, seed=1)
    actual = run(compiled(name, dtype=dtype), arrays)
    assert_close(actual, reference(name, mod, arrays), TOLERANCE[dtype])


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_calling_convention(name, dtype):
    mod = small(name, dtype=dtype)
    assert relax.analysis.check_well_formed(mod)
    assert [var.name_hint for var in mod.get_global_vars()] == ["main"]
    main = mod["main"]
    num_input = int(main.attrs["num_input"])
    assert [p.name for p in main.params[:1]] == ["x"]
    assert all(str(p.ty.dtype) in (dtype, "bool") for p in main.params)
    assert str(main.ret_ty.dtype) == dtype
    # The weights follow the inputs, and a weight's name tells its layer.
    assert not any("." in p.name for p in main.params[:num_input])
    assert relax.transform.LegalizeOps()(mod) is not None


@pytest.mark.parametrize("name", WORKLOADS)
def test_full_size_builds(name):
    mod = WORKLOADS[name]()
    assert relax.analysis.check_well_formed(mod)
    assert mod["main"].ret_ty.shape.values[0] in (1, 8)


@pytest.mark.parametrize("name", SYMBOLIC_SEQ)
def test_symbolic_sizes_agree_with_static(name):
    symbolic = compiled(name, batch="b", seq="s")
    declared = small(name, batch="b", seq="s")
    for sizes in ({}, {"batch": 3, "seq": 7}):
        arrays = random_inputs(small(name, **sizes), seed=2)
        batch, seq = arrays[0].shape[0], arrays[0].shape[-1 if name == "softmax_chain" else 1]
        again = random_inputs(declared, seed=2, assume={"b": batch, "s": seq})
        assert all((a == b).all() for a, b in zip(arrays, again, strict=True))
        static = compiled(name, dtype="float32", **sizes)
        assert_close(run(symbolic, arrays), run(static, arrays), TOLERANCE["float32"])


@pytest.mark.parametrize("name", STATIC_SEQ)
def test_symbolic_batch_agrees_with_static(name):
    symbolic = compiled(name, batch="b")
    arrays = random_inputs(small(name), seed=2)
    static = compiled(name, dtype="float32")
    assert_close(run(symbolic, arrays), run(static, arrays), TOLERANCE["float32"])


@pytest.mark.parametrize("name", SYMBOLIC_SEQ)
def test_static_and_symbolic_have_the_same_operators(name):
    def operators(mod: IRModule) -> list[str]:
        bindings = mod["main"].body.blocks[0].bindings
        return [b.value.op.name for b in bindings if isinstance(b.value, relax.Call)]

    assert operators(small(name)) == operators(small(name, batch="b", seq="s"))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("gpt2_block", {"dtype": "int8"}, "dtype 'int8' is not supported: use one of float32"),
        ("gpt2_block", {"heads": 5}, r"channels \(32\) is not divisible by heads \(5\)"),
        ("gpt2_block", {"batch": 0}, "batch is 0: give a positive integer"),
        ("gpt2_block", {"seq": "a b"}, "seq is 'a b': .* must be an identifier"),
        ("gpt2_block", {"channels": "c"}, "channels is 'c': it cannot be symbolic"),
        ("llama_block", {"kv_heads": 3}, r"heads \(4\) is not divisible by kv_heads \(3\)"),
        ("llama_block", {"heads": 32, "kv_heads": 1}, "even number of channels a head, not 1"),
        ("bert_layer", {"heads": 0}, "heads is 0"),
        ("vit_block", {"channels": 33}, r"channels \(33\) is not divisible"),
        ("moe_layer", {"top": 5}, r"top \(5\) is more than experts \(4\)"),
        ("mamba_block", {"seq": "s"}, "seq is 's': it cannot be symbolic"),
        ("resnet_basic", {"size": "n"}, "size is 'n': it cannot be symbolic"),
        ("unet_resblock", {"groups": 5}, r"channels \(16\) is not divisible by groups \(5\)"),
        ("attention_pool", {"heads": 5}, r"channels \(32\) is not divisible by heads \(5\)"),
        ("squeeze_excite", {"squeezed": 0}, "squeezed is 0: give a positive integer"),
        ("no_such_net", {}, "no workload 'no_such_net': choose one of attention_pool"),
    ],
)
def test_bad_arguments_are_named(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        small(name, **arguments)


@I.ir_module
class Mixed:
    """Parameters of many types, one with an expression for a size, and no weights."""

    @R.function
    def main(
        x: R.Tensor(("n", 3), "bfloat16"),
        y: R.Tensor(("2 * n + 1",), "float16"),
        index: R.Tensor((50,), "int32"),
        flag: R.Tensor((50,), "bool"),
        scalar: R.Tensor((), "float32"),
    ) -> R.Tensor((50,), "int32"):
        return index


def test_random_inputs_of_any_module():
    x, y, index, flag, scalar = random_inputs(Mixed, assume={"n": 4, "unused": 1}, scale=100.0)
    assert (x.shape, str(x.dtype)) == ((4, 3), "bfloat16")
    assert (y.shape, y.dtype) == ((9,), np.float16)
    assert np.abs(y).max() > 10
    assert index.dtype == np.int32
    assert set(index.tolist()) <= set(range(8))
    assert len(set(index.tolist())) > 1
    assert set(flag.tolist()) == {False, True}
    assert (scalar.shape, scalar.dtype) == ((), np.float32)


def test_random_inputs_depend_on_the_seed_alone():
    mod = small("ln_gelu_res")
    first, again, other = (random_inputs(mod, seed=seed)[0] for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


def test_random_weights_have_ordinary_magnitude():
    mod = small("resnet_basic")
    arrays = dict(zip((p.name for p in mod["main"].params), random_inputs(mod), strict=True))
    assert arrays["norm1.running_var"].min() > 0
    assert abs(arrays["norm1.weight"].mean() - 1) < 0.2
    assert abs(arrays["norm1.bias"].mean()) < 0.2
    assert abs(arrays["conv1.weight"].std() * (8 * 9) ** 0.5 - 1) < 0.2


def test_random_inputs_name_the_missing_dimension():
    with pytest.raises(ValueError, match="symbolic dimension 's' of parameter x has no value"):
        random_inputs(small("gpt2_block", batch="b", seq="s"), assume={"b": 2})


def test_random_inputs_want_tensors():
    @I.ir_module
    class Tuples:
        @R.function
        def main(pair: R.Tuple(R.Tensor((2,), "float32"))) -> R.Tensor((2,), "float32"):
            return pair[0]

    @I.ir_module
    class UnknownShape:
        @R.function
        def main(x: R.Tensor("float32", ndim=2)) -> R.Tensor("float32", ndim=2):
            return x

    for module, name in ((Tuples, "pair"), (UnknownShape, "x")):
        with pytest.raises(ValueError, match=f"parameter {name} is .* needs tensors of known"):
            random_inputs(module)
