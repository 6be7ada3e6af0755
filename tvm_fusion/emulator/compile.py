"""Calls of g++: the runtime, the precompiled header, and kernels, each kept in the cache."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from ..cache import cached, key
from ..errors import EmulatorError
from ..toolchain import cuda_headers, host_compiler
from .translation import translate

RUNTIME = Path(__file__).parent / "runtime"

_LANGUAGE = [
    "-std=gnu++17", "-fPIC", "-w", "-g1", "-ffp-contract=off", "-fno-strict-aliasing",
    "-fno-threadsafe-statics", "-fno-exceptions", "-fno-semantic-interposition",
]  # fmt: skip
_PLAIN = [*_LANGUAGE, "-O1"]
# Of -fsanitize=thread only the call at each memory access is used, which also checks alignment:
# runtime/sanitizer.cpp has the functions, and g++'s own libraries are not linked. Loads of
# structures such as float4 stay whole without -ftree-sra.
_INSTRUMENTED = [
    *_LANGUAGE, "-O1", "-fno-tree-sra", "-fsanitize=thread",
    "-fsanitize=bounds,signed-integer-overflow,shift,integer-divide-by-zero",
    "-fno-sanitize-recover=all",
]  # fmt: skip


def check_platform() -> None:
    """Refuse machines whose stacks and signals the runtime does not know.

    Raises
    ------
    EmulatorError
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise EmulatorError(
            f"the emulator runs on Linux on x86-64, not on {sys.platform} on {platform.machine()}"
        )


def compiler() -> str:
    """Path of g++.

    Raises
    ------
    EmulatorError
        There is none.
    """
    found = host_compiler()
    if found is None:
        raise EmulatorError(
            "the emulator needs the C++ compiler g++, and there is none on the PATH: install "
            "package g++ (Debian, Ubuntu: apt-get install g++; Fedora, RHEL: dnf install gcc-c++)"
        )
    return found


@cache
def _recipe() -> list[str]:
    """What every compiled file depends on: the compiler, and how this file calls it."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout
    return [version, Path(__file__).read_text()]


@cache
def _include_flags() -> list[str]:
    """Where NVIDIA's headers are: in the packages of extra ``emulator``, or a toolkit's."""
    folder = cuda_headers()
    if folder is None:
        raise EmulatorError(
            "the emulator needs CUDA's headers: pip install 'tvm-fusion[emulator]', or set "
            "CUDA_PATH to a CUDA 13 toolkit"
        )
    return [f"-isystem{folder}"]


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        text = done.stderr if len(done.stderr) < 4000 else done.stderr[:4000] + "..."
        raise EmulatorError(f"g++ does not take {what}:\n{text}")


def _texts(pattern: str) -> list[str]:
    return [path.read_text() for path in sorted(RUNTIME.glob(pattern))]


def runtime_libraries() -> tuple[Path, Path]:
    """Compile the stand-ins for ``libcuda.so.1`` and ``libcudart.so.13``.

    Returns
    -------
    (pathlib.Path, pathlib.Path)
        All functions are in the second; the first is there for its name.

    Raises
    ------
    EmulatorError
        There is no compiler, or no CUDA headers.
    """
    from tvm_ffi import libinfo

    flags = ["-std=c++17", "-O2", "-fPIC", "-shared", "-w", *_include_flags()]
    flags += [f"-isystem{libinfo.find_include_path()}"]
    flags += [f"-isystem{libinfo.find_dlpack_include_path()}"]
    sources = [*_texts("*.cpp"), *_texts("abi.h"), *_texts("runtime.h")]
    name = "runtime-" + key([*_recipe(), *flags, *sources])

    def make(directory: Path) -> None:
        folder = directory / name
        folder.mkdir()
        (directory / "empty.cpp").write_text("")
        (directory / "versions").write_text("libcudart.so.13 { global: *; };\n")
        cuda, cudart = folder / "libcuda.so.1", folder / "libcudart.so.13"
        shared = [compiler(), "-shared", "-fPIC", "-o"]
        _run([*shared, str(cuda), str(directory / "empty.cpp"), "-Wl,-soname,libcuda.so.1"], "")
        sources = [str(path) for path in sorted(RUNTIME.glob("*.cpp"))]
        names = [
            "-Wl,-soname,libcudart.so.13",
            f"-Wl,--version-script={directory / 'versions'}",
        ]
        link = [*names, "-ldl", "-lpthread"]
        _run([compiler(), *flags, "-o", str(cudart), *sources, *link], "the emulator's runtime")

    folder = cached(name, make)
    return folder / "libcuda.so.1", folder / "libcudart.so.13"


def _header(flags: list[str]) -> Path:
    """The directory of ``device.h``, precompiled: NVIDIA's headers take long to read."""
    name = "header-" + key([*_recipe(), *flags, *_texts("*.h")])

    def make(directory: Path) -> None:
        folder = directory / name
        folder.mkdir()
        for path in RUNTIME.glob("*.h"):
            shutil.copy(path, folder / path.name)
        output = ["-o", str(folder / "device.h.gch")]
        source = str(folder / "device.h")
        _run([compiler(), *flags, "-x", "c++-header", source, *output], "the emulator's header")

    return cached(name, make)


def compile_kernels(source: str, instrumented: bool, arch: str) -> Path:
    """Compile CUDA C++ for this machine.

    Parameters
    ----------
    source : str
        As TVM generates it.
    instrumented : bool
        With calls at each memory access and checks of arithmetic.
    arch : str
        The GPU architecture that the source is told, like ``sm_80``.

    Returns
    -------
    pathlib.Path
        A shared library.

    Raises
    ------
    EmulatorError
        The source uses what the emulator does not have, or g++ does not take it.
    """
    number = int("".join(filter(str.isdigit, arch))) * 10
    flags = [*(_INSTRUMENTED if instrumented else _PLAIN), *_include_flags()]
    flags.append(f"-DEMULATOR_ARCH={number}")
    translated = translate(source)
    header = _header(flags)
    name = "kernels-" + key([header.name, translated]) + ".so"

    def make(directory: Path) -> None:
        (directory / "kernels.cpp").write_text(translated)
        paths = [f"-I{header}", "-include", str(header / "device.h")]
        output = ["-c", "-o", str(directory / "kernels.o")]
        _run([compiler(), *flags, *paths, *output, str(directory / "kernels.cpp")], "the kernels")
        # Linked without -fsanitize, which would bring g++'s libraries.
        link = ["-shared", "-o", str(directory / name), str(directory / "kernels.o")]
        _run([compiler(), *link], "the kernels")

    return cached(name, make)


def source_line(library: str, offset: int) -> int:
    """The line of the CUDA source that a return address in a compiled library belongs to.

    Parameters
    ----------
    library : str
        Path of the library.
    offset : int
        Of the address behind the call.

    Returns
    -------
    int
        0 if it is not known.
    """
    tool = shutil.which("addr2line")
    if tool is None:
        return 0
    # With -i come the functions that were inlined as well: the kernel's own line is the last one.
    command = [tool, "-i", "-e", library, hex(offset - 1)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = re.findall(r"kernel\.cu:(\d+)", text)
    return int(lines[-1]) if lines else 0
