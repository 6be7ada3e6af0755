"""Fixtures and helpers of the whole suite.

The emulator is installed by the first test that asks for the fixture ``emulated``, and stays for
the rest of the process. That does not disturb other tests: they compile CUDA source as before, and
tests that need a GPU were told apart when they were collected. A process with a real GPU's driver
loaded skips the emulator's tests; there, ``TVM_FUSION_EMULATOR=1 python -m pytest tests/emulator``
installs it before TVM is imported.
"""

from __future__ import annotations

import os

import pytest

from tvm_fusion import emulator

#: Most tests are not about figures of the compiler. Those that are ask for them.
os.environ.setdefault("TVM_FUSION_CUDA_COMPILER", "none")

if os.environ.get("TVM_FUSION_EMULATOR") == "1":
    emulator.install()

import tvm
from tvm.target import Target

#: LLVM without the expensive optimisations: the tests compile much and run little.
QUICK_LLVM = {"kind": "llvm", "opt-level": 1}


@pytest.fixture(scope="session")
def cuda_target() -> Target:
    """An A100 as a target, with a host; compiling for it needs no GPU."""
    return make_cuda_target()


@pytest.fixture(scope="session")
def emulated() -> tvm.runtime.Device:
    """The emulated GPU."""
    if not emulator.is_active() and tvm.cuda(0).exist:
        pytest.skip("a real GPU is in use: set TVM_FUSION_EMULATOR=1")
    emulator.install()
    return tvm.cuda(0)


def make_cuda_target(arch: str = "sm_80") -> Target:
    return Target(
        {
            "kind": "cuda",
            "arch": arch,
            "max_num_threads": 1024,
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": 49152,
            "thread_warp_size": 32,
        },
        host="llvm",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """GPU tests skip themselves without a GPU; slow ones are left out unless asked for."""
    no_gpu = pytest.mark.skip(reason="no NVIDIA GPU")
    has_gpu = tvm.cuda(0).exist and not emulator.is_active()
    for item in items:
        if "gpu" in item.keywords and not has_gpu:
            item.add_marker(no_gpu)
    if "slow" not in (config.getoption("-m") or ""):
        slow = [item for item in items if "slow" in item.keywords]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if "slow" not in item.keywords]
