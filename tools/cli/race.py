"""Runs a test that reported a likely race once more in preset order, which names the two source lines."""

import re
import subprocess

from . import build, say, test_programs, tools
from .errors import Failure
from .paths import ROOT

PRESET = "order"
_RACE = re.compile(r"\S+:\d+: (?:in \S+: )?a race: .*? \[schedule [^\]]*\]")


def show(races, cmake_options=(), part=None):
    """Reruns `races`, (program, suite) of Totals.races, with full programs or with the `part` of one program."""
    for program, suite in races:
        say.line(f"{suite}: a likely race; once more in preset {PRESET}")
        try:
            build.build(PRESET, cmake_options, (program,), part=part)
            path = test_programs.programs(PRESET, part)[program]
        except (Failure, KeyError) as failure:
            say.line(f"not run in preset {PRESET}: {failure}")
            return
        done = subprocess.run(
            [path, f"--gtest_filter={suite}.*", "--gtest_brief=1"],
            cwd=ROOT,
            env=tools.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        say.close()
        print(report(done.stdout) or f"preset {PRESET} sees no race in {suite}", flush=True)


def report(said):
    """The first race in a test program's output, a line for each of its parts; or ""."""
    race = _RACE.search(said)
    return race[0].replace("; ", "\n  ") if race else ""
