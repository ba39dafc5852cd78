"""Configures and builds a preset with CMake and Ninja."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass

from dev import launch_version
from dev.diagnostics import Diagnostics

from . import device, lock, partial, run, say, setup, tools
from .errors import Failure
from .paths import BUILD, CUDA_PRESETS, PRIVATE, ROOT

COMMANDS = ROOT / "compile_commands.json"  # symlink into the build folder of a preset of SEEN, for clangd
SEEN = ("cuda", "emulator")

_ABOUT_NINJA = re.compile(r"\[\d+/\d+\] |ninja: |FAILED: |-- ")
_LEFT_OUT = re.compile(r"\w+/\w+ v\d\d does not compile: ")  # printed by launch_version; Broken.line repeats it
_GLOBBED = re.compile(r"The following files were (added|removed):|  [+-]\S")  # CMake's check of CONFIGURE_DEPENDS globs
_NINJA_PROGRESS = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def folder(preset):
    return BUILD / preset


def lock_file(preset):
    """Locked by whoever builds."""
    return BUILD / f".{preset}.lock"


def program(preset, name, part=None):
    """Path of the executable `name` that build() makes, of the whole program or of its `part`."""
    return folder(preset) / (part.target if part else name)


@dataclass(frozen=True)
class Broken:
    """A version that does not compile and is missing from the programs that were built without it."""

    path: str  # "conv3x3/fprop"
    number: int
    line: str  # the message to print


def build(preset, options=(), targets=(), keep_going=False, part=None):
    """Brings build/<preset> up to date; fetches missing tools. `options` are -D arguments for CMake. Throws Failure.
    A `part` builds only that subset of its program's versions.

    Returns the Broken versions with `keep_going`; without `keep_going` a version that does not compile fails the build.
    """
    with _configured(preset, options):
        try:
            if part:
                _ninja(preset, ["build.ninja"], keep_going)  # an up-to-date build.ninja lists every version
                partial.write(part, folder(preset))
                _ninja(preset, [part.target], keep_going, part.ninja_file)
            else:
                _ninja(preset, targets, keep_going)
        finally:
            for line in _left_out(preset):
                say.line(line)
        return _broken(preset) if keep_going else []


def configure(preset):
    """Has CMake write build/<preset>; fetches missing tools."""
    with _configured(preset, ()):
        pass


@contextlib.contextmanager
def _configured(preset, options):
    fetched = setup.ensure(preset)
    with lock.held(lock_file(preset)):
        if fetched:
            forget(preset)  # another build may read build.ninja until the lock is ours
        _configure(preset, [*_own_architecture(preset), *options])
        yield


def compiled(preset, objects):
    """Builds these object files alone, fetching no tools. Returns (success, compiler output)."""
    with lock.held(lock_file(preset)):
        _configure(preset, _own_architecture(preset))
        done = tools.captured(tools.ninja(), "-C", folder(preset), *objects)
    lines = done.stdout.splitlines(keepends=True)
    words = Diagnostics(ROOT)
    lines = [words.shown(line) for line in lines]
    return done.returncode == 0, "".join(line for line in lines if not _ABOUT_NINJA.match(line))


def forget(preset):
    """Makes the next build reconfigure, after set-up changed what CMake would find."""
    (folder(preset) / "build.ninja").unlink(missing_ok=True)


def _own_architecture(preset):
    """CMake option that compiles for this machine's GPU architecture only; none without a GPU or where the
    environment's CUDAARCHS (CMake's own variable) lists architectures."""
    if preset not in CUDA_PRESETS or os.environ.get("CUDAARCHS"):
        return []
    architecture = device.architecture()
    return [f"-DCMAKE_CUDA_ARCHITECTURES={architecture}"] if architecture else []


def _configure(preset, options):
    # Ninja runs CMake again by itself when a CMake file has changed.
    if (folder(preset) / "build.ninja").exists() and _cached(preset, options):
        return
    command = [tools.cmake(), "-S", str(ROOT), "--preset", preset, f"-DCMAKE_MAKE_PROGRAM={tools.ninja()}", *options]
    run.logged(f"configuring {preset}", command, PRIVATE / f"configure-{preset}.log", tools.environment())
    if preset in SEEN and not COMMANDS.is_symlink():
        show_to_editors(preset)


def show_to_editors(preset):
    """Points the tree's compile_commands.json, which clangd reads, at the preset's."""
    aside = COMMANDS.with_name(f"{COMMANDS.name}.partial")
    aside.unlink(missing_ok=True)
    aside.symlink_to(f"{BUILD.name}/{preset}/{COMMANDS.name}")
    aside.replace(COMMANDS)


def _cached(preset, options):
    """Returns True if CMakeCache.txt has the value of each of these -D options."""
    cache = folder(preset) / "CMakeCache.txt"
    text = cache.read_text(encoding="utf-8") if cache.exists() else ""
    there = dict(re.findall(r"^(\w+):\w+=(.*)$", text, re.MULTILINE))
    return all(there.get(name) == value for name, _, value in (option[2:].partition("=") for option in options))


def _left_out(preset):
    """A line for each incomplete layer that CMake has left out."""
    file = folder(preset) / "left_out.txt"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _broken(preset):
    found = [
        json.loads(file.read_text(encoding="utf-8")) for file in folder(preset).rglob(f"v*{launch_version.SUFFIX}")
    ]
    return [
        Broken(each["path"], each["number"], each["line"])
        for each in sorted(found, key=lambda each: each["line"])
        if (ROOT / each["source"]).exists()
    ]


def _ninja(preset, targets, keep_going, file="build.ninja"):
    """Runs Ninja: prints compiler output as it arrives, and progress on one line that is overwritten."""
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    command = [tools.ninja(), "-C", str(folder(preset)), "-f", file, "-j", jobs]
    # Options come first: under POSIXLY_CORRECT a target ends them.
    command += [*(["-k", "0"] if keep_going else []), *targets]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**tools.environment(), "NINJA_STATUS": "[%f/%t] ", launch_version.VARIABLE: "1" if keep_going else "0"},
    )
    quiet = ("ninja: Entering directory", "ninja: no work to do", "-- ", "Preset CMake variables")
    interrupted = False
    words = Diagnostics(ROOT)
    try:
        for line in process.stdout:
            interrupted |= "interrupted by user" in line
            step = _NINJA_PROGRESS.match(line)
            if step and "globbed directories" in step[3]:
                continue  # CMake re-checks its globs before every build
            if _LEFT_OUT.match(line):
                continue
            if step:
                say.progress(f"building {preset}: {step[1]} of {step[2]}, {os.path.basename(step[3])}")
            elif (
                line.strip()
                and not line.startswith(quiet)
                and not _GLOBBED.match(line)
                and (shown := words.shown(line))
            ):
                say.close()
                print(shown, end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)  # a terminal's Ctrl-C has reached Ninja already
        raise
    finally:
        say.close()
        status = process.wait()
    if interrupted or status in (-signal.SIGINT, 128 + signal.SIGINT):
        raise KeyboardInterrupt  # SIGINT reached Ninja, not this process
    if status != 0:
        raise Failure(f"the {preset} build failed; the compiler's words are above")
