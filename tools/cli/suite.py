"""Runs every test program of a build, and the tests of the tools; adds up test cases into one closing line."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import build, paths, say, setup, tools
from .errors import Failure

# The program that outlasts all others is cut into pieces (GoogleTest's sharding, which children would inherit).
_SHARDS = {"test_versions": 8}

# Under ThreadSanitizer, which is slow, only what is about threads: the emulator's machinery, the planted faults, and a
# problem or two of every version, one of which clusters of blocks share.
_TSAN_FILTERS = {
    "test_simt": "*",
    "test_faults": "*",
    "test_versions": "*.ci_batch:*.edge_rgb_in_bias:*.edge_shared_4",
}


@dataclass
class Totals:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    broken: list = field(default_factory=list)  # programs that ended without a report

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.broken += other.broken

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def run(jobs, cmake_options=()):
    """Builds and tests each (preset, GoogleTest flags). The last line printed is the totals; returns the exit code."""
    totals = Totals()
    for preset, flags in jobs:
        try:
            if setup.ensure(preset):
                build.forget(preset)
            build.build(preset, cmake_options, _TSAN_FILTERS if preset == "tsan" else ())
            totals.add(_run_preset(preset, flags))
        except Failure as failure:  # the other builds still count
            say.line(failure)
            totals.add(Totals(failed=1, broken=[preset]))
    if not any(flags for _, flags in jobs):
        totals.add(_run_python_tests())

    ran = totals.passed + totals.failed
    if totals.broken:
        say.line(f"ended without a report: {', '.join(totals.broken)}")
    if ran + totals.skipped == 0:
        say.line("no test ran: the filter matches none")
    print(totals, flush=True)
    return 1 if totals.failed or totals.broken or ran == 0 else 0


def _run_preset(preset, flags):
    programs = _programs(preset)
    # A GPU is one machine: programs that share it disturb each other.
    workers = 1 if preset in paths.CUDA_PRESETS else len(os.sched_getaffinity(0))
    programs.sort(key=lambda program: program.name not in _SHARDS)  # the longest first
    totals = Totals()
    with ThreadPoolExecutor(workers) as pool:
        runs = {}
        for program in programs:
            shards = 1 if workers == 1 else _SHARDS.get(program.name, 1)
            runs[program] = [pool.submit(_run_shard, preset, program, flags, shard, shards) for shard in range(shards)]
        for program, parts in runs.items():
            of_program, seconds = Totals(), 0.0
            for part in parts:
                counts, took = part.result()
                of_program.add(counts)
                seconds += took
            if of_program.passed + of_program.failed + of_program.skipped:
                say.line(f"{preset}/{program.name}: {of_program} in {seconds:.1f} s")
            totals.add(of_program)
    return totals


def _programs(preset):
    """The test programs that CMake knows of, not those that an earlier build left behind."""
    listing = subprocess.run(
        [Path(tools.cmake()).with_name("ctest"), "--test-dir", build.folder(preset), "--show-only=json-v1"],
        stdout=subprocess.PIPE, text=True, env=tools.environment(),
    )
    try:
        # What was not built has no command: for ThreadSanitizer that is most.
        programs = [Path(test["command"][0]) for test in json.loads(listing.stdout)["tests"] if "command" in test]
    except (ValueError, KeyError):
        raise Failure(f"ctest lists no tests of {build.folder(preset)}") from None
    if preset == "tsan":
        programs = [program for program in programs if program.name in _TSAN_FILTERS]
    if not programs:
        raise Failure(f"the {preset} build has no test program")
    if preset == "tsan" and len(programs) < len(_TSAN_FILTERS):
        raise Failure(f"the tsan build lacks one of {', '.join(_TSAN_FILTERS)}")
    return programs


def _run_shard(preset, program, flags, shard, shards):
    """One program, or a part of its cases: (Totals, seconds). Prints its output only where something failed."""
    report = program.with_name(f"{program.name}.{shard}.json")
    report.unlink(missing_ok=True)
    if preset == "tsan" and not flags:
        flags = [f"--gtest_filter={_TSAN_FILTERS[program.name]}"]
    env = {**tools.environment(), "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}
    if shards > 1:
        env.update(GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(shard))
    started = time.monotonic()
    process = subprocess.run(
        [program, f"--gtest_output=json:{report}", "--gtest_brief=1", *flags], cwd=paths.ROOT, env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    seconds = time.monotonic() - started
    totals = _read(report)
    if totals is None or (process.returncode != 0 and totals.failed == 0 and totals.passed + totals.skipped > 0):
        name = f"{preset}/{program.name}" + (f" {shard + 1}/{shards}" if shards > 1 else "")
        say.line(f"{name}: exit status {process.returncode} without a failed test or a whole report; its output:")
        print(process.stdout, end="", flush=True)
        return Totals(failed=1, broken=[name]), seconds
    if totals.failed:
        print(process.stdout, end="", flush=True)
    return totals, seconds


def _read(report):
    """Counts of a GoogleTest JSON report, or None if there is no whole one."""
    try:
        suites = json.loads(report.read_text(encoding="utf-8"))["testsuites"]
    except (OSError, ValueError, KeyError):
        return None
    totals = Totals()
    for case in (case for suite in suites for case in suite["testsuite"]):
        if case.get("result") == "SKIPPED":
            totals.skipped += 1
        elif case.get("status") == "RUN":
            if case.get("failures"):
                totals.failed += 1
            else:
                totals.passed += 1
    return totals


def _run_python_tests():
    """The tests of the tools, in this process's Python."""
    program = paths.ROOT / "tools" / "run_python_tests.py"
    process = subprocess.run([sys.executable, program], cwd=paths.ROOT, env=tools.environment(),
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = process.stdout.strip().splitlines()
    try:
        counts = json.loads(lines[-1])
    except (IndexError, ValueError):
        print(process.stdout, end="", flush=True)
        return Totals(broken=["python tests"], failed=1)
    totals = Totals(counts["passed"], counts["failed"], counts["skipped"])
    if totals.failed:
        print("\n".join(lines[:-1]), flush=True)
    say.line(f"tools: {totals}")
    return totals
