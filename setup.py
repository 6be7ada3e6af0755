"""Package metadata of tvm_fusion; the build system and the tools are set up in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "([^"]+)"', (HERE / "tvm_fusion/__init__.py").read_text())[1]

EXTRAS = {
    "cuda": [
        "nvidia-cuda-nvcc==13.0.*",
        "nvidia-nvvm==13.0.*",
        "nvidia-cuda-crt==13.0.*",
        "nvidia-cuda-runtime==13.0.*",
        "nvidia-cuda-cccl==13.0.*",
        "nvidia-cuda-nvrtc==13.0.*",
        # There is none of release 13.0; it reads the code of older compilers.
        "nvidia-cuda-nvdisasm>=13.2",
    ],
    # Headers only: the emulator needs no compiler of NVIDIA's, but g++.
    "emulator": [
        "nvidia-cuda-runtime==13.0.*",
        "nvidia-cuda-crt==13.0.*",
        "nvidia-cuda-cccl==13.0.*",
    ],
    "onnx": ["onnx>=1.17", "onnxsim>=0.4.36"],
    "notebooks": ["jupytext>=1.16", "nbclient>=0.10", "ipykernel>=6.29", "nbformat>=5.10"],
}
EXTRAS["test"] = [
    "pytest>=8",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "onnxruntime>=1.18",
    "ruff>=0.9",
    "mypy>=1.14",
    # Drives a Chromium that is there; it brings none of its own.
    "playwright>=1.49",
    *EXTRAS["cuda"],
    *EXTRAS["emulator"],
    *EXTRAS["onnx"],
    *EXTRAS["notebooks"],
]

setup(
    name="tvm-fusion",
    version=VERSION,
    description="Operator fusion for Apache TVM on NVIDIA GPUs, as a plugin",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["tvm_fusion", "tvm_fusion.*"]),
    package_data={
        "tvm_fusion": [
            "py.typed",
            "emulator/runtime/*.cpp",
            "emulator/runtime/*.h",
            "report/html/templates/*",
        ]
    },
    install_requires=[
        "apache-tvm>=0.27,<0.28",
        "apache-tvm-ffi>=0.1.15,<0.2",
        "numpy>=1.26",
        "cattrs>=24.1",
        "jinja2>=3.1",
        "rich>=13.7",
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": ["tvm-fusion = tvm_fusion.cli:main"],
        "tvm.backends": ["tvm_fusion = tvm_fusion._autoload:autoload"],
    },
)
