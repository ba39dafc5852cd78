"""Build backend of the package for pip: scikit-build-core on the top-level CMakeLists.txt, configured for this machine.

Detects PyTorch's headers (LADDER_TORCH_INCLUDE, an importable PyTorch, or fetched), nvcc, the GPU's architecture, and
the number of parallel jobs that fit in memory.

    pip install .                                             for the GPU of this machine
    pip install . -C cmake.define.LADDER_EMULATOR=ON          for CPU tensors, by the emulator
    pip install . -C cmake.define.CMAKE_CUDA_ARCHITECTURES="80;90a"
"""

import os
import sys
from pathlib import Path

from scikit_build_core import build as scikit
from scikit_build_core.build import *  # noqa: F403  (the other hooks)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from cli import device, package, setup

_BYTES_A_JOB = 2.5e9  # peak memory of an nvcc process


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return scikit.build_wheel(wheel_directory, _settings(config_settings), metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return scikit.build_editable(wheel_directory, _settings(config_settings), metadata_directory)


def _settings(given):
    given = dict(given or {})
    if "cmake.define.LADDER_COMPILED" in given:
        return given
    emulator = given.get("cmake.define.LADDER_EMULATOR", "").upper() in ("ON", "1", "TRUE", "YES")
    setup.ensure_for_package("emulator" if emulator else "cuda")
    ours = {
        "build.targets": "ladder_python",
        "cmake.define.LADDER_PROGRAMS": "OFF",
        "cmake.define.LADDER_TESTS": "OFF",
        "cmake.define.LADDER_TORCH_INCLUDE": str(package.headers()),
    }
    if not emulator and device.architecture() and not os.environ.get("CUDAARCHS"):
        ours["cmake.define.CMAKE_CUDA_ARCHITECTURES"] = device.architecture()
    os.environ.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(_jobs()))
    return {**ours, **given}


def _jobs():
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), int(memory / _BYTES_A_JOB)))
