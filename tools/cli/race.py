"""What a test calls a likely race is run once more under ThreadSanitizer, which names the two lines."""

import os
import subprocess

from . import build, paths, say, test_programs, tools
from .errors import Failure

_PRESET = "tsan"
_BEGIN, _END = "WARNING: ThreadSanitizer", "SUMMARY: ThreadSanitizer"


def show(tests, cmake_options=(), part=None):
    """`tests`: (program, test), as in Totals.races, of whole programs or of the `part` of one."""
    for program, test in tests:
        say.line(f"{test}: a likely race; once more under ThreadSanitizer")
        try:
            build.build(_PRESET, cmake_options, (program,), part=part)
            path = next(path for path in test_programs.programs(_PRESET, part) if path.name == program)
        except (Failure, StopIteration) as failure:
            say.line(f"not run under ThreadSanitizer: {failure}")
            return
        done = subprocess.run(
            [path, f"--gtest_filter={test}", "--gtest_brief=1"],
            cwd=paths.ROOT,
            env=tools.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        say.close()
        print(report(done.stdout + done.stderr) or f"ThreadSanitizer saw no race in {test}", flush=True)


def report(said):
    """The first race: the two accesses, the kernel's own lines alone; empty where there is none."""
    begin, end = said.find(_BEGIN), said.find(_END)
    if begin < 0 or end < begin:
        return ""
    root = str(paths.ROOT) + os.sep
    lines = []
    for line in said[begin:end].splitlines()[1:]:
        if line.lstrip().startswith("#"):
            if root in line and root + "core" not in line:
                lines.append("    at " + line[line.index(root) + len(root) :].split(" ")[0])
        elif " of size " in line:
            lines.append("  " + line.strip().split(" by ")[0].split(" at ")[0])
    return "\n".join(["a data race:", *dict.fromkeys(lines)]) if lines else ""
