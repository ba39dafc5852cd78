"""CMake, Ninja and the C++ compiler: the system's, or those that set-up put into the private folder."""

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
    """The command of the C++ compiler that CMake will take, [] for none. Throws Failure for a CXX that is not there."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    return named_compiler("CXX", "a C++ compiler") or ([found] if found else [])


def named_compiler(variable, kind):
    """The command that an environment variable names, as CMake splits it: a program, or a program and its flags, such as
    "ccache g++". [] for an empty variable. Throws Failure for a program that is not there."""
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
    """Path of a CMake that is new enough, or None."""
    for path in (shutil.which("cmake"), shutil.which("cmake", path=VENV / "bin")):
        if path and _version(path) >= LEAST_CMAKE:
            return path
    return None


@functools.cache
def ninja():
    return shutil.which("ninja") or shutil.which("ninja", path=VENV / "bin")


def forget():
    """To be called when set-up has installed tools."""
    cmake.cache_clear()
    ninja.cache_clear()


def environment():
    """The caller's environment, without the modules of the caller's own Python."""
    env = dict(os.environ)
    env.pop("PYTHONPATH", None)
    return env


def module(python, name):
    """The command that runs a module as `python -m name` does, but never the caller's, whose folder -m puts first."""
    return [python, PYTHON_ROOT, name]


def can_import(python, *names):
    """True where an interpreter has these modules. The caller's folder, which -c puts first, does not count."""
    script = f"import sys; sys.path[:] = filter(None, sys.path); import {', '.join(names)}"
    try:
        return subprocess.run([python, "-c", script], stderr=subprocess.DEVNULL, env=environment()).returncode == 0
    except OSError:
        return False


def captured(*command, **more):
    """A program that has ended, with what it wrote as text; `more` is of subprocess.run()."""
    command = [str(word) for word in command]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment(), **more)


def last_line(*outputs, otherwise="it said nothing"):
    """Of the first of a program's outputs that has any words."""
    lines = next(filter(None, (output.strip().splitlines() for output in outputs)), [otherwise])
    return lines[-1].strip()


def git(root, *words):
    """What git says of `root`; None where it refuses or is not there."""
    try:
        done = captured("git", "-C", root, *words)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def git_refusal(root):
    """Git's own words in one line where it does not read the repository of `root`, as one of another owner; else ""."""
    try:
        done = captured("git", "-C", root, "rev-parse", "--git-dir")
    except OSError as error:
        return f"git: {error.strerror}"
    return " ".join(done.stderr.split()) if done.returncode != 0 else ""


def _version(cmake_path):
    found = re.search(r"version (\d+)\.(\d+)", captured(cmake_path, "--version").stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
