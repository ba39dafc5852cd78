"""Runs the test programs of a build, and the tests of the tools; prints the total of their test cases as the last line.

A unit is a test program, or one version's tests in test_versions_<layer>. On the emulator, and under the sanitizers, a
unit is left out if kept.py has a result of it for the digest of everything that decides that result. A full run uses no
result that is older than its start. Tests that a person names always run; so do a GPU's, which are quick.
"""

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from . import build, digests, files, kept, linked, package, paths, race, say, test_programs
from .errors import Failure, UsageError
from .test_programs import Totals, Unit

_VERSIONS = "test_versions_"  # one for each layer
# Tests of the emulator's threads and faults: the only programs, besides the versions', to run in preset order.
_EMULATOR_TESTS = ("test_simt", "test_faults")
# Tests of code that works with streams: they run once more under the emulator's schedule late.
_STREAM_TESTS = ("test_kernel", "test_runtime", "test_nn", "test_train", "test_denoise", "test_policy")
_SANITIZERS = ("sanitize", "order")  # presets
_SANITIZER_BUILD = 25 * 60  # seconds for the full build of one of these presets on two cores
_SANITIZER_SLOWDOWN = 4  # a unit's time under a sanitizer, as a multiple of its time on the emulator
_FULL_RUN = paths.BUILD / "full_run_began"  # file with the start of the last full run, for --resume


def run(
    preset,
    flags=(),
    sanitize=False,
    full=False,
    resume=False,
    keep=False,
    stop_after=None,
    allow_untested=False,
    cmake_options=(),
    layers=(),
    part=None,
):
    """Builds and tests. Prints the totals as the last line; returns the exit code.

    flags: GoogleTest's flags, for all programs, for the version tests of `layers`, or for a `part` of a program. With
    flags these programs run, and no result is kept.
    stop_after: seconds from the environment's LADDER_STARTED (seconds since 1970), else from now. No version's unit
    begins later; one that is left out fails the run, unless allow_untested. A sanitizer's build or unit does not even
    begin if it would end later; leaving it out is no failure.
    keep: write kept.COPY."""
    session = _Session(
        kept.Results(_full_run_began(resume) if full and not flags else ""), _deadline(stop_after), cmake_options
    )
    if flags:
        for name in [preset, *(_SANITIZERS if sanitize else ())]:
            session.run_programs(name, [_VERSIONS + layer for layer in layers], part, flags)
        return session.close(allow_untested)

    on_gpu = preset in paths.CUDA_PRESETS
    if keep and on_gpu and not full:
        raise UsageError("test: nothing is kept of a GPU's tests: ./ladder test --keep --preset emulator")
    if on_gpu:
        session.run_programs(preset)
    if full or not on_gpu:
        session.results.say_if_of_another_compiler()
        for name in ["emulator" if full else preset, *(_SANITIZERS if sanitize or full else ())]:
            session.run_units(name)
        if keep:
            session.results.write_copy()
    session.totals.add(test_programs.run_python())
    session.totals.add(package.test(preset, cmake_options))
    if not (sanitize or full):
        say.line("not run: AddressSanitizer and preset order; ./ladder test --sanitize")
    return session.close(allow_untested)


def units(preset, programs, versions):
    """All units of a preset: each test_versions_<layer> gives a unit per version, any other program is one unit, and
    one more on the emulator if it works with streams."""
    found = [Unit(preset, _VERSIONS + v.layer, v.name) for v in versions if _VERSIONS + v.layer in programs]
    others = [program for program in programs if not program.startswith(_VERSIONS)]
    if preset == "order":
        others = [program for program in others if program in _EMULATOR_TESTS]
    if preset == "emulator":
        found += [Unit(preset, program, schedule="late") for program in others if program in _STREAM_TESTS]
    return [Unit(preset, program) for program in others] + found


class _Session:
    """One run of `./ladder test`: the totals so far, and the units that were left out."""

    def __init__(self, results, deadline, cmake_options):
        self.totals = Totals()
        self.results, self.deadline, self.cmake_options = results, deadline, cmake_options
        self.untested = []  # units for which there was no time

    def run_programs(self, preset, wanted=(), part=None, flags=()):
        """Builds and runs the programs `wanted` (default: all), or the `part` of one, whatever results are kept. Keeps
        no result."""
        if self._is_too_late(preset):
            return
        with self._failure_of(preset):
            build.build(preset, self.cmake_options, wanted, part=part)
            programs = test_programs.programs(preset, part)
            chosen = [Unit(preset, program, flags=tuple(flags)) for program in wanted or programs]
            self._run(preset, chosen, {}, programs, {})
            if preset == "emulator":
                race.show(self.totals.races, self.cmake_options, part)

    def run_units(self, preset):
        """Builds a preset and runs its units without a kept result. A sanitizer's preset builds only their programs."""
        if self._is_too_late(preset):
            return
        with self._failure_of(preset):
            build.build(preset, self.cmake_options, ("build.ninja",))
            links = linked.Build(build.folder(preset))
            build.build(preset, self.cmake_options, ("build.ninja", *links.generated_headers))
            chosen = units(preset, list(links.programs), digests.versions())
            before = links.digests(chosen)
            waiting, taken = self.results.divide(chosen, before)
            self._say_how_long(preset, waiting, len(chosen))
            if waiting or preset not in _SANITIZERS:
                wanted = sorted({unit.program for unit in waiting}) if preset in _SANITIZERS else ()
                build.build(preset, self.cmake_options, wanted)
            # A source that was saved during the build may be in one object and not in another: results are kept only of
            # units whose digest did not change.
            after = links.digests(waiting)
            settled = {unit: digest for unit, digest in after.items() if before.get(unit) == digest}
            self._run(preset, waiting, taken, links.programs, settled)
            if preset == "emulator":
                race.show(self.totals.races, self.cmake_options)

    def _is_too_late(self, preset):
        late = preset in _SANITIZERS and time.time() + _SANITIZER_BUILD > self.deadline
        if late:
            self.untested.append(Unit(preset, "all programs"))
        return late

    @contextlib.contextmanager
    def _failure_of(self, preset):
        """Returns a context that counts a Failure, such as a build's, as a failed test, so that the rest still runs."""
        try:
            yield
        except Failure as failure:
            say.line(failure)
            self.totals.add(Totals(failed=1, broken=[preset]))

    def _say_how_long(self, preset, waiting, num_units):
        known = [seconds for unit in waiting if (seconds := self.results.seconds(unit)) is not None]
        about = f", about {sum(known) / kept.cores() / 60:.0f} min" if known else ""
        unknown = f", {len(waiting) - len(known)} of unknown length" if len(waiting) > len(known) else ""
        say.line(
            f"{preset}: {num_units - len(waiting)} of {num_units} results are kept; {len(waiting)} to run{about}{unknown}"
        )

    def _run(self, preset, waiting, taken, programs, settled):
        """Runs the units `waiting`, and adds up their results and the kept ones, `taken` ({unit: Result}), by program.
        Keeps a new result under the unit's digest in `settled`, if it has one there."""
        # {program: [Totals, seconds, number of kept units, number of units]}
        sums = {unit.program: [Totals(), 0.0, 0, 0] for unit in [*taken, *waiting]}

        def add(unit, counts, seconds, num_kept):
            one = sums[unit.program]
            one[0].add(counts)
            one[1:] = [one[1] + seconds, one[2] + num_kept, one[3] + 1]

        for unit, result in taken.items():
            add(unit, Totals(result.passed, result.failed, result.skipped), result.seconds, 1)
        # A GPU is one machine: programs that share it disturb each other.
        workers = 1 if preset in paths.CUDA_PRESETS else kept.cores()
        estimates = {unit: self.results.seconds(unit) for unit in waiting}
        started = time.monotonic()
        with ThreadPoolExecutor(workers) as pool:
            runs = {pool.submit(self._run_unit, unit, programs[unit.program]): unit for unit in waiting}
            for done, future in enumerate(as_completed(runs), 1):
                unit, (counts, seconds) = runs[future], future.result()
                estimates.pop(unit)
                if counts is None:
                    self.untested.append(unit)
                    continue
                add(unit, counts, seconds, 0)
                if unit in settled:
                    self.results.keep(unit, settled[unit], counts, seconds)
                # Estimate a unit of unknown length by the mean of those that ran.
                each = (time.monotonic() - started) * workers / done
                left = sum(each if known is None else known for known in estimates.values()) / workers
                say.progress(f"{preset}: {done} of {len(waiting)} units, about {left / 60:.0f} min left of this build")
        for program, (counts, seconds, num_kept, num_units) in sums.items():
            if counts.passed + counts.failed + counts.skipped:
                of_kept = f", {num_kept} of {num_units} kept" if num_kept else ""
                say.line(f"{preset}/{program}: {counts} in {seconds:.1f} s{of_kept}")
            self.totals.add(counts)

    def _run_unit(self, unit, program):
        return (None, 0.0) if self._would_end_late(unit) else test_programs.run_one(unit, program)

    def _would_end_late(self, unit):
        """Returns whether a version's unit would begin after the deadline, or a sanitizer's would end after it."""
        if unit.preset in _SANITIZERS:
            plain = self.results.seconds(replace(unit, preset="emulator")) or 0
            return time.time() + (self.results.seconds(unit) or _SANITIZER_SLOWDOWN * plain) > self.deadline
        return bool(unit.version) and time.time() > self.deadline

    def close(self, allow_untested):
        totals = self.totals
        ran = totals.passed + totals.failed
        if self.untested:
            keys = ", ".join(sorted(unit.key for unit in self.untested))
            say.line(f"{len(self.untested)} units not tested, as the time was up: {keys}")
        if totals.broken:
            say.line(f"ended without a report: {', '.join(totals.broken)}")
        if ran + totals.skipped == 0:
            say.line("no test ran: the filter matches none")
        print(totals, flush=True)
        untested = not allow_untested and any(unit.preset not in _SANITIZERS for unit in self.untested)
        return 1 if totals.failed or totals.broken or untested or ran == 0 else 0


def _full_run_began(resume):
    """Returns the start of the full run, in UTC: that of the last one to `resume`, else now, which is written down."""
    if resume and _FULL_RUN.exists():
        return _FULL_RUN.read_text(encoding="utf-8").strip()
    began = kept.now()
    _FULL_RUN.parent.mkdir(parents=True, exist_ok=True)
    files.replace(_FULL_RUN, began + "\n")
    return began


def _deadline(stop_after):
    if stop_after is None:
        return float("inf")
    return float(os.environ.get("LADDER_STARTED") or time.time()) + stop_after
