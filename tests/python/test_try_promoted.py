"""`./ladder try` on a GPU: times of promoted versions beside a candidate's. The judge and the compilers are fakes."""

import contextlib
import json
import subprocess
import sys
import time

import pytest

from cli import build, paths, try_
from registry import listing
from search import promoted_times, trial

PASS = "layer/forward"
TABLE = """\
# a comment
layer/forward  n1 c8 bf16   v02_second    1.00 us warm  2.00 cold  -  -  1234567
layer/forward  n2 c8 bf16   v02_second    1.00 us warm  2.00 cold  -  -  1234567
layer/forward  n3 c8 bf16   v01_first     1.00 us warm  2.00 cold  -  -  1234567
layer/forward  n4 c8 bf16   v03_delegate  1.00 us warm  2.00 cold  -  -  1234567
layer/forward  n5 c8 bf16   v09_gone      1.00 us warm  2.00 cold  -  -  1234567
layer/other    n6 c8 bf16   v01_first     1.00 us warm  2.00 cold  -  -  1234567
"""
SOURCE = "LADDER_VERSION(ladder::layer::Forward, {.dtypes = {ladder::Dtype::bf16}})\n"
LINES = tuple(f"n{n} c8" for n in range(1, 7))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A Workplace of a tree with three versions, in a cuda build whose compilers are not called."""
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    monkeypatch.setattr(build, "BUILD", tmp_path / "build")
    monkeypatch.setattr(trial.device, "slug", lambda: "card")
    folder = tmp_path / "dev" / "layer" / "forward"
    folder.mkdir(parents=True)
    (folder / "v01_first.cu").write_text(SOURCE)
    (folder / "v02_second.cu").write_text(SOURCE)
    (folder / "v03_delegate.cu").write_text("find_version(1);\n" + SOURCE)
    (folder.parent / "shared.cu").write_text("")
    (tmp_path / "runtime" / "promoted").mkdir(parents=True)
    (tmp_path / "runtime" / "promoted" / "card.txt").write_text(TABLE)
    a_pass = listing.Pass("layer", "forward", listing.versions(tmp_path, PASS))
    made = trial.Workplace(a_pass, "cuda")
    made.folder.mkdir(parents=True)
    commands = [
        {"file": str(file), "command": f"nvcc -c {file} -o {file.stem}.o"} for file in tmp_path.rglob("dev/**/*.cu")
    ]
    (made.folder / "compile_commands.json").write_text(json.dumps(commands))
    return made


def times(lines=LINES):
    """The times of a candidate, as the judge gives them; it passes over the last problem."""
    one = {"dtype": "bf16", "us": 3.0, "cold_us": 4.0, "baseline_us": 5.0, "baseline": "cuDNN 9"}
    found = [{**one, "problem": f"{line} bf16"} for line in lines]
    found[-1].update(us=None, cold_us=None)
    return found


def named(versions):
    return [(version.label, problems) for version, problems in versions]


def test_each_problem_has_its_promoted_version_and_the_most_frequent_comes_first(place):
    found = promoted_times.missing(place, [one["problem"] for one in times()])
    assert named(found) == [("v02_second", ["n1 c8 bf16", "n2 c8 bf16"]), ("v01_first", ["n3 c8 bf16"])]
    assert set(promoted_times.objects(place, found[0][0])) == {"v02_second.o", "shared.o"}


def test_without_a_table_of_the_device_there_is_none(place, monkeypatch):
    monkeypatch.setattr(trial.device, "slug", lambda: "another-card")
    assert promoted_times.missing(place, ["n1 c8 bf16"]) == []


def test_no_more_than_three_versions_are_timed_with_a_candidate(place, monkeypatch):
    monkeypatch.setattr(promoted_times, "_MOST", 1)
    assert named(promoted_times.missing(place, ["n3 c8 bf16", "n1 c8 bf16", "n2 c8 bf16"])) == [
        ("v02_second", ["n1 c8 bf16", "n2 c8 bf16"])
    ]


@pytest.fixture
def runs(place, monkeypatch):
    """Versions that were timed, and the problems of each: every one takes 2.5 us cold. v01 does not link alone."""
    done = []

    def judged(_, asked, scratch, limits, progress, with_baselines=False):
        assert not with_baselines
        assert asked.problems == asked.timed
        done[-1] += (asked.timed,)
        return {"verdict": "PASS", "times": [{"problem": line, "us": 2.0, "cold_us": 2.5} for line in asked.timed]}

    def linked(_, objects, *rest):
        done.append(tuple(name for name in objects if name.startswith("v")))
        return "it does not link: nothing" if "v01_first.o" in objects else ""

    monkeypatch.setattr(promoted_times.build, "compiled", lambda preset, objects: (True, ""))
    monkeypatch.setattr(trial, "_linked", linked)
    monkeypatch.setattr(trial, "_judged", judged)
    return done


def test_the_times_are_kept_for_later_candidates(place, runs):
    for _ in range(2):
        given = times()
        trial._time_promoted(place, given, trial.Limits(), lambda text: None)
        promoted_times.fill(place, given)
        assert [(one["promoted_us"], one["promoted"]) for one in given] == [(2.5, "v02")] * 2 + [(None, None)] * 4
    assert runs == [("v02_second.o", ("n1 c8 bf16", "n2 c8 bf16")), ("v01_first.o",)]


def test_a_promoted_version_that_does_not_pass_has_no_time(place, runs, monkeypatch):
    monkeypatch.setattr(trial, "_judged", lambda *rest: {"verdict": "UNTRUSTED", "times": times()})
    given = times()
    trial._time_promoted(place, given, trial.Limits(), lambda text: None)
    promoted_times.fill(place, given)
    assert {one["promoted_us"] for one in given} == {None}


@pytest.mark.parametrize("verdict, count", [("PASS", 1), ("FAIL", 0), ("UNTRUSTED", 0), ("SKIP", 0)])
def test_only_beside_a_candidate_that_passes(place, monkeypatch, verdict, count):
    timed = []
    monkeypatch.setattr(trial, "_compiled", lambda *rest: "")
    monkeypatch.setattr(trial, "_judged", lambda *rest: {"verdict": verdict, "reason": "", "times": times()})
    monkeypatch.setattr(trial, "_time_promoted", lambda *rest: timed.append(rest))
    monkeypatch.setattr(promoted_times, "compiling", lambda *rest: contextlib.nullcontext(lambda: None))
    given = trial.judge(place, SOURCE, trial.Asked(timed=LINES), trial.Limits())
    assert (given["verdict"], len(timed)) == (verdict, count)
    assert given["times"][0]["promoted"] is None


@pytest.fixture
def ninja(place, monkeypatch, tmp_path):
    """Stands in for Ninja: writes its arguments to a file, then sleeps; SIGTERM ends it with a mark in that file."""
    file = tmp_path / "ninja.py"
    file.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, signal, sys, time\n"
        f"said = pathlib.Path({str(tmp_path / 'said')!r})\n"
        "signal.signal(signal.SIGTERM, lambda *rest: (said.write_text(said.read_text() + ' ended'), sys.exit(1)))\n"
        "said.write_text(' '.join(sys.argv[3:]))\n"
        "time.sleep(60)\n"
    )
    file.chmod(0o755)
    monkeypatch.setattr(promoted_times.tools, "ninja", lambda: str(file))
    return tmp_path / "said"


def test_they_are_compiled_while_the_candidate_is_and_no_longer(place, ninja):
    with promoted_times.compiling(place, trial.Asked(timed=LINES), SOURCE):
        for _ in range(100):
            if ninja.exists() and ninja.read_text():
                break
            time.sleep(0.1)
        lock = ["flock", "--nonblock", str(build.lock_file("cuda")), "true"]
        assert subprocess.run(lock).returncode == 1, "no other build at the same time"
    flags, count, *names = ninja.read_text().split()
    assert (flags, count, names[-1]) == ("-k", "0", "ended")
    assert set(names[:-1]) == {"v01_first.o", "v02_second.o", "shared.o"}
    assert subprocess.run(lock).returncode == 0


@pytest.mark.parametrize(
    "asked, source",
    [
        (trial.Asked(timed=LINES, dtypes=("fp32",)), SOURCE),
        (trial.Asked(timed=("n6 c8",)), SOURCE),
        (trial.Asked(timed=LINES), "no registration"),
    ],
)
def test_nothing_is_compiled_where_no_version_is_promoted(place, ninja, asked, source):
    with promoted_times.compiling(place, asked, source) as wait:
        wait()
    assert not ninja.exists()


def test_the_emulator_has_no_times_of_promoted_versions(place, ninja):
    place.preset = "emulator"
    with promoted_times.compiling(place, trial.Asked(timed=LINES), SOURCE) as wait:
        wait()
    assert not ninja.exists()


def test_the_readable_verdict_shows_them():
    given = [{**one, "promoted_us": 2.5, "promoted": "v02"} for one in times(LINES[:2])]
    given[1].update(promoted_us=None, promoted=None)
    verdict = {"target": PASS, "node": 1, "verdict": "PASS", "reason": "", "times": given}
    assert try_._readable(verdict, "").splitlines()[1:] == [
        "  n1 c8 bf16: 4.00 us cold, 3.00 us warm; 2.50 us v02 (promoted); 5.00 us cuDNN 9",
        "  n2 c8 bf16: not for it; 5.00 us cuDNN 9",
    ]
