"""CMake, Ninja and the C++ compiler: the system's, or those that set-up installed into the private folder."""

import functools
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from .errors import Failure
from .paths import PRIVATE

VENV = PRIVATE / "venv"
LEAST_CMAKE = (3, 24)
PYTHON_ROOT = Path(__file__).resolve().parents[1]  # holds __main__.py


def cxx():
    """Command of the C++ compiler that CMake will use; [] if none. Throws Failure if CXX's program is missing."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    return named_compiler("CXX", "a C++ compiler") or ([found] if found else [])


def named_compiler(variable, kind):
    """Command in an environment variable, split like CMake does: a program, or a program and its flags, such as "ccache
    g++". [] for an empty variable. Throws Failure if the program is missing."""
    wanted = os.environ.get(variable, "").strip()
    program = shutil.which(wanted)
    words = [wanted] if program else _words(wanted)
    if not words:
        return []
    program = program or shutil.which(words[0])
    if not program:
        raise Failure(
            f"{variable} is '{wanted}', and there is no program '{words[0]}': name {kind}, or unset {variable}"
        )
    return [program, *words[1:]]


def _words(text):
    try:
        return shlex.split(text)
    except ValueError:  # an open quote
        return text.split()


@functools.cache
def cmake():
    """Path of a CMake of at least LEAST_CMAKE, or None."""
    for path in (shutil.which("cmake"), shutil.which("cmake", path=VENV / "bin")):
        if path and _version(path) >= LEAST_CMAKE:
            return path
    return None


@functools.cache
def ninja():
    return shutil.which("ninja") or shutil.which("ninja", path=VENV / "bin")


def forget():
    """Clears the cached paths; call it after set-up installed tools."""
    cmake.cache_clear()
    ninja.cache_clear()


def environment():
    """The caller's environment, without the modules of the caller's own Python."""
    env = dict(os.environ)
    env.pop("PYTHONPATH", None)
    return env


def module(python, name):
    """Command that runs a module of tools/; `python -m name` would search the current folder first."""
    return [python, PYTHON_ROOT, name]


def can_import(python, *names):
    """Returns True if an interpreter can import these modules, ignoring the current folder, which -c puts first."""
    script = f"import sys; sys.path[:] = filter(None, sys.path); import {', '.join(names)}"
    try:
        return subprocess.run([python, "-c", script], stderr=subprocess.DEVNULL, env=environment()).returncode == 0
    except OSError:
        return False


def captured(*command, **more):
    """Runs a program to its end. Returns the CompletedProcess, output as text; `more` goes to subprocess.run()."""
    command = [str(word) for word in command]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment(), **more)


def last_line(*outputs, otherwise="it said nothing"):
    """Last line of the first non-blank text of a program's `outputs`; `otherwise` if all are blank."""
    lines = next(filter(None, (output.strip().splitlines() for output in outputs)), [otherwise])
    return lines[-1].strip()


def git(root, *words):
    """Output of a git command in `root`; None if git fails or is not installed."""
    try:
        done = captured("git", "-C", root, *words)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def git_refusal(root):
    """Git's error in one line if it refuses to read the repository of `root`, such as one of another owner; else ""."""
    try:
        done = captured("git", "-C", root, "rev-parse", "--git-dir")
    except OSError as error:
        return f"git: {error.strerror}"
    return " ".join(done.stderr.split()) if done.returncode != 0 else ""


def _version(cmake_path):
    found = re.search(r"version (\d+)\.(\d+)", captured(cmake_path, "--version").stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
