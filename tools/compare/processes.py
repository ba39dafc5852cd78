"""Processes of a live comparison: runs the benchmarks of both sides in turn."""

import filecmp
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from cli import say, tools
from cli.errors import Failure, UsageError
from cli.files import shown
from records import record_files
from registry import listing

# Attempts in all for a process whose timer fails its calibration.
_TRIES = 3

# Text of the file in place of a record, if a side has none of a Job's versions.
_NOTHING = "null"


@dataclass(frozen=True)
class Job:
    """Command line of a benchmark: a pass, its versions, and flags that select problems and a dtype."""

    path: str  # "conv3x3/fprop"
    versions: tuple  # empty for all
    arguments: tuple


class Processes:
    """Runs Jobs of both sides, keeps their records in `folder`, shows progress."""

    def __init__(self, both, options, folder):
        self.sides, self.options, self.folder = both, options, folder
        self.programs = {
            (at, layer): _private_copy(path, folder, at)
            for at, side in enumerate(both)
            for layer, path in side.programs.items()
        }
        self.done = self.total = self.ran = 0
        self.seconds = 0.0

    def check(self, jobs):
        """Checks the values of both sides. Returns {key: reason} of the failures."""
        self.total += 2 * len(jobs)
        failed = {}
        for number, job in enumerate(jobs):
            for at in (0, 1):
                file = self.folder / f"check-{number:02d}-{'AB'[at]}.json"
                self._run(at, job, ["--check"], file, "checking", allowed=(0, 1))
                for result in _results(file):
                    if result.status == "FAIL":
                        failed.setdefault(self._key(result), f"FAIL in {'AB'[at]}: {result.reason}")
        return failed

    def repetitions(self, stage, jobs):
        """Times both sides. Returns {key: (A's results, B's results)}, lists of one Result or None per repetition."""
        count = self.options.repetitions
        self.total += 2 * len(jobs) * count
        found = {}
        for repetition in range(count):
            for number, job in enumerate(jobs):
                files = [self.folder / f"{stage}-{number:02d}-{repetition + 1:03d}-{side}.json" for side in "AB"]
                whole = all(file.exists() for file in files)
                for at in (0, 1) if repetition % 2 == 0 else (1, 0):
                    what = f"{stage} run, repetition {repetition + 1} of {count}"
                    if whole:
                        self._step(what, 0.0)
                        continue
                    flags = ["--unchecked", "--samples", str(self.options.samples)]
                    if self.options.inject_slowdown is not None:
                        percent = (0, self.options.inject_slowdown)[at]
                        flags += [self.sides[at].flag("--inject-slowdown"), f"{percent:g}"]
                    self._run(at, job, flags, files[at], what)
                for at, file in enumerate(files):
                    for result in _results(file):
                        found.setdefault(self._key(result), ([None] * count, [None] * count))[at][repetition] = result
        return found

    def _key(self, result):
        """Key of a result, equal on both sides: B's version number replaces A's if the sides are two versions."""
        device, path, version, problem = result.key
        return device, path, self.sides[1].version or version, problem

    def _run(self, at, job, flags, file, what, allowed=(0,)):
        side, (layer, a_pass) = self.sides[at], job.path.split("/")
        there = {version.number for version in listing.versions(side.tree, job.path)}
        versions = [side.version] if side.version else [number for number in job.versions if number in there]
        started = time.monotonic()
        if not there or (job.versions and not versions):
            file.write_text(_NOTHING, encoding="utf-8")
        elif not (file.exists() and what == "checking"):
            what_versions = ("--version", ",".join(map(str, versions)) or "all")
            same = (side.flag("--baseline"), "none", "--seed", str(self.options.seed))
            command = [str(self.programs[at, layer]), "--pass", a_pass, *what_versions, *job.arguments, *flags, *same]
            for _ in range(_TRIES):
                _process(command, side, file, self.folder / "log", allowed)
                if not (_record(file).calibration or {}).get("failure"):
                    break
        self._step(what, time.monotonic() - started)

    def _step(self, what, seconds):
        self.done += 1
        if seconds > 0:
            self.ran += 1
            self.seconds += seconds
        left = ""
        if self.ran:
            minutes = self.seconds / self.ran * (self.total - self.done) / 60
            left = f", {minutes:.0f} min left" if minutes >= 1 else f", {60 * minutes:.0f} s left"
        say.progress(f"{say.bar(self.done, self.total)} {what}, process {self.done} of {self.total}{left}")


def _process(command, side, file, log, allowed):
    """Runs a benchmark once and renames its complete record to `file`. Throws Failure with the program's last line."""
    aside = file.with_suffix(".new")
    for left_over in (aside, aside.with_name(aside.name + ".partial")):
        left_over.unlink(missing_ok=True)
    command = [*command, "--record", str(aside)]
    done = tools.captured(*command, cwd=side.tree, stdin=subprocess.DEVNULL)
    with open(log, "a", encoding="utf-8") as out:
        out.write(f"\n$ {shlex.join(command)}\n{done.stdout}{done.stderr}")
    if done.returncode not in allowed or not aside.exists():
        wrong = tools.last_line(done.stdout + done.stderr, otherwise="no word")
        raise Failure(f"{side.name}: {Path(command[0]).name}, exit status {done.returncode}: {wrong}")
    aside.replace(file)


def _record(file):
    """Loads the record of one process, with the device that the program found in place of the folder's name."""
    try:
        record = record_files.load(file)
    except record_files.BadRecord as error:
        raise Failure(str(error)) from None
    if record is None:
        raise Failure(f"{file} is no record")
    record.device = record.environment["device"].get("slug", record.device)
    return record


def _results(file):
    return [] if file.read_text(encoding="utf-8") == _NOTHING else _record(file).results


def _private_copy(program, folder, at):
    """Copies a program, to keep it unchanged by builds. Throws UsageError if a resumed run's copy differs from it."""
    copy = folder / f"{'AB'[at]}_{program.name}"
    if copy.exists():
        if not filecmp.cmp(copy, program, shallow=False):
            raise UsageError(f"--resume {shown(folder)}: {program} is no longer the program that it began with")
    else:
        shutil.copy2(program, copy)
    return copy
