"""``tvm-fusion verify``: run the generated kernels, and compare with the unfused model.

The kernels run on the GPU where there is one, and on the emulator elsewhere; the unfused model
runs on the CPU, compiled by LLVM, every operator by itself.
"""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import tvm
from tvm import relax

from .. import emulator
from ..errors import ModelError
from ..workloads import random_inputs
from .compile import build, progress
from .options import Settings

#: Largest difference allowed, relative to the largest element of a result. Both sides round after
#: every operation of the narrow types, and add up in different orders.
_TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def verify(model: str, settings: Settings) -> int:
    """Run the command.

    Parameters
    ----------
    model : str
        The argument MODEL.
    settings : Settings
        The options.

    Returns
    -------
    int
        The exit status: 1 where a result differs by more than the tolerance.

    Raises
    ------
    TVMFusionError
        The model cannot be imported or compiled, there is neither a GPU nor what the emulator
        needs, or the emulator found an error in a kernel.
    """
    where = _choose_device(settings)
    made = build(model, settings)
    try:
        arrays = random_inputs(made.imported, assume=settings.assume)
    except ValueError as error:
        raise ModelError(f"there are no inputs to verify with: {error}") from error
    with progress() as say:
        say("run the unfused model on the CPU")
        with tvm.transform.PassContext(disabled_pass=["FuseOps"]):
            unfused = _run(tvm.compile(made.imported, "llvm"), arrays, tvm.cpu())
        say(f"run the kernels on {where}")
        started = time.perf_counter()
        fused = _run(made.executable, arrays, tvm.cuda(0))
        seconds = time.perf_counter() - started
    print(f"ran the kernels on {where}: {seconds:.1f} s")
    pairs = enumerate(zip(fused, unfused, strict=True))
    near = [_compare(index, *pair) for index, pair in pairs]
    return 0 if all(near) else 1


def _choose_device(settings: Settings) -> str:
    """What the kernels run on; installs the emulator where it is that."""
    if tvm.cuda(0).exist and not emulator.is_active():
        return "the GPU"
    arch = re.match(r"sm_\d+", str(tvm.target.Target(settings.target).attrs.get("arch")))
    emulator.install(check=settings.check, arch=arch[0] if arch else "sm_80")
    return "the emulator, with checks" if settings.check else "the emulator"


def _run(executable: Any, arrays: list[np.ndarray], device: Any) -> list[np.ndarray]:
    # "naive" gives each buffer its exact size, so that the emulator sees every overrun.
    machine = relax.VirtualMachine(executable, device, memory_cfg="naive")
    return _flatten(machine["main"](*[tvm.runtime.tensor(array, device) for array in arrays]))


def _flatten(result: Any) -> list[np.ndarray]:
    """All tensors of a result, nested tuples in order."""
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [leaf for part in result for leaf in _flatten(part)]


def _compare(index: int, fused: np.ndarray, unfused: np.ndarray) -> bool:
    """Print how far two results are apart; True if that is near enough."""
    dtype = str(unfused.dtype)
    a, b = fused.astype("float64"), unfused.astype("float64")
    # Where both are the same infinity or NaN, nothing was lost.
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.where(same, 0.0, np.abs(a - b))
    difference = float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    allowed = _TOLERANCE.get(dtype, 0.0) * scale
    near = difference <= allowed
    print(
        f"result {index}, {dtype} {'x'.join(map(str, b.shape))}: largest difference "
        f"{difference:.2e}, allowed {allowed:.2e}: {'equal' if near else 'DIFFERENT'}"
    )
    return near
