"""Configures and builds a preset with CMake and Ninja."""

import os
import re
import subprocess
import sys

from . import lock, run, say, tools
from .errors import Failure
from .paths import BUILD, PRIVATE, ROOT

_NINJA_PROGRESS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def folder(preset):
    return BUILD / preset


def build(preset, options=(), targets=()):
    """Brings build/<preset> up to date; `options` are -D arguments for CMake. Throws Failure."""
    with lock.held(BUILD / f".{preset}.lock"):
        _configure(preset, options)
        _ninja(preset, targets)


def forget(preset):
    """Has the next build configure anew: set-up has changed what CMake would find."""
    (folder(preset) / "build.ninja").unlink(missing_ok=True)


def _configure(preset, options):
    # Ninja runs CMake again by itself when a CMake file has changed.
    if (folder(preset) / "build.ninja").exists() and not options:
        return
    command = [tools.cmake(), "-S", str(ROOT), "--preset", preset, f"-DCMAKE_MAKE_PROGRAM={tools.ninja()}", *options]
    run.logged(f"configuring {preset}", command, PRIVATE / f"configure-{preset}.log", tools.environment())


def _ninja(preset, targets):
    """Shows compilers' words as they come, and Ninja's progress on one line."""
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    command = [tools.ninja(), "-C", str(folder(preset)), "-j", jobs, *targets]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**tools.environment(), "NINJA_STATUS": "[%f/%t] "},
    )
    quiet = ("ninja: Entering directory", "ninja: no work to do", "-- ", "Preset CMake variables")
    try:
        for line in process.stdout:
            step = _NINJA_PROGRESS.match(line)
            if step and "globbed directories" in step[3]:
                continue  # CMake's look at the folders before every build
            if step:
                say.progress(f"building {preset}: {step[1]} of {step[2]}, {os.path.basename(step[3])}")
            elif line.strip() and not line.startswith(quiet):
                say.close()
                print(line, end="", file=sys.stderr, flush=True)
    finally:
        say.close()
        status = process.wait()
    if status != 0:
        raise Failure(f"the {preset} build failed; the compiler's words are above")
