"""What `./ladder test` runs: by content, against the digests of the last full run."""

from unittest import mock

import pytest

from cli import digests, paths, race, suite, test_programs

_TREE = {
    "runtime/tape.cpp": "tape",
    "nn/models/unet2d.cpp": "model",
    "core/check/check.h": "checks",
    "CMakeLists.txt": "flags",
    "tests/test_versions.cpp": "tests",
    "dev/sum/sum.h": "the pass",
    "dev/sum/sum.cpp": "its host code",
    "dev/sum/tile.h": '#include "dev/ptx/copy.h"\n',
    "dev/sum/last_sums.cu": '#include "dev/sum/rows.h"\n',
    "dev/sum/rows.h": "a kernel of no version",
    "dev/sum/shapes.txt": "[ci]\na: n1\n",
    "dev/sum/forward/v01_naive.cu": '#include "dev/sum/sum.h"\n',
    "dev/sum/forward/v02_tile.cu": '#include "dev/sum/sum.h"\n#include "dev/sum/tile.h"\n',
    "dev/sum/backward/v01_handed_on.cu": "version_of<Forward>(2)\n",
    "dev/ptx/copy.h": "copies",
    "reference/sum_reference.cpp": "in double",
}


class SuiteTest:
    def __init__(self, tmp_path):
        self.root = tmp_path
        for name, text in _TREE.items():
            self.write(name, text)
        self.versions = digests.versions(self.root)
        self.record()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def record(self):
        digests.write_last_run(
            "2026-01-02",
            digests.of_shared(self.root),
            {v.name: digests.of_version(v, self.root) for v in self.versions},
            {},
            self.root,
        )

    def selection(self):
        return suite.Selection.of_changes(
            digests.versions(self.root),
            digests.last_run(self.root),
            lambda v: digests.of_version(v, self.root),
            digests.of_shared(self.root),
        )

    def full(self):
        return [v.name for v in self.selection().full]


@pytest.fixture
def project(tmp_path):
    return SuiteTest(tmp_path)


def test_nothing_changed(project):
    found = project.selection()
    assert (found.full, found.brief, found.shared_changed) == ([], [], False)
    assert len(found.untouched) == 3
    assert found.last.date == "2026-01-02"


def test_a_version_and_whoever_it_may_hand_its_work_to(project):
    project.write("dev/sum/forward/v01_naive.cu", "other")
    assert project.full() == ["sum/backward/v01_handed_on", "sum/forward/v01_naive"]


def test_a_header_that_is_included_by_way_of_another(project):
    project.write("dev/ptx/copy.h", "copies more")
    assert project.full() == ["sum/backward/v01_handed_on", "sum/forward/v02_tile"]


@pytest.mark.parametrize(
    "name",
    ["dev/sum/shapes.txt", "dev/sum/sum.cpp", "dev/sum/last_sums.cu", "dev/sum/rows.h", "reference/sum_reference.cpp"],
)
def test_what_a_whole_layer_rests_on(project, name):
    project.write(name, "other")
    assert len(project.full()) == 3
    project.write(name, _TREE[name])
    assert project.full() == []


@pytest.mark.parametrize(
    "name",
    ["core/check/check.h", "runtime/tape.cpp", "nn/models/unet2d.cpp", "CMakeLists.txt", "tests/test_versions.cpp"],
)
def test_what_all_share_has_versions_tried_briefly(project, name):
    project.write(name, "other")
    found = project.selection()
    assert (found.full, len(found.brief), found.untouched) == ([], 3, [])
    project.write(name, _TREE[name])


def test_a_new_version_has_changed(project):
    project.write("dev/sum/forward/v03_new.cu", "new")
    assert "sum/forward/v03_new" in project.full()


def test_without_a_record_everything_has_changed(project):
    for text in ("", "{}", '{"schema": "another"}'):
        digests.record_path(project.root).write_text(text)
        assert len(project.full()) == 3
    digests.record_path(project.root).unlink()
    assert len(project.full()) == 3


def test_a_full_run_leaves_out_versions_that_failed_and_nothing_else_may(project):
    def written(unit):
        session = suite._Session(False, float("inf"), ())
        session.of_shared, session.of_versions = "shared", {v.name: "now" for v in project.versions}
        session._keep(unit, suite.Totals(failed=1, broken=[unit.key]), 1.0)
        session.totals.add(suite.Totals(failed=1, broken=[unit.key]))
        with mock.patch.object(digests, "write_last_run") as write, mock.patch.object(suite.say, "line"):
            session.write_last_run(project.versions)
        return write.call_args and sorted(write.call_args.args[2])

    ended_badly = suite.Unit("sanitize", "test_versions_sum", "sum/forward/v01_naive")
    assert written(ended_badly) == ["sum/backward/v01_handed_on", "sum/forward/v02_tile"]
    assert written(suite.Unit("sanitize", "test_check")) is None


def test_units_of_a_changed_version(project):
    project.write("dev/sum/forward/v01_naive.cu", '#include "dev/sum/sum.h"\n// other\n')
    project.write("core/check/check.h", "other")
    found = project.selection()
    programs = ["test_check", "test_simt", "test_versions_sum"]
    assert [unit.key for unit in suite.units("emulator", programs, found)] == [
        "emulator test_check",
        "emulator test_simt",
        "emulator test_versions_sum sum/backward/v01_handed_on",
        "emulator test_versions_sum sum/forward/v01_naive",
        "emulator test_versions_sum sum/forward/v02_tile brief",
    ]
    assert [unit.key for unit in suite.units("tsan", programs, found)] == [
        "tsan test_simt",
        "tsan test_versions_sum sum/backward/v01_handed_on",
        "tsan test_versions_sum sum/forward/v01_naive",
    ]
    brief = suite.units("emulator", programs, found)[-1]
    assert brief.gtest_flags() == ["--gtest_filter=sum_forward_v02_tile.ci_*"]


def test_what_sanitizers_need_built(project):
    assert suite.targets("tsan", project.selection()) is None
    project.write("dev/sum/forward/v01_naive.cu", "other")
    assert suite.targets("sanitize", project.selection()) == ["test_versions_sum"]
    project.write("core/check/check.h", "other")
    assert suite.targets("tsan", project.selection()) == ["test_versions_sum", "test_simt", "test_faults"]
    assert suite.targets("sanitize", project.selection()) == ()
    assert suite.targets("emulator", project.selection()) == ()


@pytest.mark.parametrize("preset, ran", [("emulator", ["test_check"]), ("sanitize", [])])
def test_when_the_time_is_up_programs_of_the_emulator_run_and_nothing_else(preset, ran, tmp_path, monkeypatch):
    units = [suite.Unit(preset, "test_check"), suite.Unit(preset, "test_versions_sum", "sum/forward/v01_naive")]
    found = []
    monkeypatch.setattr(suite.build, "build", lambda *_, **__: None)
    monkeypatch.setattr(test_programs, "programs", lambda *_: [tmp_path / unit.program for unit in units])
    monkeypatch.setattr(
        test_programs, "run_one", lambda unit, _: (found.append(unit.program), (suite.Totals(1), 0.0))[1]
    )
    session = suite._Session(resume=False, deadline=0, cmake_options=())
    monkeypatch.setattr(race, "show", lambda *_: None)
    session.run_preset(preset, lambda _: units)
    assert found == ran and session.left_out == ([units[1]] if ran else [suite.Unit(preset, "all programs")])


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


def test_a_likely_race_is_named_once_a_version(fake):
    case = '<testcase classname="a_b_v01" name="ci_{}"><failure message="FAIL: y; differs: likely a race" /></testcase>'
    told = _REPORT.replace(
        '<testsuite name="b"', f'<testsuite name="c">{case.format(1)}{case.format(2)}</testsuite>\n<testsuite name="b"'
    )
    assert fake.run(1, told).races == [("test_fake", "a_b_v01")]


_RACE = f"""noise
WARNING: ThreadSanitizer: data race (pid=1)
  Read of size 4 at 0x7f by thread T3:
    #0 kernel {paths.ROOT}/dev/silu/forward/v09_x.cu:17:9 (test+0x1)
    #1 run {paths.ROOT}/core/simt/block.cpp:5 (test+0x2)
  Previous write of size 4 at 0x7f by thread T2:
    #0 load {paths.ROOT}/dev/common/wide.h:23:9 (test+0x1)
    #1 kernel {paths.ROOT}/dev/silu/forward/v09_x.cu:15:9 (test+0x1)
    #2 main {paths.ROOT}/tests/main.cpp:5:9 (test+0x1)
SUMMARY: ThreadSanitizer: data race
"""


def test_of_a_data_race_the_kernels_two_lines_are_told():
    assert race.report(_RACE).splitlines() == [
        "a data race:",
        "  Read of size 4",
        "    at dev/silu/forward/v09_x.cu:17:9",
        "  Previous write of size 4",
        "    at dev/common/wide.h:23:9",
        "    at dev/silu/forward/v09_x.cu:15:9",
    ]
    assert race.report("no race") == ""


def test_a_program_that_ends_badly_has_failed(fake, capsys):
    broken = suite.Totals(failed=1, broken=["emulator test_fake"])
    passed = _REPORT.replace('failures="1"', 'failures="0"').replace('errors="1"', 'errors="0"')
    assert fake.run(0, _REPORT[:200]) == broken
    assert fake.run(139, passed) == broken
    assert fake.run(1, "<testsuites></testsuites>") == suite.Totals()  # no case of it matches a person's filter
    assert "exit status 139 without a failed test" in capsys.readouterr().err
    assert fake.run(1, "<testsuites></testsuites>", "a/b/v01_c").broken == ["emulator test_fake a/b/v01_c"]
