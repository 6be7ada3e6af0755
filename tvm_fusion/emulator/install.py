"""Puts the emulator where TVM looks for a CUDA driver.

TVM's wheel carries its CUDA runtime, ``libtvm_runtime_cuda.so``, which loads only where
``libcuda.so.1`` and ``libcudart.so.13`` are. Here stand-ins of those names are loaded first, then
TVM's runtime if ``import tvm`` could not load it. TVM asks a callback to compile CUDA source:
ours hands the source through, and the runtime asks for compiled code at the first launch.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from pathlib import Path
from typing import Any

from ..cache import cache_directory
from ..errors import EmulatorError
from .compile import check_platform, compile_kernels, runtime_libraries, source_line

_COMPILE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
)
_SOURCE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t
)
_LINE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)

#: `kMagic` of ``runtime/modules.cpp``: what is handed to TVM as a compiled module.
_MAGIC = "// tvm_fusion emulator\n"

_native: Any = None
_arch = ""
_callbacks: list[Any] = []  # ctypes does not keep them


def install(check: bool = False, arch: str = "sm_80") -> None:
    """Make ``tvm.cuda(0)`` an emulated GPU, for the rest of the process.

    It does not matter whether TVM has been imported before. A second call only sets ``check``.

    Parameters
    ----------
    check : bool
        Run in check mode unless :func:`configure` says otherwise.
    arch : str
        The GPU's architecture, like ``sm_80``: what kernels see as ``__CUDA_ARCH__``, and how
        much shared memory a block may have.

    Raises
    ------
    EmulatorError
        Not Linux on x86-64; no g++ or CUDA headers; TVM already uses a real driver; or the
        emulator is installed with another architecture.
    """
    from dataclasses import replace

    from . import config

    global _native, _arch
    if re.fullmatch(r"sm_\d+[a-z]?", arch) is None:
        raise EmulatorError(f"architecture {arch!r}: write it like sm_80")
    if _native is not None and arch != _arch:
        raise EmulatorError(f"the emulator is already installed as {_arch}: start another process")
    if _native is None:
        check_platform()
        _refuse_real_driver()
        libcuda, libcudart = runtime_libraries()
        ctypes.CDLL(str(libcuda), ctypes.RTLD_GLOBAL)
        library = ctypes.CDLL(str(libcudart), ctypes.RTLD_GLOBAL)
        _declare(library)
        _load_tvm_runtime()
        _native, _arch = library, arch
        _set_device(arch)
    config.apply(replace(config.current(), check=check))


def is_active() -> bool:
    """Whether ``tvm.cuda(0)`` is the emulator in this process."""
    return _native is not None


def launches() -> int:
    """How many kernels have been launched since :func:`install`.

    Raises
    ------
    EmulatorError
        The emulator is not installed.
    """
    return int(native().emulator_launches())


def native() -> Any:
    """The loaded runtime.

    Raises
    ------
    EmulatorError
        The emulator is not installed.
    """
    if _native is None:
        raise EmulatorError("the emulator is not installed: call tvm_fusion.emulator.install()")
    return _native


def _refuse_real_driver() -> None:
    """Two drivers in one process cannot be: TVM keeps the one it has loaded."""
    mapped = Path("/proc/self/maps").read_text()
    if re.search(r"/libcuda(rt)?\.so", mapped) or "libtvm_runtime_cuda" in mapped:
        raise EmulatorError(
            "this process has loaded a real CUDA driver: call tvm_fusion.emulator.install() "
            "before `import tvm` and all else that uses the GPU"
        )


def _declare(library: Any) -> None:
    """Types of the runtime's functions, and the three it calls back."""
    library.emulator_launches.restype = ctypes.c_ulong
    library.emulator_profile.restype = ctypes.c_char_p
    _callbacks.extend([_COMPILE(_compile), _LINE(_line), _SOURCE(_source)])
    for name, callback in zip(("compile", "line", "source"), _callbacks, strict=True):
        slot = ctypes.c_void_p.in_dll(library, f"emulator_{name}_callback")
        slot.value = ctypes.cast(callback, ctypes.c_void_p).value


def _compile(source: bytes, instrumented: int, out: int, size: int) -> int:
    try:
        result, status = str(compile_kernels(source.decode(), bool(instrumented), _arch)), 0
    except Exception as error:  # no exception passes through the runtime's C++
        result, status = str(error), 1
    text = result.encode()[: size - 1] + b"\0"
    ctypes.memmove(out, text, len(text))
    return status


def _line(library: bytes, offset: int) -> int:
    try:
        return source_line(library.decode(), offset)
    except Exception:
        return 0


def source_entry(digest: str) -> str:
    """The name under which the cache keeps the source of exported device code.

    Parameters
    ----------
    digest : str
        SHA-256 of the code, in hexadecimal digits.
    """
    return f"source-{digest[:32]}.cu"


def _source(code: int, code_size: int, out: int, size: int) -> int:
    try:
        digest = hashlib.sha256(ctypes.string_at(code, code_size)).hexdigest()
        path = cache_directory() / source_entry(digest)
        text = str(path).encode()[: size - 1] + b"\0"
        ctypes.memmove(out, text, len(text))
        return 0 if path.exists() else 1
    except Exception:  # no exception passes through the runtime's C++
        return 1


def _load_tvm_runtime() -> None:
    import tvm.support.nvcc  # noqa: F401  (registers the callback that ours replaces)
    import tvm_ffi
    from tvm.base import _LOADED_LIBS
    from tvm_ffi.libinfo import load_lib_ctypes

    if "tvm_runtime_cuda" not in _LOADED_LIBS:
        folder = Path(_LOADED_LIBS["tvm_runtime"]._name).resolve().parent
        try:
            _LOADED_LIBS["tvm_runtime_cuda"] = load_lib_ctypes(
                package="tvm",
                target_name="tvm_runtime_cuda",
                extra_lib_paths=[folder],
                mode="RTLD_LOCAL",
            )
        except (OSError, RuntimeError) as error:
            raise EmulatorError(f"TVM's CUDA runtime does not load: {error}") from None
    tvm_ffi.register_global_func(
        "tvm_callback_cuda_compile",
        lambda source, *_: (_MAGIC + str(source)).encode() + b"\0",
        override=True,
    )


def _set_device(arch: str) -> None:
    from ..device.gpu import OPT_IN_SHARED_KIB

    capability = int(re.findall(r"\d+", arch)[0])
    kib = OPT_IN_SHARED_KIB.get(capability, 48)
    native().emulator_set_device(capability // 10, capability % 10, kib * 1024)
