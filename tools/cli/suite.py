"""Runs the test programs of a build, and the tests of the tools; adds up test cases into one closing line.

On the emulator not everything is run every time. A version that is as it was at the last full run (digests.py) is left
alone; after a change of what all versions share it is tried on its ci problems under one schedule. A version that did
change, or is new, is tried on everything, with --sanitize under the sanitizers too. `--full` leaves nothing out, and
writes the digests that the next runs go by. On a GPU everything is quick, and run.
"""

import datetime
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from . import build, digests, files, package, paths, race, say, test_programs
from .errors import Failure
from .test_programs import Totals, Unit

_VERSIONS = "test_versions_"  # one for each layer
# Of the emulator's own threads and faults: what ThreadSanitizer is for.
_EMULATOR_TESTS = ("test_simt", "test_faults")
_SANITIZERS = ("sanitize", "tsan")  # presets
_STATE = paths.BUILD / "full_run.json"


@dataclass
class Selection:
    """Which versions get what, and why."""

    full: list  # versions to try on everything
    brief: list  # to try briefly
    untouched: list  # to leave alone
    shared_changed: bool
    last: digests.LastRun

    @staticmethod
    def of_changes(versions, last, of_version, shared):
        """By comparison with `last`; of_version(v) is the digest of v now, `shared` that of what all share."""
        changed = [v for v in versions if last.versions.get(v.name) != of_version(v)]
        same = [v for v in versions if v not in changed]
        shared_changed = shared != last.shared
        return Selection(changed, same if shared_changed else [], [] if shared_changed else same, shared_changed, last)


def run(
    preset, flags=(), sanitize=False, full=False, resume=False, stop_after=None, cmake_options=(), layers=(), part=None
):
    """Builds and tests. The last line printed is the totals; returns the exit code.

    `flags` are GoogleTest's, for every program of the build, or for those of the versions of `layers` alone, or for a
    `part` of one: then nothing is chosen by what changed. No version is taken up, and no sanitizer's build begun,
    `stop_after` seconds after the environment's LADDER_STARTED (seconds since 1970), or the start of this."""
    session = _Session(resume, _deadline(stop_after), cmake_options)
    versions = digests.versions()
    if flags:
        for name in [preset, *(_SANITIZERS if sanitize else ())]:
            wanted = tuple(_VERSIONS + layer for layer in layers)
            session.run_preset(
                name,
                lambda programs, name=name, wanted=wanted: [
                    Unit(name, p, flags=tuple(flags)) for p in programs if not wanted or p in wanted
                ],
                wanted,
                part,
            )
        return session.close()

    selection = Selection.of_changes(
        versions, digests.LastRun() if full else digests.last_run(), digests.of_version, digests.of_shared()
    )
    if preset in paths.CUDA_PRESETS:
        session.run_preset(preset, lambda programs: [Unit(preset, program) for program in programs])
        emulator = full
    else:
        emulator = True
    if full:
        session.open_state()
    if emulator:
        for name in ["emulator" if full else preset, *(_SANITIZERS if sanitize or full else ())]:
            session.run_preset(
                name, lambda programs, name=name: units(name, programs, selection), targets(name, selection)
            )
    session.totals.add(test_programs.run_python())
    session.totals.add(package.test(preset, cmake_options))
    if full:
        session.write_last_run(versions)
    elif emulator:
        _say_what_did_not_run(selection, sanitize)
    return session.close()


def targets(preset, selection):
    """What to build of a preset; nothing stands for everything, None for nothing to do."""
    if preset not in _SANITIZERS:
        return ()
    wanted = sorted({_VERSIONS + v.layer for v in selection.full})
    if selection.shared_changed:
        wanted += _EMULATOR_TESTS
        if preset == "sanitize":
            return ()
    return wanted or None


def units(preset, programs, selection):
    """What to run of a preset's programs, the longest first."""
    of_versions = {program for program in programs if program.startswith(_VERSIONS)}
    found = [Unit(preset, _VERSIONS + v.layer, v.name) for v in selection.full if _VERSIONS + v.layer in of_versions]
    others = [program for program in programs if program not in of_versions]
    if preset == "tsan":
        others = [program for program in others if program in _EMULATOR_TESTS]
    if preset in _SANITIZERS:
        others = others if selection.shared_changed else []
        return [Unit(preset, program) for program in others] + found
    brief = [Unit(preset, _VERSIONS + v.layer, v.name, brief=True) for v in selection.brief]
    return [Unit(preset, program) for program in others] + found + brief


class _Session:
    """One `./ladder test`: what ran so far, and what of it is kept for --resume."""

    def __init__(self, resume, deadline, cmake_options):
        self.totals = Totals()
        self.resume, self.deadline, self.cmake_options = resume, deadline, cmake_options
        self.left_out = []  # units for which there was no time
        self.failed_units = set()
        self.state = None  # key -> {"digest", "passed", "failed", "skipped", "seconds"}, with --full
        self.estimates = {}  # key -> seconds that it took before
        self.of_tree = self.of_shared = ""
        self.of_versions = {}

    def open_state(self):
        """Starts to keep what passed in build/full_run.json; with --resume, on top of what is there."""
        try:
            kept = json.loads(_STATE.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            kept = {}
        self.estimates = {key: unit["seconds"] for key, unit in kept.items()}
        self.state = kept if self.resume else {}
        self.of_tree, self.of_shared = digests.of_tree(), digests.of_shared()
        self.of_versions = {v.name: digests.of_version(v) for v in digests.versions()}

    def run_preset(self, preset, choose, wanted=(), part=None):
        """Builds the targets `wanted` and runs choose(programs); a build that fails counts, and others still run."""
        if wanted is None:
            return
        if preset in _SANITIZERS and time.time() > self.deadline:
            self.left_out.append(Unit(preset, "all programs"))
            return
        try:
            build.build(preset, self.cmake_options, wanted, part=part)
            programs = {path.name: path for path in test_programs.programs(preset, part)}
            chosen = choose(list(programs))
        except Failure as failure:
            say.line(failure)
            self.totals.add(Totals(failed=1, broken=[preset]))
            return
        self._run(preset, chosen, programs)
        if preset == "emulator":
            race.show(self.totals.races, self.cmake_options, part)

    def _run(self, preset, chosen, programs):
        # A GPU is one machine: programs that share it disturb each other.
        workers = 1 if preset in paths.CUDA_PRESETS else len(os.sched_getaffinity(0))
        of_program = {unit.program: [Totals(), 0.0, 0] for unit in chosen}
        waiting = [unit for unit in chosen if not self._take_from_state(unit, of_program)]
        started = time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            runs = {pool.submit(self._run_unit, unit, programs[unit.program]): unit for unit in waiting}
            for done, future in enumerate(as_completed(runs), 1):
                unit, (counts, seconds) = runs[future], future.result()
                if counts is None:
                    self.left_out.append(unit)
                    continue
                self._keep(unit, counts, seconds)
                sums = of_program[unit.program]
                sums[0].add(counts)
                sums[1] += seconds
                sums[2] += 1
                left = self._seconds_left(waiting, done, time.monotonic() - started)
                say.progress(f"{preset}: {done} of {len(waiting)} runs, about {left / 60:.0f} min left of this build")
        for program, (counts, seconds, num_runs) in of_program.items():
            if counts.passed + counts.failed + counts.skipped:
                runs_of_versions = f" ({num_runs} versions)" if program.startswith(_VERSIONS) and num_runs > 1 else ""
                say.line(f"{preset}/{program}{runs_of_versions}: {counts} in {seconds:.1f} s")
            self.totals.add(counts)

    def _run_unit(self, unit, program):
        if unit.version and time.time() > self.deadline:
            return None, 0.0
        return test_programs.run_one(unit, program)

    def _seconds_left(self, waiting, done, elapsed):
        """By what units took before, where that is known; else as long as those done, each."""
        known = [self.estimates.get(unit.key) for unit in waiting]
        if all(seconds is not None for seconds in known) and sum(known) > 0:
            share = sum(known[:done]) / sum(known)
        else:
            share = done / len(waiting)
        return elapsed / max(share, 1e-9) - elapsed

    def _take_from_state(self, unit, of_program):
        if self.state is None or not self.resume:
            return False
        kept = self.state.get(unit.key)
        if not kept or kept["digest"] != self._digest(unit) or kept["failed"] > 0:
            return False
        sums = of_program[unit.program]
        sums[0].add(Totals(kept["passed"], kept["failed"], kept["skipped"]))
        sums[1] += kept["seconds"]
        sums[2] += 1
        return True

    def _keep(self, unit, counts, seconds):
        if counts.failed or counts.broken:
            self.failed_units.add(unit)
        if self.state is None:
            return
        self.state[unit.key] = {
            "digest": self._digest(unit),
            "passed": counts.passed,
            "failed": counts.failed,
            "skipped": counts.skipped,
            "seconds": round(seconds, 1),
        }
        _STATE.parent.mkdir(parents=True, exist_ok=True)
        files.replace(_STATE, json.dumps(self.state, indent=1))

    def _digest(self, unit):
        return f"{self.of_shared} {self.of_versions[unit.version]}" if unit.version else self.of_tree

    def write_last_run(self, versions):
        """Versions all of whose runs passed go into tests/last_full_run.json; the shared digest if all the rest did."""
        wrong = {unit.version for unit in [*self.failed_units, *self.left_out]}
        of_versions = {unit.key for unit in self.failed_units if unit.version}
        unfinished = (
            any(not unit.version for unit in [*self.failed_units, *self.left_out])
            or set(self.totals.broken) - of_versions
        )
        if unfinished:
            say.line(
                "tests/last_full_run.json is left as it was: not every program ended well; --resume goes on from here"
            )
            return
        digests.write_last_run(
            datetime.date.today().isoformat(),
            self.of_shared,
            {v.name: self.of_versions[v.name] for v in versions if v.name not in wrong},
            {"passed": self.totals.passed, "failed": self.totals.failed, "skipped": self.totals.skipped},
        )
        say.line("wrote tests/last_full_run.json; commit it, and CI goes by it")

    def close(self):
        totals = self.totals
        ran = totals.passed + totals.failed
        if self.left_out:
            say.line("not run, as the time was up: " + ", ".join(sorted(unit.key for unit in self.left_out)))
        if totals.broken:
            say.line(f"ended without a report: {', '.join(totals.broken)}")
        if ran + totals.skipped == 0:
            say.line("no test ran: the filter matches none")
        print(totals, flush=True)
        return 1 if totals.failed or totals.broken or ran == 0 else 0


def _deadline(stop_after):
    if stop_after is None:
        return float("inf")
    return float(os.environ.get("LADDER_STARTED") or time.time()) + stop_after


def _say_what_did_not_run(selection, sanitize):
    since = f"since the full run of {selection.last.date}" if selection.last.date else "(there was no full run yet)"
    if selection.full:
        say.line(f"changed {since}, and tried on everything: {len(selection.full)} versions")
    if selection.brief:
        say.line(
            f"not run: all but the ci problems under one schedule, for {len(selection.brief)} versions unchanged {since}"
        )
    if selection.untouched:
        say.line(f"not run: the {len(selection.untouched)} versions unchanged {since}")
    if not sanitize:
        say.line("not run: AddressSanitizer and ThreadSanitizer; ./ladder test --sanitize runs them on what changed")
    if selection.brief or selection.untouched:
        say.line(
            "./ladder test --full runs everything for everything, in about an hour; one version by itself: "
            "./ladder test --gtest_filter='<layer>_<pass>_v<NN>_*'"
        )
