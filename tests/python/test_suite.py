"""The units that `./ladder test` runs and counts; test_kept_results.py is about the results that it keeps."""

import json
import shutil
import time

import pytest

from cli import digests, kept, linked, race, suite, test_programs, verbs

_NAIVE, _TILE = (digests.Version("sum", f"sum/forward/{name}") for name in ("v01_naive", "v02_tile"))
_PROGRAMS = ["test_check", "test_simt", "test_versions_sum"]


def test_versions_are_units_and_other_programs_are_run_whole():
    assert [
        unit.key for unit in suite.units("emulator", _PROGRAMS, [_NAIVE, _TILE, digests.Version("max", "max/f/v01")])
    ] == [
        "emulator test_check",
        "emulator test_simt",
        "emulator test_versions_sum sum/forward/v01_naive",
        "emulator test_versions_sum sum/forward/v02_tile",
    ]
    found = suite.units("order", _PROGRAMS, [_NAIVE])
    assert [unit.key for unit in found] == ["order test_simt", "order test_versions_sum sum/forward/v01_naive"]
    assert found[1].gtest_flags() == ["--gtest_filter=sum_forward_v01_naive.*"]


class FakeBuild:
    """A stand-in for build, linked and the programs: everything that was built and run, in this order."""

    def __init__(self, folder, monkeypatch):
        self.built, self.ran, self.failing, self.text = [], [], set(), "1"
        self.programs = {name: folder / name for name in _PROGRAMS}
        self.generated_headers = ["generated/build_info.h"]
        monkeypatch.setenv("LADDER_CACHE", str(folder / "cache"))
        monkeypatch.setattr(suite.build, "build", lambda preset, _, wanted, **__: self.built.append((preset, wanted)))
        monkeypatch.setattr(linked, "Build", lambda _: self)
        monkeypatch.setattr(digests, "versions", lambda: [_NAIVE, _TILE])
        monkeypatch.setattr(test_programs, "run_one", self.run_one)
        monkeypatch.setattr(test_programs, "programs", lambda *_: self.programs)
        monkeypatch.setattr(race, "show", lambda *_: None)
        self.copy = folder / "kept_results.json"

    def digests(self, units):
        return dict.fromkeys(units, self.text)

    def run_one(self, unit, _):
        self.ran.append(unit.key)
        failed = unit.key in self.failing
        return suite.Totals(passed=not failed, failed=failed, broken=[unit.key] if failed else []), 2.0

    def run(self, preset, since="", deadline=float("inf"), allow_untested=False):
        """(exit code, sorted keys of the units that ran)."""
        self.ran, self.built = [], []
        session = suite._Session(kept.Results(since, self.copy), deadline, ())
        session.run_units(preset)
        return session.close(allow_untested), sorted(self.ran)


@pytest.fixture
def fake_build(tmp_path, monkeypatch):
    return FakeBuild(tmp_path, monkeypatch)


_ORDER = [
    "order test_simt",
    "order test_versions_sum sum/forward/v01_naive",
    "order test_versions_sum sum/forward/v02_tile",
]


def test_a_unit_runs_once_and_what_is_kept_counts(fake_build, capsys):
    assert fake_build.run("order") == (0, _ORDER)
    assert fake_build.built[-1] == ("order", ["test_simt", "test_versions_sum"])
    capsys.readouterr()
    assert fake_build.run("order") == (0, [])
    assert fake_build.built == [("order", ("build.ninja",)), ("order", ("build.ninja", "generated/build_info.h"))]
    said = capsys.readouterr()
    assert said.out == "3 passed, 0 failed, 0 skipped\n"
    assert "order: 3 of 3 results are kept; 0 to run" in said.err
    assert "order/test_versions_sum: 2 passed, 0 failed, 0 skipped in 4.0 s, 2 of 2 kept" in said.err
    fake_build.text = "2"
    assert fake_build.run("order") == (0, _ORDER)


def test_a_failure_runs_again_until_it_passes(fake_build):
    fake_build.failing = {_ORDER[1]}
    assert fake_build.run("order") == (1, _ORDER)
    assert fake_build.run("order") == (1, [_ORDER[1]])
    fake_build.failing = set()
    assert fake_build.run("order") == (0, [_ORDER[1]])
    assert fake_build.run("order") == (0, [])


def test_a_source_that_is_saved_during_a_build_keeps_nothing(fake_build, monkeypatch):
    texts = iter("ab")
    monkeypatch.setattr(fake_build, "digests", lambda units, text=None: dict.fromkeys(units, next(texts)))
    assert fake_build.run("order") == (0, _ORDER)
    monkeypatch.setattr(fake_build, "digests", lambda units: dict.fromkeys(units, "b"))
    assert fake_build.run("order") == (0, _ORDER)


def test_a_full_run_relies_on_nothing_older_and_is_gone_on_with(fake_build, tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "_FULL_RUN", tmp_path / "began")
    clock = iter(f"2026-01-0{day}T00:00:00" for day in range(1, 10))
    monkeypatch.setattr(kept, "now", lambda: next(clock))
    fake_build.programs = {"test_check": tmp_path}
    assert fake_build.run("emulator", since=suite._full_run_began(resume=False))[1] == ["emulator test_check"]
    assert fake_build.run("emulator", since=suite._full_run_began(resume=True))[1] == []
    assert fake_build.run("emulator", since=suite._full_run_began(resume=False))[1] == ["emulator test_check"]


def test_a_version_untested_when_the_time_is_up_is_a_failure_and_a_sanitizer_is_none(fake_build, capsys):
    assert fake_build.run("emulator", deadline=0) == (1, ["emulator test_check", "emulator test_simt"])
    assert (
        "2 units not tested, as the time was up: emulator test_versions_sum sum/forward/v01" in capsys.readouterr().err
    )
    assert fake_build.run("emulator", deadline=0, allow_untested=True) == (0, [])
    session = suite._Session(kept.Results("", fake_build.copy), float("inf"), ())
    session.run_units("emulator")
    session.deadline, fake_build.built = 0, []
    session.run_units("sanitize")
    assert (session.close(False), fake_build.built) == (0, [])
    assert "1 units not tested, as the time was up: sanitize all programs" in capsys.readouterr().err


def test_a_sanitizer_takes_up_what_ends_before_the_time_is_up(fake_build, monkeypatch):
    monkeypatch.setattr(suite, "_SANITIZER_BUILD", 0)
    assert fake_build.run("emulator")[0] == 0  # 2 s a unit: 8 s under a sanitizer
    soon, later = time.time() + 7, time.time() + 60
    assert fake_build.run("order", deadline=soon)[1] == []
    assert fake_build.run("order", deadline=later) == (0, _ORDER)
    monkeypatch.setattr(suite, "_SANITIZER_BUILD", 3600)
    assert fake_build.run("sanitize", deadline=later)[1] == fake_build.built == []


@pytest.fixture
def whole_run(fake_build, monkeypatch):
    """FakeBuild for suite.run(), with the tests in Python faked as well."""
    monkeypatch.setattr(kept, "COPY", fake_build.copy)
    monkeypatch.setattr(test_programs, "run_python", lambda: suite.Totals(passed=1))
    monkeypatch.setattr(suite.package, "test", lambda *_: suite.Totals(passed=1))
    return fake_build


def test_a_run_with_sanitizers_writes_a_copy_of_all_presets(whole_run, capsys):
    assert suite.run("emulator", sanitize=True, keep=True) == 0
    assert capsys.readouterr().out == "13 passed, 0 failed, 0 skipped\n"
    of_presets = [key.partition(" ")[0] for key in json.loads(whole_run.copy.read_text())["results"]]
    assert [of_presets.count(preset) for preset in ("emulator", "sanitize", "order")] == [4, 4, 3]
    shutil.rmtree(kept.folder())
    whole_run.ran = []
    assert suite.run("emulator", sanitize=True) == 0
    assert whole_run.ran == []


def test_on_a_gpu_every_program_runs_whole(whole_run):
    for _ in range(2):
        whole_run.ran = []
        assert suite.run("cuda") == 0
        assert whole_run.ran == ["cuda " + program for program in _PROGRAMS]


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--resume", "--preset", "emulator"], "--full --resume"),
        (["silu", "--keep", "--preset", "emulator"], "./ladder test --keep"),
        (["--gtest_filter=a.*", "--keep", "--preset", "emulator"], "./ladder test --keep"),
        (["--keep", "--preset", "cuda"], "./ladder test --keep --preset emulator"),
    ],
)
def test_flags_that_do_not_go_together_are_wrong_usage(arguments, said):
    with pytest.raises(suite.UsageError, match=f"{said}$"):
        verbs.test(arguments)


def test_what_a_person_names_runs_in_any_case(fake_build):
    for _ in range(2):
        fake_build.ran = []
        session = suite._Session(kept.Results("", fake_build.copy), float("inf"), ())
        session.run_programs("emulator", ["test_versions_sum"], None, ["--gtest_filter=a.*"])
        assert fake_build.ran == ["emulator test_versions_sum"]
    assert fake_build.built[-1] == ("emulator", ["test_versions_sum"])


_REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="9" failures="2"><testsuite name="a" tests="7" failures="1" disabled="1" skipped="3" errors="0">
<testcase name="x"><failure><![CDATA[\xff printed]]></failure></testcase></testsuite>
<testsuite name="b" tests="2" failures="0" errors="1" skipped="0" /></testsuites>
"""


class FakeProgram:
    """A test program that writes _REPORT, or the part of it that it is told."""

    def __init__(self, folder):
        self.path = folder / "test_fake"

    def run(self, status, report=_REPORT, version=""):
        (self.path.parent / "report").write_bytes(report.encode("latin-1"))
        self.path.write_text(
            f'#!/bin/sh\nfor a; do case $a in --gtest_output=xml:*) cp "{self.path.parent}/report" "${{a#*:}}" ;; esac\n'
            f'done\necho "said $*"\nexit {status}\n'
        )
        self.path.chmod(0o755)
        return test_programs.run_one(suite.Unit("emulator", "test_fake", version), self.path)[0]


@pytest.fixture
def fake(tmp_path):
    return FakeProgram(tmp_path)


def test_cases_are_counted_and_what_failed_is_shown(fake, capsys):
    assert fake.run(1) == suite.Totals(passed=3, failed=2, skipped=3)
    assert "said --gtest_output" in capsys.readouterr().out
    assert fake.run(0, _REPORT.replace('failures="1"', 'failures="0"').replace('errors="1"', 'errors="0"')).failed == 0
    assert capsys.readouterr().out == ""


def test_tests_of_streams_run_once_more_under_late(fake, capfd):
    found = suite.units("emulator", ["test_train", "test_check"], [])
    assert [unit.key for unit in found] == ["emulator test_train", "emulator test_check", "emulator test_train late"]
    assert [unit.schedule for unit in suite.units("sanitize", ["test_train"], [])] == [""]
    fake.run(1)
    capfd.readouterr()
    fake.path.write_text(fake.path.read_text().replace("said $*", "schedule $LADDER_SCHEDULE."))
    for unit in found[::2]:
        test_programs.run_one(unit, fake.path)
    assert "schedule late.\n" in capfd.readouterr().out


def test_a_likely_race_is_named_once_a_version(fake):
    case = '<testcase classname="a_b_v01" name="ci_{}"><failure message="FAIL: y; differs: likely a race" /></testcase>'
    told = _REPORT.replace(
        '<testsuite name="b"', f'<testsuite name="c">{case.format(1)}{case.format(2)}</testsuite>\n<testsuite name="b"'
    )
    assert fake.run(1, told).races == [("test_fake", "a_b_v01")]


_RACE = """noise
  FAIL: y: dev/silu/forward/v09_x.cu:17: in dev/common/wide.h:23: a race: a read by thread (3,0,0) of block (0,0,0) of shared \
array tile + 12 bytes (it has 512); dev/silu/forward/v09_x.cu:15: a write by thread (2,0,0) of block (0,0,0); no __syncwarp() \
or barrier between them; thread (3,0,0) of block (0,0,0) [schedule asc]
more noise; a race: not this one [schedule desc]
"""


def test_of_a_race_both_lines_and_the_missing_edge_are_told():
    assert [line.partition(" of ")[0] for line in race.report(_RACE).splitlines()] == [
        "dev/silu/forward/v09_x.cu:17: in dev/common/wide.h:23: a race: a read by thread (3,0,0)",
        "  dev/silu/forward/v09_x.cu:15: a write by thread (2,0,0)",
        "  no __syncwarp() or barrier between them",
        "  thread (3,0,0)",
    ]
    assert race.report("no news") == ""


def test_a_program_that_ends_badly_has_failed(fake, capsys):
    broken = suite.Totals(failed=1, broken=["emulator test_fake"])
    passed = _REPORT.replace('failures="1"', 'failures="0"').replace('errors="1"', 'errors="0"')
    assert fake.run(0, _REPORT[:200]) == broken
    assert fake.run(139, passed) == broken
    assert fake.run(1, "<testsuites></testsuites>") == suite.Totals()  # no case of it matches a person's filter
    assert "exit status 139 without a failed test" in capsys.readouterr().err
    assert fake.run(1, "<testsuites></testsuites>", "a/b/v01_c").broken == ["emulator test_fake a/b/v01_c"]
