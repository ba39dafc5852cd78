"""The two sides of a live comparison: source trees, and their benchmarks built with the same compilers and flags."""

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from cli import build, paths, run, say, tools
from cli.errors import Failure, UsageError
from registry import old_names

from . import trees

LOG = paths.PRIVATE / "compare.log"

# CMake variables that the other build copies from this tree's build.
_SHARED_SETTINGS = (
    "CMAKE_BUILD_TYPE CMAKE_CUDA_ARCHITECTURES CMAKE_CUDA_COMPILER CMAKE_CUDA_FLAGS CMAKE_CXX_COMPILER CMAKE_CXX_FLAGS "
    "CUDAToolkit_ROOT"
).split()


@dataclass(frozen=True)
class Side:
    name: str  # for people
    ref: str  # argument of --live
    commit: str
    dirty: bool
    fingerprint: str  # of the sources
    tree: Path
    programs: dict  # {layer: path of its benchmark}
    old_flags: dict = field(default_factory=dict)  # {flag: its name in this side's programs}, if different
    version: "int | None" = None  # version that this side runs, if the sides are two versions of one tree

    def flag(self, name):
        return self.old_flags.get(name, name)


def built(source, layers, percent):
    """Builds the benchmarks of `layers`. Returns Sides A, `source` (a trees.Source), and B, this tree. `percent` is the
    injected slowdown that B's name states, or None."""
    here = trees.find(paths.ROOT, str(paths.ROOT))
    other = trees.checkout(paths.ROOT, paths.PRIVATE, source)
    shared = [layer for layer in layers if (other / "bench" / f"bench_{layer}.cpp").exists()]
    if not shared:
        raise UsageError(f"{source.name} has no benchmark of {', '.join(layers)}")
    for layer in sorted(set(layers) - set(shared)):
        say.line(f"{layer} is left out: {source.name} has none")
    targets = [f"bench_{layer}" for layer in shared]

    build.build("cuda", targets=targets)
    _build_other(other, source.name, targets)

    def side(name, which, tree):
        programs = {layer: tree / "build" / "cuda" / f"bench_{layer}" for layer in shared}
        return Side(name, which.ref, which.commit, which.dirty, trees.fingerprint(tree), tree, programs)

    state = " with uncommitted changes" if here.dirty else ""
    slowed = f", slowed by {percent:g} % on purpose" if percent is not None else ""
    return side(source.name, source, other), side(f"this tree, {here.commit[:10]}{state}{slowed}", here, paths.ROOT)


def fitted(side):
    """Returns the side with old_flags filled in. Throws Failure if a program lacks a flag that a comparison needs."""
    old_flags = {}
    for program in side.programs.values():
        try:
            done = tools.captured(program, "--help")
        except OSError as error:
            raise Failure(f"{side.name}: cannot run {program}: {error.strerror}") from None
        for flag in ("--unchecked", "--inject-slowdown", "--baseline"):
            own = old_names.flag(flag, done.stdout + done.stderr)
            if own is None:
                raise Failure(f"{side.name} is too old to be compared live: its {program.name} has no {flag}")
            if own != flag:
                old_flags[flag] = own
    return replace(side, old_flags=old_flags)


def _build_other(tree, name, targets):
    folder = tree / "build" / "cuda"
    settings = [f"-D{key}={value}" for key, value in _settings(build.folder("cuda") / "CMakeCache.txt").items()]
    where = ["-S", str(tree), "-B", str(folder), "--preset", "cuda"]
    own = ["-DLADDER_TESTS=OFF", f"-DCMAKE_MAKE_PROGRAM={tools.ninja()}"]
    run.logged(f"configuring {name}", [tools.cmake(), *where, *own, *settings], LOG, tools.environment())
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(len(os.sched_getaffinity(0)))
    run.logged(f"building {name}", [tools.ninja(), "-C", str(folder), "-j", jobs, *targets], LOG, tools.environment())


def _settings(cache):
    """{name: value} of _SHARED_SETTINGS in a CMakeCache.txt."""
    found = re.findall(r"^(\w+):\w+=(.+)$", cache.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: value for name, value in found if name in _SHARED_SETTINGS}
