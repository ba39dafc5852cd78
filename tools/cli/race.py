"""Runs a test that reported a likely race once more under ThreadSanitizer, which names the two source lines."""

import os
import subprocess

from . import build, paths, say, test_programs, tools
from .errors import Failure

_PRESET = "tsan"
_BEGIN, _END = "WARNING: ThreadSanitizer", "SUMMARY: ThreadSanitizer"


def show(races, cmake_options=(), part=None):
    """Reruns `races`, (program, suite) of Totals.races, with full programs or with the `part` of one program."""
    for program, suite in races:
        say.line(f"{suite}: a likely race; once more under ThreadSanitizer")
        try:
            build.build(_PRESET, cmake_options, (program,), part=part)
            path = test_programs.programs(_PRESET, part)[program]
        except (Failure, KeyError) as failure:
            say.line(f"not run under ThreadSanitizer: {failure}")
            return
        done = subprocess.run(
            [path, f"--gtest_filter={suite}.*", "--gtest_brief=1"],
            cwd=paths.ROOT,
            env=tools.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        say.close()
        print(report(done.stdout + done.stderr) or f"ThreadSanitizer saw no race in {suite}", flush=True)


def report(said):
    """The first race in ThreadSanitizer's output: its two accesses with call stacks up to the kernel's line; or ""."""
    begin, end = said.find(_BEGIN), said.find(_END)
    if begin < 0 or end < begin:
        return ""
    root = str(paths.ROOT) + os.sep
    lines = []
    within = False  # between an access and the kernel's line
    for line in said[begin:end].splitlines():
        if " of size " in line:
            lines.append("  " + line.strip().split(" at 0x")[0])
            within = True
        elif within and root in line and root + "core" not in line:
            place = line[line.index(root) + len(root) :].split(" ")[0]
            lines.append("    at " + place)
            within = ".cu:" not in place
    return "\n".join(["a data race:", *lines]) if lines else ""
