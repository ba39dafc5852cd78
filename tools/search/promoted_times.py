"""Times of promoted versions, for comparison with a candidate's: those that runtime/promoted/<device>.txt names for the timed
problems. The build compiles such a version from the tree; it is then run and timed like a candidate."""

import contextlib
import json
import shlex
import subprocess
from collections import Counter

from cli import build, device, digests, paths, tools
from dev import launch_nvcc
from records import promotion
from registry import listing, selection

from . import sandbox

_MOST = 3  # versions to time with a candidate: those of the most problems
_SECONDS_TO_END = 10


def missing(place, problems):
    """[(listing.Version, its problems)] of promoted versions without a time in `place`, the most frequent first. A version
    that delegates to others is left out: it does not run alone."""
    table = promotion.table_of(paths.ROOT, device.slug())[2]
    labels = {
        problem: table[place.a_pass.path, problem][2]
        for problem in dict.fromkeys(problems)
        if problem not in place.promoted and (place.a_pass.path, problem) in table
    }
    alone = {version.label: version for version in place.a_pass.versions if not digests.hands_on(version.file)}
    counts = Counter(label for label in labels.values() if label in alone)
    return [
        (alone[label], [problem for problem in labels if labels[problem] == label])
        for label, _ in counts.most_common(_MOST)
    ]


@contextlib.contextmanager
def compiling(place, asked, source):
    """Has Ninja compile the versions that the candidate `source` will need, until this is left. Yields a function that waits
    for it. Compiles nothing while another ./ladder builds: compiled() does so later."""
    dtypes = asked.dtypes or listing.dtypes(source)
    lines = [[line] if selection.dtype_of(line) else [f"{line} {dtype}" for dtype in dtypes] for line in asked.timed]
    versions = missing(place, [line for some in lines for line in some]) if place.gpu else []
    if not versions:
        yield lambda: None
        return
    command = ["flock", "--nonblock", "--no-fork", build.lock_file(place.preset), tools.ninja(), "-C", place.folder]
    command += ["-k", "0", *(name for version, _ in versions for name in objects(place, version))]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with sandbox.started(command, env=tools.environment(), **quiet) as process:
        try:
            yield process.wait
        finally:
            process.terminate()  # Ninja then ends its compilers, which are in groups of their own
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_SECONDS_TO_END)


def compiled(place, version):
    """The version's object files, compiled; [] where it does not compile."""
    named = objects(place, version)
    return named if build.compiled(place.preset, named)[0] else []


def objects(place, version):
    """Object files in the build's folder: the version's, and those of kernels that its layer's passes share."""
    commands = json.loads((place.folder / build.COMMANDS.name).read_text(encoding="utf-8"))
    sources = {str(file) for file in (version.file, *(paths.ROOT / "dev" / place.a_pass.layer).glob("*.cu"))}
    return [launch_nvcc.after(shlex.split(one["command"]), "-o") for one in commands if one["file"] in sources]


def keep(place, version, problems, verdict):
    """Keeps the version's cold times in `place`; None for a problem that it was not timed on."""
    place.promoted.update(dict.fromkeys(problems))
    if verdict["verdict"] == "PASS":
        label = f"v{version.number:02d}"
        place.promoted.update({one["problem"]: (one["cold_us"], label) for one in verdict["times"] if one["us"]})


def fill(place, times):
    """Adds `promoted_us` and `promoted`, the version, to a candidate's times; None where there is no such time."""
    for one in times:
        one["promoted_us"], one["promoted"] = place.promoted.get(one["problem"]) or (None, None)
