"""NVIDIA's compiler takes every kernel of every workload, and finds in it what we read off it."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest
import tvm
from conftest import make_cuda_target

import tvm_fusion as tf
from tvm_fusion.codegen import parse_kernels
from tvm_fusion.workloads import WORKLOADS, small


def nvcc() -> str:
    """The compiler that extra `cuda` installs. Not found is a failure, not a reason to skip."""
    spec = find_spec("nvidia")
    homes = list(spec.submodule_search_locations or []) if spec else []
    found = [p for home in homes for p in Path(home).glob("*/bin/nvcc")]
    assert found, "no nvcc: pip install 'tvm-fusion[cuda]'"
    return str(found[0])


def compile_cubin(source: str, arch: str, folder: Path) -> dict[str, int]:
    """Static shared memory of each kernel by name, as ptxas reports it."""
    (folder / "kernels.cu").write_text(source)
    command = [nvcc(), "-cubin", f"-arch={arch}", "--use_fast_math", "-Xptxas", "-v"]
    done = subprocess.run(
        [*command, "-o", str(folder / "kernels.cubin"), str(folder / "kernels.cu")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    entries = re.split(r"Compiling entry function '(\w+)'", done.stderr)[1:]
    shared = {}
    for name, text in zip(entries[::2], entries[1::2], strict=True):
        smem = re.search(r"(\d+) bytes smem", text)
        shared[name] = int(smem[1]) if smem else 0
    return shared


@pytest.mark.parametrize(("arch", "dtype"), [("sm_80", "float32"), ("sm_90", "float16")])
@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_the_cuda_compiler_takes_every_kernel(name, arch, dtype, tmp_path):
    target = make_cuda_target(arch)
    executable = tvm.compile(small(name, dtype=dtype), target, relax_pipeline="tvm_fusion")
    source = tf.codegen.cuda_source(executable)
    compiled = compile_cubin(source, arch, tmp_path)
    read = {kernel.name: kernel.static_shared_bytes for kernel in parse_kernels(source)}
    assert set(compiled) == set(read)
    for kernel, declared in read.items():
        # A declaration is an upper bound: ptxas drops what it keeps in registers, and reorders
        # arrays so that less is lost to alignment. On sm_90 it reserves 1,024 bytes a block.
        reserved = 1024 if arch == "sm_90" and compiled[kernel] >= 1024 else 0
        assert compiled[kernel] - reserved <= declared
