"""From the CUDA C++ that TVM generates to C++ that g++ takes.

Most of CUDA's language is given to g++ by ``runtime/device.h``. What is left is text: declarations
of shared memory, inline PTX, and a table of the kernels. Lines stay where they are, so that a
report can quote the source.
"""

from __future__ import annotations

import re

from ..errors import EmulatorError
from .ptx import rewrite_ptx

_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+void\s+(?:__launch_bounds__\(\s*(\d+)[^)]*\)\s*)?(\w+)\s*'
    r"\(([^)]*)\)\s*\{"
)
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:(?:alignas|__align__)\(\d+\)\s+)?(\w[\w: ]*?)\s+(\w+)\s*\[\s*\]\s*;"
)
_STATIC = re.compile(
    r"__shared__\s+(?:(?:alignas|__align__)\((\d+)\)\s+)?(\w[\w: ]*?)\s+(\w+)\s*"
    r"((?:\[[^\]]*\])*)\s*;"
)

#: Where TVM cannot shuffle a type (bfloat16), its reductions end within a warp on shared memory,
#: `((volatile T*)red_buf0_ptr)[...] = w_16_0;`, and count on the lanes moving in lock step.
_LOCK_STEP = re.compile(r"(\(\(volatile [\w ]+\*\)\w+\)\[.*\] = w(?:_\d+)+;)")

#: What the emulator does not have: pattern, name.
_UNSUPPORTED = (
    (r"\bwgmma\b", "wgmma"),
    (r"\btcgen05\b", "tcgen05"),
    (r"\bcp\.async\.bulk\b|\bCUtensorMap\b|\btensormap\b", "TMA (bulk tensor copies)"),
    (r"\bmbarrier\b", "mbarrier"),
    (r"\b__cluster_dims__\b|\bbarrier\.cluster\b|\bcluster_ctarank\b", "thread block clusters"),
    (r"\bcooperative_groups\b", "cooperative groups"),
    (r"<<<", "launches from the device"),
    (r"\btex[123]D", "textures"),
    (r"\bgriddepcontrol\b", "programmatic dependent launch"),
)


def translate(source: str) -> str:
    """Rewrite a CUDA source for g++.

    Parameters
    ----------
    source : str
        CUDA C++ with kernels that are ``extern "C" __global__``.

    Returns
    -------
    str
        C++ that is compiled with ``runtime/device.h`` in front of it.

    Raises
    ------
    EmulatorError
        The source uses something the emulator does not have.
    """
    kernels = list(_KERNEL.finditer(source))
    _refuse_unsupported(source, kernels)
    ends = [kernel.start() for kernel in kernels[1:]] + [len(source)]
    parts = [source[: kernels[0].start() if kernels else len(source)]]
    if re.search(r"__shared__\s+\w", parts[0]):
        raise EmulatorError("the emulator does not support shared memory outside of a kernel")
    sections = []
    table = []
    for index, (kernel, end) in enumerate(zip(kernels, ends, strict=True)):
        section = f"emulator_shared_{index}"
        sections.append(f"EMULATOR_SHARED_SECTION({section})")
        parts.append(_translate_kernel(source[kernel.start() : end], section))
        names = ",".join(_argument_names(kernel[3]))
        table.append(f'EMULATOR_KERNEL({kernel[2]}, {section}, {kernel[1] or 0}, "{names}")')
    body = rewrite_ptx("".join(parts))
    return "\n".join([*sections, '#line 1 "kernel.cu"', body, *table, ""])


def _translate_kernel(text: str, section: str) -> str:
    text = _LOCK_STEP.sub(r"EMULATOR_LOCK_STEP \1 EMULATOR_LOCK_STEP", text)
    text = _DYNAMIC.sub(r"EMULATOR_DYNAMIC_SHARED(\1, \2)", text)
    return _STATIC.sub(
        lambda m: f"EMULATOR_SHARED({section}, {m[2]}, {m[3]}, {m[4]}, {m[1] or 16})", text
    )


def _argument_names(parameters: str) -> list[str]:
    """The last word of each parameter."""
    return [re.findall(r"\w+", part)[-1] for part in parameters.split(",") if part.strip()]


def _refuse_unsupported(source: str, kernels: list[re.Match[str]]) -> None:
    for pattern, name in _UNSUPPORTED:
        found = re.search(pattern, source)
        if found is None:
            continue
        line = source.count("\n", 0, found.start()) + 1
        owners = [kernel[2] for kernel in kernels if kernel.start() <= found.start()]
        where = f"kernel {owners[-1]}, line {line}" if owners else f"line {line}"
        raise EmulatorError(f"the emulator does not support {name}, which the source uses: {where}")
