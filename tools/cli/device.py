"""Choice of the backend that runs kernels on this machine, with its reason, and queries of the first GPU."""

import ctypes
import functools
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass
from datetime import datetime

from . import tools
from .errors import UsageError

# Kernels are built by CUDA 13 for sm_80 and up. A driver runs no binaries of a toolkit with a later major version.
_LEAST_DRIVER = 13000
_LEAST_ARCH = 80

_ATTRIBUTE_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
_ATTRIBUTE_MINOR = 76

_SMI = (
    "timestamp temperature.gpu power.draw power.limit clocks.sm clocks.mem clocks.max.sm clocks_event_reasons.active "
    "utilization.gpu"
).split()


@dataclass
class Choice:
    preset: str  # "cuda", or of the emulator
    why: str

    def __str__(self):
        return f"{'GPU' if self.preset == 'cuda' else self.preset} build ({self.why})"


@dataclass(frozen=True)
class _Gpu:
    model: str
    arch: int  # compute capability times ten
    count: int  # of GPUs, this one the first


def gpu():
    """Returns (name of the first GPU, "") or (None, the reason that no GPU is usable)."""
    found, why = _first()
    return (found.model, "") if found else (None, why)


def num_gpus():
    """The number of GPUs that a program sees; 0 if the first is not usable."""
    found, _ = _first()
    return found.count if found else 0


def slug():
    """The first GPU's name in results/, derived like in core/backend_cuda.cpp: "h200"; None without a usable GPU."""
    found, _ = _first()
    return slug_of(found.model) if found else None


def slug_of(model):
    for brand in ("NVIDIA ", "GeForce ", "Tesla "):
        model = model.removeprefix(brand)
    return re.sub(r"[^a-z0-9]+", "-", model.lower()).lstrip("-")


def architecture():
    """The first GPU's architecture in the syntax of CMAKE_CUDA_ARCHITECTURES: "90a-real"; None without a usable GPU."""
    found, _ = _first()
    return cmake_architecture(found.arch) if found else None


def cmake_architecture(arch):
    # wgmma needs sm_90a. "real" omits PTX, which only another GPU would need.
    return f"{arch}{'a' if arch == 90 else ''}-real"


@functools.cache
def _first():
    """Asks the CUDA driver for the first GPU. Returns (_Gpu, "") or (None, the reason that no GPU is usable)."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no GPU: this machine has no NVIDIA driver (libcuda.so.1)"
    if cuda.cuInit(0) != 0:
        return None, "no GPU: the NVIDIA driver finds none (cuInit failed)"

    count, device, driver = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return None, "no GPU: the NVIDIA driver finds none"
    cuda.cuDriverGetVersion(ctypes.byref(driver))
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceGetName(name, len(name), device)
    model = name.value.decode(errors="replace")

    major, minor = ctypes.c_int(), ctypes.c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _ATTRIBUTE_MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _ATTRIBUTE_MINOR, device)
    arch = 10 * major.value + minor.value
    if arch < _LEAST_ARCH:
        return None, f"the GPU is too old: {model} is sm_{arch}, kernels need sm_{_LEAST_ARCH}"
    if driver.value < _LEAST_DRIVER:
        has = f"{driver.value // 1000}.{driver.value % 1000 // 10}"
        return None, f"the driver of the {model} is too old: it runs CUDA {has}, kernels need 13.0"
    return _Gpu(model, arch, count.value), ""


def choose(wanted=None):
    """Returns the Choice for `wanted`: "gpu", "emulator", or None (a GPU if usable, else the emulator). Throws
    UsageError for "gpu" without a usable GPU."""
    if wanted == "emulator":
        return Choice("emulator", "--device emulator")
    model, why = gpu()
    if wanted == "gpu" and model is None:
        raise UsageError(f"--device gpu: {why}; --device emulator checks kernels on the CPU")
    if wanted not in (None, "gpu"):
        raise UsageError(f"--device {wanted}: gpu or emulator")
    if model is None:
        return Choice("emulator", f"{why}; kernels are checked on the CPU, times mean nothing")
    return Choice("cuda", model)


class Watch:
    """Context manager that samples the first GPU's clock and power with nvidia-smi; no samples without nvidia-smi."""

    _FIELDS = ("clocks.sm", "power.draw.instant")
    _MILLISECONDS = 50

    def __enter__(self):
        smi = shutil.which("nvidia-smi")
        self._lines = ""
        self._process = smi and subprocess.Popen(
            [smi, "-i", "0", f"--query-gpu=timestamp,{','.join(self._FIELDS)}", "--format=csv,noheader,nounits"]
            + ["-lms", str(self._MILLISECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_):
        if self._process:
            self._process.terminate()
            self._lines, _ = self._process.communicate()

    def between(self, began, ended):
        """{field: {"median", "low", "high"}} of the samples from `began` to `ended`, Unix seconds; None without any."""
        samples = []
        for line in self._lines.splitlines():
            stamp, *values = (cell.strip() for cell in line.split(","))
            try:
                at = datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").timestamp()
                if began <= at <= ended:
                    samples.append([float(value) for value in values])
            except ValueError:  # "[N/A]", or a line that was cut off
                continue
        columns = dict(zip(self._FIELDS, zip(*samples)))
        return {
            field: {"median": statistics.median(column), "low": min(column), "high": max(column)}
            for field, column in columns.items()
        } or None


def read_machine():
    """nvidia-smi's values of the first GPU, {field of _SMI: text}, or None."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    done = tools.captured(smi, "-i", "0", f"--query-gpu={','.join(_SMI)}", "--format=csv,noheader,nounits")
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(_SMI, values)) if done.returncode == 0 and len(values) == len(_SMI) else None
