"""Installing: before and after TVM, two processes at once, without a compiler, without headers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tvm_fusion import emulator
from tvm_fusion.emulator import EmulatorError, compile

RUN = """
from tvm_fusion import emulator
{before}
emulator.install(check=True)
import numpy as np, tvm
from tvm.script import ir as I, relax as R, tirx as T
import sys; sys.path[:0] = {path}
from kernels import relax_module, stock
from support import run
from tvm import relax
x = np.arange(64, dtype="float32").reshape(4, 16)
(y,) = run(stock(relax_module(lambda x: relax.op.multiply(x, x), (4, 16))), [x], tvm.cuda(0))
assert (y == x * x).all()
print("right", emulator.launches(), tvm.cuda(0).exist)
"""
HERE = os.path.dirname(__file__)
PATH = [HERE, os.path.dirname(HERE)]


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    return output


def test_two_processes_on_an_empty_cache_before_and_after_tvm(tmp_path):
    codes = [RUN.format(before=before, path=PATH) for before in ("", "import tvm")]
    running = [start(code, TVM_FUSION_CACHE=str(tmp_path)) for code in codes]
    assert [finish(process).split() for process in running] == [["right", "1", "True"]] * 2
    assert not list(tmp_path.glob("making-*"))
    made = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert made == ["header", "kernels", "runtime"]


def test_without_a_compiler(tmp_path):
    code = """
import tvm_fusion
from tvm_fusion import emulator
try:
    emulator.install()
except tvm_fusion.EmulatorError as error:
    print(error)
assert not emulator.is_active()
import tvm
from tvm_fusion.workloads import small
from tvm_fusion.codegen import cuda_source
target = tvm.target.Target("nvidia/nvidia-a100", host="llvm")
print("__global__" in cuda_source(tvm.compile(small("ln_gelu_res"), target, relax_pipeline="tvm_fusion")))
"""  # noqa: E501
    output = finish(start(code, PATH=str(tmp_path), CXX="", TVM_FUSION_CACHE=str(tmp_path)))
    assert "install package g++ (Debian, Ubuntu: apt-get install g++" in output
    assert output.split()[-1] == "True"


def test_a_process_with_a_real_driver_is_refused(tmp_path):
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "empty.c").write_text("")
    command = [compile.compiler(), "-shared", "-o", str(library), str(tmp_path / "empty.c")]
    subprocess.run(command, check=True)
    code = f"""
import ctypes
from tvm_fusion import emulator
ctypes.CDLL({str(library)!r})
try:
    emulator.install()
except emulator.EmulatorError as error:
    print(error)
"""
    assert "has loaded a real CUDA driver: call tvm_fusion.emulator.install()" in finish(
        start(code)
    )


def test_other_machines_and_missing_headers_are_named(monkeypatch):
    monkeypatch.setattr(compile.platform, "machine", lambda: "aarch64")
    with pytest.raises(EmulatorError, match="Linux on x86-64, not on linux on aarch64"):
        compile.check_platform()
    monkeypatch.setattr(compile, "cuda_headers", lambda: None)
    with pytest.raises(EmulatorError, match=r"pip install 'tvm-fusion\[emulator\]'"):
        compile._include_flags.__wrapped__()


def test_importing_it_does_not_import_tvm():
    code = "import sys, tvm_fusion.emulator; print('tvm' in sys.modules)"
    assert finish(start(code)).strip() == "False"


def test_a_second_install_needs_the_same_architecture(emulated):
    emulator.install()
    with pytest.raises(EmulatorError, match="already installed as sm_80"):
        emulator.install(arch="sm_90")
    with pytest.raises(EmulatorError, match="write it like sm_80"):
        emulator.install(arch="80")


def test_not_installed():
    code = """
from tvm_fusion import emulator
assert not emulator.is_active()
for use in (emulator.profile, emulator.launches, lambda: emulator.configure().__enter__()):
    try:
        use()
    except emulator.EmulatorError as error:
        print(error)
"""
    assert finish(start(code)).count("call tvm_fusion.emulator.install()") == 3


def test_values_that_mean_nothing(emulated):
    for wrong in ({"order": "sideways"}, {"profile": 0.5}, {"time_limit_seconds": -1}):
        with pytest.raises(ValueError, match=r"choose|give"), emulator.configure(**wrong):
            pass


def test_configure_restores(emulated):
    from tvm_fusion.emulator import config

    before = config.current()
    with emulator.configure(order="reverse", check=True), emulator.configure(seed=3):
        assert (config.current().order, config.current().seed) == ("reverse", 3)
    assert config.current() == before
    with pytest.raises(ZeroDivisionError), emulator.configure(check=True):
        print(1 / 0)
    assert config.current() == before
