"""``tvm-fusion verify``: equal results, a difference, an error in a kernel, symbolic shapes."""

from __future__ import annotations

import pytest
from kernels import source_edited

from tvm_fusion.cli import main

MODELS = """
from tvm.script import ir as I, relax as R

@I.ir_module
class Pair:
    @R.function
    def main(x: R.Tensor(("n", 16), "float32"), k: R.Tensor(("n", 16), "int32")):
        with R.dataflow():
            lv0 = R.exp(x)
            a = R.sum(lv0, axis=-1)
            b = R.add(k, k)
            R.output(a, b)
        return (a, b)
"""


@pytest.fixture
def pair(tmp_path, emulated):
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return f"{path}:Pair"


def test_equal(pair, capsys):
    assert main(["verify", pair, "--assume", "n=5"]) == 0
    out = capsys.readouterr().out
    assert "ran the kernels on the emulator: " in out
    assert "result 0, float32 5: largest difference " in out
    assert "result 1, int32 5x16: largest difference 0.00e+00, allowed 0.00e+00: equal" in out


def test_with_checks_and_another_policy(pair, capsys):
    arguments = ["verify", pair, "--assume", "n=5", "--check", "--policy", "single_chain"]
    assert main(arguments) == 0
    assert "ran the kernels on the emulator, with checks: " in capsys.readouterr().out


def test_a_difference_ends_with_status_1(pair, capsys):
    with source_edited(lambda source: source.replace("expf(", "1.01f * expf(")):
        assert main(["verify", pair, "--assume", "n=5"]) == 1
    out = capsys.readouterr().out
    assert "float32 5: largest difference" in out
    assert ": DIFFERENT" in out
    assert "result 1, int32 5x16" in out


def test_an_error_in_a_kernel_ends_with_status_1(pair, capsys):
    with source_edited(lambda source: source.replace("(x_ptr + (", "(x_ptr - 4 + (")):
        assert main(["verify", pair, "--assume", "n=5", "--check"]) == 1
    assert "out of bounds: 16-byte read at byte -16" in capsys.readouterr().err


def test_symbolic_shapes_need_a_value(pair, capsys):
    assert main(["verify", pair]) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert "the extent n is symbolic" in error
    assert "--assume n=128" in error
