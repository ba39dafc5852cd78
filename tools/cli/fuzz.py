"""`./ladder test --fuzz`: libFuzzer on every reader of files that somebody else wrote, under AddressSanitizer and
UndefinedBehaviorSanitizer. What a program finds is kept for its next run; the seeds are tests/fuzz/seeds/<name>."""

import subprocess

from . import build, files, paths, say, setup, tools
from .errors import Failure
from .test_programs import Totals

PRESET, TARGET = "fuzz", "ladder_fuzz"
SECONDS = 10  # each
_SEEDS = paths.ROOT / "tests" / "fuzz" / "seeds"
# Megabytes in all and of one allocation, and seconds of one input: more is a fault.
_LIMITS = ["-rss_limit_mb=2048", "-malloc_limit_mb=512", "-timeout=10"]


def run(seconds, cmake_options):
    """The exit status: 1 if any program found a fault."""
    if not setup.program("clang++", "clang"):
        raise Failure("no clang++, which has libFuzzer: ./ladder setup --dev")
    build.build(PRESET, cmake_options, [TARGET])
    folder = build.folder(PRESET) / "tests" / "fuzz"
    programs = sorted(path for path in folder.glob("fuzz_*") if path.is_file())
    totals = Totals()
    for program in programs:
        totals.add(_one(program, seconds))
    print(totals)
    return 0 if programs and not totals.failed else 1


def _one(program, seconds):
    found = program.with_name(f"found_{program.name}")
    found.mkdir(exist_ok=True)
    where = [found, _SEEDS / program.name.removeprefix("fuzz_")]
    flags = [f"-max_total_time={seconds}", f"-artifact_prefix={found.parent}/", *_LIMITS]
    done = subprocess.run(
        [program, *where, *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=tools.environment(),
    )
    if done.returncode == 0:
        say.line(f"{program.name}: {tools.last_line(done.stdout)}")
        return Totals(passed=1)
    print(done.stdout, end="", flush=True)
    say.line(f"{program.name}: a fault; the file that is named above brings it back: {files.shown(program)} FILE")
    return Totals(failed=1, broken=[program.name])
