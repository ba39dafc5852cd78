"""Runs every test program of a build, and the tests of the tools; adds up test cases into one closing line."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from . import build, paths, say, setup, tools
from .errors import Failure

# A program with many cases is cut into pieces (GoogleTest's sharding), so that the last one does not run alone.
_SHARDS = 4

# Under ThreadSanitizer only what is about threads: the emulator's machinery and its faults.
_TSAN_PROGRAMS = ("test_simt", "test_faults")


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
        if setup.ensure(preset):
            build.forget(preset)
        build.build(preset, cmake_options)
        totals.add(_run_preset(preset, flags))
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
    programs = sorted((build.folder(preset) / "tests").glob("test_*"))
    programs = [path for path in programs if path.is_file() and os.access(path, os.X_OK)]
    if preset == "tsan":
        programs = [path for path in programs if path.name.startswith(_TSAN_PROGRAMS)]
    if not programs:
        raise Failure(f"no test program in {build.folder(preset) / 'tests'}")
    totals = Totals()
    # A GPU is one machine: programs that share it disturb each other.
    workers = 1 if preset in paths.CUDA_PRESETS else min(os.cpu_count() or 1, 8)
    shards = 1 if workers == 1 else _SHARDS
    with ThreadPoolExecutor(workers) as pool:
        runs = [pool.submit(_run_shard, preset, program, flags, shard, shards)
                for program in programs for shard in range(shards)]
        for done in runs:
            totals.add(done.result())
    say.line(f"{preset}: {totals}")
    return totals


def _run_shard(preset, program, flags, shard, shards):
    """One program, or a part of its cases. Prints its output only where something failed."""
    report = program.with_name(f"{program.name}.{shard}.json")
    report.unlink(missing_ok=True)
    env = {
        **tools.environment(),
        "GTEST_TOTAL_SHARDS": str(shards),
        "GTEST_SHARD_INDEX": str(shard),
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }
    started = time.monotonic()
    process = subprocess.run(
        [program, f"--gtest_output=json:{report}", "--gtest_brief=1", *flags], cwd=paths.ROOT, env=env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    totals = _read(report)
    name = f"{preset}/{program.name}" + (f" {shard + 1}/{shards}" if shards > 1 else "")
    if totals is None or (process.returncode != 0 and totals.failed == 0 and totals.passed + totals.skipped > 0):
        say.line(f"{name}: exit status {process.returncode} and no complete report")
        print(process.stdout, end="", flush=True)
        return Totals(broken=[name], failed=1)
    if totals.failed:
        print(process.stdout, end="", flush=True)
    if totals.passed + totals.failed + totals.skipped:
        say.line(f"{name}: {totals} in {time.monotonic() - started:.1f} s")
    return totals


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
