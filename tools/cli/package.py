"""The PyTorch package of python/: the headers that it is compiled against, and the Python that runs its tests."""

import importlib.util
import os
import shutil
import sys
import zipfile
from pathlib import Path

from . import build, paths, run, say, test_programs, tools, wheels
from .test_programs import Totals

# Pinned packages of the Python environment that runs the tests of python/.
TORCH = "torch==2.11.0"
_BESIDE_TORCH = "numpy==2.3.5 safetensors==0.6.2 diffusers==0.35.2 pytest==8.4.2 scikit-build-core==0.11.6"
_WITH_TORCH = [TORCH, *_BESIDE_TORCH.split()]
_TARGET = "ladder_python"


def cache():
    """Folder of large downloads: the environment's LADDER_CACHE, which clones may share, else cache/ in PRIVATE."""
    return Path(os.environ.get("LADDER_CACHE") or paths.PRIVATE / "cache").absolute()


def python(*modules):
    """A Python with these modules, or with PyTorch and pytest; None for none: LADDER_PYTHON, that of fetch_torch(), or the
    running Python."""
    candidates = [os.environ.get("LADDER_PYTHON"), _environment() / "bin" / "python", sys.executable]
    for candidate in filter(None, candidates):
        if shutil.which(candidate) and tools.can_import(candidate, *(modules or ("pytest", "torch"))):
            return Path(candidate)
    return None


def fetch_torch():
    """Installs PyTorch (4.8 GB) and the test packages into a virtual environment, once, and again for a new pin."""
    home, pins = _environment(), "\n".join(_WITH_TORCH)
    ready = home / ".ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == pins:
        return
    env = tools.environment()
    into = home if ready.exists() else home.with_suffix(".partial")
    if into != home:
        shutil.rmtree(into, ignore_errors=True)
        into.parent.mkdir(parents=True, exist_ok=True)
        run.logged("making a Python environment", [sys.executable, "-I", "-m", "venv", into], paths.SETUP_LOG, env)
    pip = [into / "bin" / "python", "-I", "-m", "pip", "--disable-pip-version-check", "install", "--no-compile"]
    run.logged(f"fetching {TORCH} (4.8 GB)", [*pip, *_WITH_TORCH], paths.SETUP_LOG, env)
    (into / ".ready").write_text(pins, encoding="utf-8")
    if into != home:
        shutil.rmtree(home, ignore_errors=True)
        into.rename(home)


def headers():
    """PyTorch's include folder: LADDER_TORCH_INCLUDE, an installed PyTorch's, or one fetched without its libraries."""
    if os.environ.get("LADDER_TORCH_INCLUDE"):
        return Path(os.environ["LADDER_TORCH_INCLUDE"])
    here = importlib.util.find_spec("torch")
    beside = [Path(here.origin).parent / "include"] if here and here.origin else []
    installed = [*beside, *_environment().glob("lib/python*/site-packages/torch/include")]
    return next((folder for folder in installed if folder.is_dir()), None) or _fetched_headers()


def _fetched_headers():
    folder = cache() / f"{TORCH.replace('==', '-')}-include"
    if folder.exists():
        return folder
    fresh = folder.with_suffix(".partial")
    shutil.rmtree(fresh, ignore_errors=True)
    # The smallest Linux wheel: headers are the same on every platform, and none of its binaries runs.
    platform = ["--platform", "manylinux_2_28_aarch64", "--python-version", "3.12"]
    wheel = wheels.download(f"the headers of {TORCH}", TORCH, fresh, paths.SETUP_LOG, platform)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(fresh, [name for name in archive.namelist() if name.startswith("torch/include/torch/")])
    (fresh / "torch" / "include").rename(folder)
    shutil.rmtree(fresh)
    return folder


def compile_into(preset, options=()):
    """Builds the package's library for the preset's device; python/ladder_torch finds it there."""
    build.build(preset, [*options, f"-DLADDER_TORCH_INCLUDE={headers()}"], [_TARGET])


def test(preset, options=(), tests=("python/tests",)):
    """Runs `tests`, of pytest; the last line printed is the totals. Without PyTorch, prints a line and skips them."""
    interpreter = python()
    if not interpreter:
        say.line("the PyTorch package: skipped, there is no PyTorch; ./ladder setup --torch fetches it (4.8 GB)")
        return Totals(skipped=1)
    compile_into(preset, options)
    return test_programs.run_pytest("python", interpreter, tests)


def _environment():
    return cache() / TORCH.replace("==", "-")
