"""A library built without a GPU holds device code for the GPU asked for, and runs elsewhere."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from conftest import QUICK_LLVM, make_cuda_target
from support import assert_close, run
from tvm import relax

import tvm_fusion as tf
from tvm_fusion import codegen
from tvm_fusion.cli import main
from tvm_fusion.toolchain import cuda_tool
from tvm_fusion.workloads import random_inputs, small

#: ``e_machine`` of NVIDIA's device code.
EM_CUDA = 190

#: Loads and runs a library with TVM's runtime alone, on the emulator.
RUNTIME_ONLY = """
import sys
import numpy as np
from tvm_fusion import emulator
emulator.install(check=True)
import tvm
from tvm.runtime.vm import VirtualMachine
assert tvm.base._RUNTIME_ONLY
library, inputs, output = sys.argv[1:]
machine = VirtualMachine(tvm.runtime.load_module(library), tvm.cuda(0), memory_cfg="naive")
arrays = np.load(inputs)
result = machine["main"](*[tvm.runtime.tensor(arrays[k], tvm.cuda(0)) for k in arrays.files])
assert emulator.launches() > 0
np.save(output, result.numpy())
"""


def device_code(library: Path) -> list[bytes]:
    """The cubins within a library."""
    data, found, at = library.read_bytes(), [], 0
    while (at := data.find(b"\x7fELF", at + 1)) > 0:
        if struct.unpack_from("<H", data, at + 18)[0] == EM_CUDA:
            found.append(data[at:])
    return found


@pytest.fixture
def exported(tmp_path, monkeypatch, emulated):
    """The library of a small network for an H100, the network, and who compiled it."""
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "nvrtc")
    mod = small("ln_gelu_res")
    target = make_cuda_target("sm_90")
    with target:
        fused = tf.OperatorFusion(feedback="off")(relax.transform.LegalizeOps()(mod))
    compiler = tf.export_library(fused, target, tmp_path / "model.so")
    return tmp_path / "model.so", mod, compiler


def test_the_library_holds_code_for_the_architecture_asked_for(exported, tmp_path):
    library, _, compiler = exported
    assert compiler.startswith("nvrtc 13")
    (code,) = device_code(library)
    (tmp_path / "code.cubin").write_bytes(code)
    listed = subprocess.run(
        [str(cuda_tool("nvdisasm")), str(tmp_path / "code.cubin")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "sm_90" in listed.stdout
    assert list(codegen.instruction_facts(code)) == ["fused_gelu_add_layer_norm_kernel"]


def test_the_runtime_alone_loads_it_and_the_emulator_runs_it(exported, tmp_path):
    """Tolerance: float32, sums in another order."""
    library, mod, _ = exported
    arrays = random_inputs(mod, seed=7)
    np.savez(tmp_path / "inputs.npz", *arrays)
    output = tmp_path / "output.npy"
    files = [str(library), str(tmp_path / "inputs.npz"), str(output)]
    done = subprocess.run(
        [sys.executable, "-c", RUNTIME_ONLY, *files],
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        want = run(tvm.compile(mod, tvm.target.Target(QUICK_LLVM)), arrays)
    assert_close([np.load(output)], want, None)


def test_other_builds_still_run_on_the_emulator(exported):
    _, mod, _ = exported
    arrays = random_inputs(mod, seed=8)
    executable = tvm.compile(mod, make_cuda_target(), relax_pipeline="tvm_fusion")
    with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
        want = run(tvm.compile(mod, tvm.target.Target(QUICK_LLVM)), arrays)
    assert_close(run(executable, arrays, tvm.cuda(0)), want, None)


def test_without_a_compiler_nothing_is_exported(tmp_path):
    """The suite asks for no compiler."""
    with pytest.raises(tf.CompilerError, match=r"device code needs a CUDA compiler: pip install"):
        tf.export_library(small("ln_gelu_res"), make_cuda_target(), tmp_path / "model.so")
    assert not list(tmp_path.iterdir())


def test_an_architecture_that_is_too_old_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "nvrtc")
    with pytest.raises(tf.CompilerError, match="makes no code for sm_70"):
        tf.export_library(small("ln_gelu_res"), make_cuda_target("sm_70"), tmp_path / "model.so")


def test_the_command_line_exports(tmp_path, monkeypatch, capsys, emulated):
    monkeypatch.setenv("TVM_FUSION_CUDA_COMPILER", "nvrtc")
    path = tmp_path / "new" / "model.so"
    options = ["--target", "nvidia/nvidia-h100", "--export", str(path)]
    assert main(["compile", "softmax_chain", *options]) == 0
    assert f"wrote {path}, device code by nvrtc 13" in capsys.readouterr().out
    assert len(device_code(path)) == 1
