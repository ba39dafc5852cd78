"""Installation of pinned PyPI packages into the private folder: NVIDIA's compiler and libraries, a newer CMake."""

import shutil
import sys
import zipfile
from pathlib import Path

from . import debian, run, tools
from .errors import Failure
from .paths import PRIVATE
from .tools import VENV

TOOLS = ["cmake==3.31.6", "ninja==1.11.1.4"]

# One release of the CUDA toolkit. The emulator needs its headers only.
CUDA_HEADERS = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88", "nvidia-cuda-cccl==13.0.85"]
CUDNN = ["nvidia-cudnn-cu13==9.19.0.56"]
# For trainings on several GPUs; PyTorch 2.11 has the same release.
NCCL = ["nvidia-nccl-cu13==2.28.9"]
CUDA = (
    CUDA_HEADERS
    + CUDNN
    + [
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cublas==13.1.0.3",
        "nvidia-cuda-nvrtc==13.0.88",
        "nvidia-nvtx==13.0.85",
        "nvidia-cuda-cupti==13.0.85",
    ]
)
# Disassembler that ./ladder diff reads object files with; no older release is on PyPI.
DISASSEMBLER = ["nvidia-cuda-cuobjdump==13.2.51", "nvidia-cuda-nvdisasm==13.2.51"]
# The last release that runs on Python 3.9.
BROWSER_DRIVER = ["selenium==4.32.0"]
# The format's reference library, to test the trainer's implementation against, with a NumPy that fits this Python.
SAFETENSORS = ["safetensors[numpy]==0.6.2"]

# Preparation of the trainer's data: pictures, a font's bitmaps, which characters are emoji, a digest.
IMAGES = ["pillow==11.3.0", "fonttools==4.60.1", "regex==2025.9.1", "xxhash==3.5.0"]
# pytest for tests/python, on all cores, with a timeout per test; the last releases for Python 3.9.
PYTEST = ["pytest==8.4.2", "pytest-xdist==3.8.0", "pytest-timeout==2.4.0"]
# Linter and formatter of the tree's Python.
RUFF = ["ruff==0.17.6"]
# Plots of the READMEs.
MATPLOTLIB = ["matplotlib==3.9.4"]
# Charts of the dashboard, drawn by the package's plotly.min.js.
PLOTLY = "plotly==7.1.0"
# Plots of times in a terminal.
PLOTEXT = ["plotext==5.3.2"]
# {module: pin} of tools/images/nearest_images.py.
PIXELS = {"PIL": "pillow==11.3.0", "numpy": "numpy==2.0.2"}
# Writer of TensorBoard's events, for ./ladder train --tensorboard.
TENSORBOARD = ["tensorboardX==2.6.2.2"]
CUDNN_FRONTEND = "nvidia-cudnn-frontend==1.32.0"


def install(what, pins, folder, log):
    """Installs `pins` without their dependencies into PRIVATE/<folder>, all of them or none."""
    fresh = PRIVATE / f".{folder}.new"  # hidden from the pattern by which profiling/where.py finds tools
    shutil.rmtree(fresh, ignore_errors=True)
    run.logged(
        f"fetching {what}",
        [*_pip(log), "install", "--no-deps", "--no-compile", "--target", str(fresh), *pins],
        log,
        tools.environment(),
    )
    _complete(fresh / "nvidia" / "cu13")
    shutil.rmtree(PRIVATE / folder, ignore_errors=True)
    fresh.rename(PRIVATE / folder)


def install_tools(pins, log):
    """Installs programs into the virtual environment."""
    run.logged(f"fetching {' '.join(pins)}", [*_pip(log), "install", *pins], log, tools.environment())


def python_with(pins, log):
    """The virtual environment's Python with `pins` installed; fetches them on first use."""
    ready = VENV / ("." + "-".join(pins))
    if not ready.exists():
        install_tools(pins, log)
        ready.touch()
    return VENV / "bin" / "python"


def python_having(pins, log):
    """A Python that can import the modules of `pins` ({"numpy": "numpy==2.0.2"}): this one, else python_with()'s."""
    # Ask in a new process: this process may import from folders that only its own sys.path has.
    if tools.can_import(sys.executable, *pins):
        return Path(sys.executable)
    return python_with(list(pins.values()), log)


def download(what, pin, folder, log, more=()):
    """Downloads the wheel of `pin` into `folder` without installing it, for any Python version. Returns its path.
    `more`: further flags of pip."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", str(folder), *more]
    run.logged(f"fetching {what}", [*_pip(log), "download", *flags, pin], log, tools.environment())
    return next(folder.glob("*.whl"))


def unpack_headers(pin, log):
    """Extracts the include/ folder of a wheel to PRIVATE/include."""
    fresh = PRIVATE / "include.new"
    shutil.rmtree(fresh, ignore_errors=True)
    wheel = download(f"the headers of {pin}", pin, fresh, log)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            _, found, inside = name.partition("include/")
            if found and inside and not name.endswith("/"):
                target = fresh / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(name))
    wheel.unlink()
    shutil.rmtree(PRIVATE / "include", ignore_errors=True)
    fresh.rename(PRIVATE / "include")


def _complete(toolkit):
    """Adds the links that an installed toolkit has and its wheels lack: lib64, and lib*.so names for the linker."""
    if not (toolkit / "lib").exists():
        return
    if not (toolkit / "lib64").exists():
        (toolkit / "lib64").symlink_to("lib")
    for library in (toolkit / "lib").glob("lib*.so.*"):
        plain = library.with_name(library.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)


def _pip(log):
    """pip command of the private virtual environment, never the system's; makes the environment on first use."""
    ready = VENV / ".ready"
    if not ready.exists():
        shutil.rmtree(VENV, ignore_errors=True)
        without_pip = [] if has_ensurepip() else ["--without-pip"]
        run.logged(
            "making a Python environment",
            [sys.executable, "-I", "-m", "venv", *without_pip, str(VENV)],
            log,
            tools.environment(),
        )
        ready.touch()
    python = str(VENV / "bin" / "python")
    if (VENV / "bin" / "pip").exists():
        return [python, "-I", "-m", "pip", "--disable-pip-version-check"]
    return [python, f"{_pip_wheel(log)}/pip", "--disable-pip-version-check"]


def has_ensurepip():
    return tools.can_import(sys.executable, "ensurepip")


def _pip_wheel(log):
    """Path of pip's wheel, for a Python without pip: Debian has pip in a separate package."""

    def found():
        return next(iter(sorted((debian.UNPACKED / "usr/share/python-wheels").glob("pip-*.whl"))), None)

    if not found():
        if not debian.present():
            raise Failure("python3 has no pip and no ensurepip: install python3-venv (or python3-pip)")
        debian.unpack(["python3-pip-whl"], log)
    return found()
