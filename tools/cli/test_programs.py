"""The test programs of a build and the tests of the tools: which there are, one run of one, and the counts of it.

CTest could run the programs, but it neither counts the cases of a program, nor lets what runs finish when the time is up
(--stop-time kills it, as a failure), nor keeps by content what passed.
"""

import subprocess
import time
from dataclasses import dataclass, field
from xml.etree import ElementTree

from . import build, linked, paths, say, tools, wheels
from .errors import Failure

_TEST_SECONDS = 600  # of one Python test, which hangs after that


@dataclass
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broken: list = field(default_factory=list)  # programs that ended without a report
    races: list = field(default_factory=list)  # (program, suite), of versions whose failure is called a likely race

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.broken += other.broken
        self.races += other.races

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass(frozen=True)
class Unit:
    """One run of a test program: all of its cases, or those of one version."""

    preset: str
    program: str
    version: str = ""  # "conv3x3/fprop/v03_smem_tile", of test_versions_<layer>
    flags: tuple = ()
    schedule: str = ""  # the emulator's, for programs that do not set one

    @property
    def key(self):
        return " ".join(filter(None, (self.preset, self.program, self.version, self.schedule)))

    def gtest_flags(self):
        if not self.version:
            return list(self.flags)
        return [f"--gtest_filter={self.version.replace('/', '_')}.*", *self.flags]


def programs(preset, part=None):
    """{name: path} of the test programs of a configured build, or of the `part` of one."""
    if part:
        return {part.program: build.folder(preset) / part.target}
    found = linked.Build(build.folder(preset)).programs
    if not found:
        raise Failure(f"the {preset} build has no test program")
    return found


def run_one(unit, program):
    """(Totals, seconds). Prints the program's output only where something failed."""
    report = program.with_name(f"{unit.key.replace(' ', '.').replace('/', '_')}.xml")
    report.unlink(missing_ok=True)
    env = {**tools.environment(), "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
    if unit.schedule:
        env["LADDER_SCHEDULE"] = unit.schedule
    started = time.monotonic()
    process = subprocess.run(
        [program, f"--gtest_output=xml:{report}", "--gtest_brief=1", *unit.gtest_flags()],
        cwd=paths.ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    seconds = time.monotonic() - started
    totals = _counts(report)
    # A filter of a person's may match nothing in a program, but a version has tests.
    nothing_ran = unit.version and totals is not None and totals.passed + totals.failed + totals.skipped == 0
    ended_badly = (
        totals is not None and process.returncode != 0 and totals.failed == 0 and totals.passed + totals.skipped > 0
    )
    if totals is None or nothing_ran or ended_badly:
        say.line(f"{unit.key}: exit status {process.returncode} without a failed test or a whole report; its output:")
        print(process.stdout, end="", flush=True)
        return Totals(failed=1, broken=[unit.key]), seconds
    if totals.failed:
        print(process.stdout, end="", flush=True)
        totals.races = [(unit.program, suite) for suite in _likely_races(report)]
    return totals, seconds


def run_python():
    """The tests of tests/python, by a pytest of our own, on all cores; those of a file share what it prepares."""
    arguments = ["--numprocesses=auto", "--dist=loadfile", f"--timeout={_TEST_SECONDS}"]
    return run_pytest("tools", wheels.python_with(wheels.PYTEST, paths.SETUP_LOG), arguments)


def run_pytest(name, python, arguments=()):
    """Totals of pytest's, run by an interpreter that has it."""
    report = paths.BUILD / f"{name}_tests.xml"
    report.unlink(missing_ok=True)
    process = subprocess.run(
        [*tools.module(python, "pytest"), "--quiet", f"--junitxml={report}", *arguments],
        cwd=paths.ROOT,
        env=tools.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    totals = _counts(report)
    if process.returncode != 0:
        print(process.stdout, end="", flush=True)
        if totals is None or not totals.failed:
            totals = Totals(failed=1, broken=[f"{name} tests"])
    say.line(f"{name}: {totals}")
    return totals


def _likely_races(report):
    """Their suites, that is, versions; in preset order a version has problems of its own."""
    found = {
        case.get("classname"): None
        for case in _parsed(report).iter("testcase")
        if any("likely a race" in failure.get("message", "") for failure in case.iter("failure"))
    }
    return list(found)


def _parsed(report):
    return ElementTree.fromstring(report.read_text(encoding="utf-8", errors="replace"))  # a failure may print any bytes


def _counts(report):
    """Totals of a JUnit report, GoogleTest's or pytest's, or None if there is no whole one."""
    try:
        suites = list(_parsed(report).iter("testsuite"))
        ran, failed, errors, skipped, disabled = (
            sum(int(suite.get(key, 0)) for suite in suites)
            for key in ("tests", "failures", "errors", "skipped", "disabled")
        )
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    failed += errors
    return Totals(ran - failed - skipped - disabled, failed, skipped)
