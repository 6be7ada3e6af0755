"""NVIDIA's compilers, called as TVM calls them: CUDA source in, device code and a log out."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ..errors import CompilerError, one_line
from ..toolchain import cuda_headers, cuda_tool, nvrtc_library

#: Chooses the compiler: ``nvrtc``, ``nvcc``, or ``none`` to do without.
COMPILER_VARIABLE = "TVM_FUSION_CUDA_COMPILER"

_CHOICES = ("nvrtc", "nvcc", "none")

#: TVM's block for nvrtc, which reads 0.4 s of headers for a few names of types.
_SLOW_NAMES = re.compile(r"#ifdef __CUDACC_RTC__.*?#else\n", re.DOTALL)
_QUICK_NAMES = """#ifdef __CUDACC_RTC__
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define __asm__ asm
#define __volatile__ volatile
#else
"""


@dataclass(frozen=True)
class DeviceCode:
    """What a compiler made of a source.

    Parameters
    ----------
    code : bytes
        A cubin, or a fatbin.
    log : str
        What ptxas says of each kernel (``-v``).
    """

    code: bytes
    log: str


class Compiler(Protocol):
    """A compiler of CUDA C++."""

    name: str
    """Name and version, like ``"nvrtc 13.0.88"``."""

    def supports(self, arch: str) -> bool:
        """Whether it makes code for an architecture, like ``"sm_90a"``."""
        ...

    def flags(self, arch: str) -> list[str]:
        """What it is called with: with the name and the source it decides what comes out."""
        ...

    def compile(self, source: str, arch: str) -> DeviceCode:
        """Make a cubin.

        Raises
        ------
        CompilerError
            It does not take the source.
        """
        ...


def find_compiler(name: str | None = None) -> Compiler | None:
    """The compiler whose figures are reported: the one that TVM will use.

    That is nvrtc unless ``$TVM_CUDA_COMPILE_MODE`` says nvcc; the other where it is not installed.

    Parameters
    ----------
    name : {"nvrtc", "nvcc", "none"}, optional
        By default what ``$TVM_FUSION_CUDA_COMPILER`` says.

    Returns
    -------
    Compiler or None
        None where none is installed, or none is wanted.

    Raises
    ------
    CompilerError
        The name means nothing, that compiler is not installed, or none that is installed works.
    """
    wanted = name or os.environ.get(COMPILER_VARIABLE) or None
    if wanted is not None and wanted not in _CHOICES:
        raise CompilerError(f"CUDA compiler {wanted!r}: choose one of {', '.join(_CHOICES)}")
    if wanted == "none":
        return None
    order = ("nvcc", "nvrtc") if os.environ.get("TVM_CUDA_COMPILE_MODE") == "nvcc" else _CHOICES[:2]
    broken: CompilerError | None = None
    for choice in (wanted,) if wanted else order:
        try:
            found: Compiler | None = nvrtc() if choice == "nvrtc" else nvcc()
            if found is not None:
                found.flags("sm_80")  # which read the environment
                return found
        except (OSError, AttributeError, ValueError) as error:
            broken = CompilerError(f"{choice} does not work: {one_line(error)}")
    if broken is not None:
        raise broken
    if wanted is not None:
        raise CompilerError(f"{wanted} is not installed: pip install 'tvm-fusion[cuda]'")
    return None


def _ptxas_flags() -> list[str]:
    """As ``tvm.support.nvcc._ptxas_option_flags``: the level changes the registers."""
    level = os.environ.get("TVM_CUDA_PTXAS_REG_LEVEL", "10")
    extra = shlex.split(os.environ.get("TVM_CUDA_PTXAS_EXTRA_OPTS", ""))
    return ["-v", f"--register-usage-level={level}", *extra]


class Nvrtc:
    """NVIDIA's compiler as a library, in this process. Several threads may use it at once.

    Parameters
    ----------
    library : pathlib.Path
        ``libnvrtc.so``.
    headers : pathlib.Path
        The folder of CUDA's headers.
    """

    def __init__(self, library: Path, headers: Path) -> None:
        # It looks for its builtins by name only.
        for builtins in sorted(library.parent.glob("libnvrtc-builtins.so.1*"))[:1]:
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self._native = ctypes.CDLL(str(library))
        self._headers = headers
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._native.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.name = f"nvrtc {_release(library, f'{major.value}.{minor.value}')}"
        self._archs = self._supported()

    def _supported(self) -> frozenset[int]:
        count = ctypes.c_int()
        self._native.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._native.nvrtcGetSupportedArchs(numbers)
        return frozenset(numbers)

    def supports(self, arch: str) -> bool:
        """Whether it makes code for an architecture."""
        match = re.fullmatch(r"sm_(\d+)[af]?", arch)
        return match is not None and int(match[1]) in self._archs

    def flags(self, arch: str) -> list[str]:
        """As TVM's ``_compile_cuda_nvrtc``."""
        ptxas = [f"--ptxas-options={flag}" for flag in _ptxas_flags()]
        extra = shlex.split(os.environ.get("TVM_CUDA_NVRTC_EXTRA_OPTS", ""))
        language = ["-default-device", "--device-int128", "--use_fast_math", "-w"]
        return [f"--gpu-architecture={arch}", *language, *ptxas, *extra]

    def compile(self, source: str, arch: str) -> DeviceCode:
        """Make a cubin."""
        text = _SLOW_NAMES.sub(_QUICK_NAMES, source, count=1)
        include = [f"-I{self._headers}", f"-I{self._headers / 'cccl'}"]
        options = [option.encode() for option in (*self.flags(arch), *include)]
        program = ctypes.c_void_p()
        native = self._native
        if native.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
        ):
            raise CompilerError(f"{self.name} does not start")
        try:
            array = (ctypes.c_char_p * len(options))(*options)
            failed = native.nvrtcCompileProgram(program, len(options), array)
            log = self._take(program, "ProgramLog").decode(errors="replace").rstrip("\0")
            if failed:
                raise CompilerError(f"{self.name} does not take the source:\n{log}")
            return DeviceCode(self._take(program, "CUBIN"), log)
        finally:
            native.nvrtcDestroyProgram(ctypes.byref(program))

    def _take(self, program: Any, what: str) -> bytes:
        size = ctypes.c_size_t()
        getattr(self._native, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self._native, f"nvrtcGet{what}")(program, buffer)
        return buffer.raw


class Nvcc:
    """NVIDIA's compiler as a program. It needs g++ besides.

    Parameters
    ----------
    program : pathlib.Path
        ``nvcc``.
    """

    def __init__(self, program: Path) -> None:
        self._program = program
        said = subprocess.run([str(program), "--version"], capture_output=True, text=True).stdout
        version = re.search(r"V(\d[\d.]*)", said)
        listed = subprocess.run([str(program), "--list-gpu-code"], capture_output=True, text=True)
        self.name = f"nvcc {version[1] if version else 'of unknown version'}"
        self._archs = frozenset(re.findall(r"sm_\d+", listed.stdout))

    def supports(self, arch: str) -> bool:
        """Whether it makes code for an architecture."""
        return re.sub(r"[af]$", "", arch) in self._archs

    def flags(self, arch: str) -> list[str]:
        """As TVM's ``_compile_cuda_nvcc``."""
        math = [] if os.environ.get("TVM_CUDA_NVCC_NO_FAST_MATH") else ["--use_fast_math"]
        ptxas = f"--ptxas-options={','.join(_ptxas_flags())}"
        return ["-O3", f"-arch={arch}", "-w", "--expt-relaxed-constexpr", *math, ptxas]

    def compile(self, source: str, arch: str) -> DeviceCode:
        """Make a cubin."""
        with tempfile.TemporaryDirectory() as folder:
            text, code = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
            text.write_text(source)
            command = [str(self._program), "--cubin", *self.flags(arch), "-o", str(code), str(text)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompilerError(f"{self.name} does not take the source:\n{done.stderr[-4000:]}")
            return DeviceCode(code.read_bytes(), done.stderr)


def _release(library: Path, version: str) -> str:
    """The version with its last figure, which the library does not tell but its wheel does."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        wheel = distribution("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        return version
    files = (Path(str(wheel.locate_file(file))) for file in wheel.files or ())
    mine = any(file.name == library.name and file.samefile(library) for file in files)
    return wheel.version if mine else version


@cache
def nvrtc() -> Nvrtc | None:
    """The library, if it and its headers are installed."""
    library, headers = nvrtc_library(), cuda_headers()
    return Nvrtc(library, headers) if library is not None and headers is not None else None


@cache
def nvcc() -> Nvcc | None:
    """The program, if it is installed."""
    program = cuda_tool("nvcc")
    return Nvcc(program) if program is not None else None
