"""Trial of a candidate, an untrusted version's file: compiles and runs it in a sandbox. A separate program, the judge,
has the reference and the inputs and gives the verdict."""

import contextlib
import json
import math
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cli import build, constructs, device, lock, paths, say, tools
from cli.errors import Failure, UsageError
from dev import launch_nvcc, launch_version

from . import log, memory, promoted_times, sandbox

_STUB = "bench/untrusted/candidate.cu.o"
_MOST_SOURCE = 1 << 20  # bytes
_GPU = threading.Lock()
_DRAWN = 12  # problems that the judge draws beside those of a set
_WITH_HEADERS = ("core", "dev")
_SET_UP = ("root", "cuda", "cuda-headers", "include")  # folders of ./ladder setup with libraries and headers
_ASKED = re.compile(r"\.(error_growth|least_arithmetic) = ([0-9.]+)|\.exact = (false)")


@dataclass(frozen=True)
class Limits:
    seconds: float = 300  # to compile and link a candidate, and as many again for its full run
    memory: int = 8 << 30  # bytes per process
    sandboxed: bool = True


@dataclass(frozen=True)
class Asked:
    """Problems to try a candidate on: problem lines, or sets."""

    name: str = ""  # of the selection: a problem line, or names of sets
    problems: tuple = ()
    sets: tuple = ("ci", "edge")
    dtypes: tuple = ()
    timed: tuple = ()  # problem lines to time, on a GPU only
    most_values: int = 0  # in all tensors of the timed problems together, beyond which some are left out; 0: no limit


@dataclass
class Workplace:
    """Commands that compile and link candidates of a pass, and baselines to judge them by. Made by prepare()."""

    a_pass: object  # listing.Pass
    preset: str
    compiler: list = field(default_factory=list)  # compile command of the pass's first version
    linker: list = field(default_factory=list)
    read: tuple = ()  # files and folders of a Python candidate's interpreter; its process has a /tmp too
    headers: object = None  # tempfile.TemporaryDirectory: copies of _WITH_HEADERS, headers alone
    # {(problem, dtype): (microseconds, library)} of the baselines timed so far, and each Asked that they cover.
    baselines: dict = field(default_factory=dict)
    with_baselines: set = field(default_factory=set)
    promoted: dict = field(default_factory=dict)  # {problem: (microseconds, "v12"), or None where there is no time}

    @property
    def folder(self):
        return build.folder(self.preset)

    @property
    def gpu(self):
        return self.preset in paths.CUDA_PRESETS


def prepare(a_pass, preset, words=(), read=()):
    """Builds the programs of a pass. Returns its Workplace, whose compiler gets the `words` too, and whose candidates may
    `read` files and folders. Throws Failure; UsageError for a pass without versions, whose compile command a candidate needs."""
    if not a_pass.versions:
        raise UsageError(f"{a_pass.path} has no version to compile a candidate like")
    program = f"try_{a_pass.layer}"
    build.build(preset, targets=[program, f"judge_{a_pass.layer}"])
    place = Workplace(a_pass, preset, read=tuple(read), headers=tempfile.TemporaryDirectory(prefix="ladder-headers-"))
    for name in _WITH_HEADERS:
        shutil.copytree(paths.ROOT / name, Path(place.headers.name, name), ignore=_no_headers)
    commands = json.loads((place.folder / build.COMMANDS.name).read_text(encoding="utf-8"))
    wanted = str(a_pass.versions[0].file)
    place.compiler = next(shlex.split(one["command"]) for one in commands if one["file"] == wanted) + list(words)
    done = tools.captured(tools.ninja(), "-C", place.folder, "-t", "commands", program)
    last = done.stdout.strip().splitlines()[-1]
    words = shlex.split(next(part for part in last.split(" && ") if f"-o {program}" in part))
    # Without the dependency file, which would be written into the build.
    place.linker = [word for word in words if not word.startswith("-Wl,--dependency-file")]
    return place


def _no_headers(folder, names):
    return [name for name in names if not name.endswith(".h") and not Path(folder, name).is_dir()]


def judge(place, source, asked, limits, progress=lambda text: None):
    """The verdict on a candidate's source, a dict (docs/try.md). Throws Failure if the judge fails."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="ladder-try-") as scratch,
        promoted_times.compiling(place, asked, source) as wait,
    ):
        progress("compiling")
        reason = _compiled(place, source, Path(scratch), limits)
        if reason:
            verdict = {"verdict": "FAIL", "reason": reason, "times": [], "compiled": False}
        else:
            with on_gpu() if place.gpu else contextlib.nullcontext():
                verdict = _judged(place, asked, Path(scratch), limits, progress, asked not in place.with_baselines)
                if place.gpu and verdict["verdict"] == "PASS":
                    wait()
                    _time_promoted(place, verdict["times"], limits, progress)
    verdict.setdefault("device", device.slug() if place.gpu else "emulator")
    verdict.update({name: say.harmless(verdict[name]) for name in ("reason", "plan") if name in verdict})
    verdict["wall_s"] = round(time.monotonic() - began, 3)
    promoted_times.fill(place, verdict["times"])
    return {**verdict, **sums(_with_baselines(place, asked, verdict))}


@contextlib.contextmanager
def on_gpu():
    """One candidate at a time, of this process's threads (without a word) and of other processes."""
    with _GPU, lock.held(paths.BUILD / ".try-gpu.lock"):
        yield


def _time_promoted(place, times, limits, progress):
    """Times the promoted versions of a candidate's timed problems, but for those that an earlier candidate had."""
    versions = promoted_times.missing(place, [one["problem"] for one in times if one["us"]])
    for version, problems in versions:
        progress(f"timing {version.label}, which is promoted")
        verdict = {"verdict": "SKIP"}  # of a version that does not link alone
        objects = promoted_times.compiled(place, version)
        with tempfile.TemporaryDirectory(prefix="ladder-promoted-") as scratch:
            if objects and not _linked(place, objects, Path(scratch), limits, limits.seconds):
                asked = Asked(problems=tuple(problems), timed=tuple(problems))
                verdict = _judged(place, asked, Path(scratch), limits, progress)
        promoted_times.keep(place, version, problems, verdict)


def _compiled(place, source, scratch, limits):
    """Compiles and links scratch/program. Returns "" or the reason of a failure."""
    if len(source.encode()) > _MOST_SOURCE:
        return f"its source is longer than a megabyte: {log.digested(source)}"
    if not place.gpu and (lacking := constructs.scan(source)):
        return f"it does not compile for the emulator: {constructs.summary(lacking)}"
    name = Path("dev", place.a_pass.path, "v99_candidate.cu")
    (scratch / name.parent).mkdir(parents=True)
    (scratch / name).write_text(source, encoding="utf-8")
    root = sandbox.SCRATCH if limits.sandboxed else scratch
    words = [word for word in place.compiler if not word.startswith("-Werror")]
    words = launch_nvcc.for_source(words, source) if place.gpu else [*words, f"-ffile-prefix-map={root}={paths.ROOT}"]
    words[words.index("-c") + 1] = str(root / name)
    words[words.index("-o") + 1] = str(root / "candidate.o")
    end = time.monotonic() + limits.seconds
    return _made("compile", words, place, scratch, limits, limits.seconds, _headers(place)) or _linked(
        place, [root / "candidate.o"], scratch, limits, end - time.monotonic()
    )


def _linked(place, objects, scratch, limits, seconds):
    """Links scratch/program of object files and the program without a candidate. Returns "" or the reason of a failure."""
    root = sandbox.SCRATCH if limits.sandboxed else scratch
    link = [part for word in place.linker for part in (map(str, objects) if word.endswith(_STUB) else [word])]
    link[link.index("-o") + 1] = str(root / "program")
    return _made("link", link, place, scratch, limits, seconds)


def _made(what, command, place, scratch, limits, seconds, headers=()):
    """Runs a compiler or linker, which writes to `scratch`, in the sandbox. Returns "" or the reason of a failure."""
    command = sandbox.command(
        command,
        memory=limits.memory,
        read={**_read_by(command, place), **dict(headers)},
        write={scratch: sandbox.SCRATCH},
        folder=place.folder,
        sandboxed=limits.sandboxed,
    )
    return reason_of(what, command, limits, seconds)


def reason_of(what, command, limits, seconds):
    """Runs a sandbox's command of a compiler or linker for so many seconds. Returns "" or the reason of a failure."""
    status, said = sandbox.run(command, max(0, seconds))
    if status is None:
        return f"it does not {what} within {limits.seconds:g} s"
    return f"it does not {what}: {launch_version.first_error(said)}" if status else ""


def _headers(place):
    """{folder: place in the sandbox} of the headers of core/ and dev/, without their sources."""
    return {Path(place.headers.name, name): paths.ROOT / name for name in _WITH_HEADERS}


def _read_by(command, place):
    """{place: place} that a compiler or linker reads: set-up's libraries, and files of the build that its command names,
    which are objects or a precompiled header."""
    named = [place.folder / word for word in command if not word.startswith("-")]
    files = [file for name in named for file in (name, Path(f"{name}.gch")) if place.folder in file.parents]
    folders = [paths.PRIVATE / name for name in _SET_UP]
    read = [*filter(Path.is_file, files), *filter(Path.exists, folders), *sandbox.outside(command, paths.ROOT)]
    return {one: one for one in read}


def _judged(place, asked, scratch, limits, progress, with_baselines=False):
    root = sandbox.SCRATCH if limits.sandboxed else scratch
    child = sandbox.command(
        [root / "program", place.a_pass.path],
        memory=limits.memory,
        read={scratch / "program": root / "program", **_libraries(), **sandbox.besides(place.read)},
        candidate=True,
        tmp=bool(place.read),
        gpu=place.gpu,
        sandboxed=limits.sandboxed,
    )
    words = [place.folder / f"judge_{place.a_pass.layer}", "--pass", place.a_pass.path, *_most(place.a_pass)]
    words += ["--seconds", limits.seconds]
    for option, values in (
        ("problem", [line for line in asked.problems if not place.gpu or line not in asked.timed]),
        ("set", () if asked.problems else asked.sets),
        ("dtype", asked.dtypes),
        ("time", asked.timed if place.gpu else ()),
    ):
        words += [word for value in values for word in (f"--{option}", value)]
    words += [] if asked.problems else ["--draw", _DRAWN]
    words += ["--most-values", asked.most_values] if asked.most_values else []
    words += ["--baseline"] if with_baselines else []
    with sandbox.started(
        [*words, "--", *child],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=tools.environment(),
    ) as process:
        # On a GPU the judge starts libraries, too.
        with memory.limited(process.pid, math.inf if place.gpu else limits.memory) as exceeded:
            verdict = said_by(process, progress)  # the judge enforces the time limit
    if exceeded.is_set() and verdict["verdict"] == "FAIL":
        verdict["reason"] = "it takes more memory than it may have"
    return verdict


def said_by(process, progress):
    """Reads the judge's lines of JSON, reports progress, and returns the last line, the verdict."""
    verdict = {}
    for line in process.stdout:
        said = json.loads(line)
        if "progress" in said:
            progress(said["progress"])
        else:
            verdict = said
    said = process.stderr.read()
    if process.wait() == 2:
        raise UsageError(tools.last_line(said))
    if not verdict:
        raise Failure(f"the judge failed: {tools.last_line(said)}")
    return verdict


def _libraries():
    """{folder: folder} of the libraries that set-up unpacked, which programs may be linked with."""
    root = paths.PRIVATE / "root"
    return {root: root} if root.exists() else {}


def _most(a_pass):
    """Arguments of the judge that limit a candidate's tolerances to those of the pass's versions."""
    found = {"error_growth": [1.0], "least_arithmetic": [1.0]}
    inexact = False
    for version in a_pass.versions:
        for name, value, is_inexact in _ASKED.findall(version.file.read_text(encoding="utf-8")):
            if name:
                found[name].append(float(value))
            inexact = inexact or bool(is_inexact)
    words = ["--error-growth", max(found["error_growth"]), "--least-arithmetic", min(found["least_arithmetic"])]
    return [*words, "--inexact"] if inexact else words


def _with_baselines(place, asked, verdict):
    """The verdict's times. Keeps their baselines for later candidates; fills in missing ones from earlier."""
    times = verdict["times"]
    if times and verdict["verdict"] == "PASS":
        place.with_baselines.add(asked)
    for one in times:
        key = one["problem"], one["dtype"]
        if one["baseline"]:
            place.baselines[key] = one["baseline_us"], one["baseline"]
        one["baseline_us"], one["baseline"] = place.baselines.get(key, (None, None))
    return times


def sums(times):
    """Sums of the times over all timed problems, for the log; None if the candidate skipped one of them."""
    sums = {name: _sum(one[name] for one in times) for name in ("us", "cold_us", "baseline_us")}
    timed = sums["baseline_us"] and sums["cold_us"]
    return {
        **sums,
        "baseline": times[0]["baseline"] if timed else None,
        "ratio": sums["baseline_us"] / sums["cold_us"] if timed else None,
    }


def _sum(values):
    values = list(values)
    return sum(values) if values and None not in values else None
