"""Kept results of tests: what a unit's digest covers, on a small build of CMake's, and where results lie."""

import json
import os
import shutil
import subprocess

import pytest

from cli import kept, linked, tokens, tools
from cli.test_programs import Totals, Unit

_TREE = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.24)
project(made_up LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include_directories(${PROJECT_SOURCE_DIR})
add_compile_options(-Wall)
add_library(check OBJECT core/check/check.cpp)
add_library(baseline OBJECT reference/baseline_worker.cpp)
file(GLOB sum dev/sum/*/*.cu)
set_source_files_properties(${sum} PROPERTIES LANGUAGE CXX)
add_library(sum OBJECT dev/sum/sum.cpp ${sum})
target_compile_options(sum PRIVATE -x c++)
add_library(promoted OBJECT runtime/promoted.cpp)
add_executable(bench_sum bench/bench_sum.cpp)
add_executable(test_versions_sum tests/test_versions.cpp)
target_link_libraries(test_versions_sum PRIVATE check baseline sum promoted)
add_executable(test_check tests/test_check.cpp)
target_link_libraries(test_check PRIVATE check baseline)
add_executable(test_dtype tests/test_dtype.cpp)
add_dependencies(test_dtype bench_sum)
""",
    "core/check/check.h": "int check(int);  // of a value\n",
    "core/check/check.cpp": '#include "core/check/check.h"\nint check(int x) { return x; }\n',
    "dev/sum/sum.h": "int sum();\n",
    "dev/sum/sum.cpp": '#include "dev/sum/sum.h"\nint sum() { return 0; }\n',
    "dev/sum/shapes.txt": "[ci]\na: n1\n",
    "dev/sum/forward/v01_naive.cu": '#include "dev/sum/sum.h"\nint naive() { return 1; }\n',
    "dev/sum/forward/v02_tile.cu": '#include "dev/sum/sum.h"\nint tile() { return 2; }\n',
    "dev/sum/backward/v01_handed_on.cu": "int version_of(int);\nint handed_on() { return 3; }\n",
    "dev/max/max.h": "int max();\n",
    "runtime/promoted.cpp": "int promoted() { return 0; }\n",
    "runtime/promoted/card.txt": "sum/forward  n1  v01_naive\nmax/forward  n1  v01_naive\n",
    "reference/baseline_worker.cpp": "int worker() { return 0; }\n",
    "reference/pytorch/sum.py": "",
    "bench/bench_sum.cpp": "int main() { return 0; }\n",
    "bench/flags.json": "{}",
    "tests/golden/numbers.json": "[1]",
    "tests/test_versions.cpp": '#include "core/check/check.h"\nint main() { return check(0); }\n',
    "tests/test_check.cpp": '#include "core/check/check.h"\nint main() { return check(0); }\n',
    "tests/test_dtype.cpp": "int main() { return 0; }\n",
}
_CHECK, _DTYPE = (Unit("emulator", name) for name in ("test_check", "test_dtype"))
_VERSIONS = "sum/backward/v01_handed_on", "sum/forward/v01_naive", "sum/forward/v02_tile"
_HANDED_ON, _NAIVE, _TILE = (Unit("emulator", "test_versions_sum", name) for name in _VERSIONS)
_ALL = {_CHECK, _DTYPE, _HANDED_ON, _NAIVE, _TILE}
_OF_VERSIONS = {_HANDED_ON, _NAIVE, _TILE}


class Project:
    def __init__(self, root):
        self.root, self.build = root, root / "build"
        for name, text in _TREE.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def configure(self, *options):
        command = [tools.cmake(), "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools.ninja()}", *options]
        subprocess.run([*command, "-S", self.root, "-B", self.build], check=True, stdout=subprocess.DEVNULL)

    def digests(self):
        return linked.Build(self.build, self.root).digests(_ALL)


@pytest.fixture(scope="module")
def configured(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("made_up"))
    project.configure()
    return project


@pytest.fixture
def project(configured):
    """The project, whose `changed` returns the units that another text of a file runs again, and restores the file."""
    before = configured.digests()
    assert before.keys() == _ALL

    def changed(name, text):
        configured.write(name, text)
        after = configured.digests()
        configured.write(name, _TREE[name])
        return {unit for unit in _ALL if after[unit] != before[unit]}

    configured.changed = changed
    yield configured
    assert configured.digests() == before


def test_a_comment_runs_nothing(project):
    for name in ("core/check/check.h", "dev/sum/sum.h", "dev/sum/forward/v01_naive.cu"):
        text = f"// a comment\n\n/* and\none more */\n{_TREE[name].replace(';', '; /* here */', 1)}// the end\n"
        assert project.changed(name, text) == set()


def test_a_version_runs_itself_and_whoever_may_have_it_do_its_work(project):
    assert project.changed("dev/sum/forward/v02_tile.cu", "int tile() { return 4; }\n") == {_TILE, _HANDED_ON}
    assert project.changed("dev/sum/backward/v01_handed_on.cu", "int version_of(long);\n") == {_HANDED_ON}


@pytest.mark.parametrize(
    "name, text, units",
    [
        ("core/check/check.cpp", "int check(int x) { return -x; }\n", _ALL - {_DTYPE}),
        ("core/check/check.h", "int check(int);\nconstexpr int kTwice = 2;\n", _ALL - {_DTYPE}),
        ("dev/sum/sum.cpp", "int sum() { return 1; }\n", _OF_VERSIONS),
        ("dev/sum/shapes.txt", "[ci]\na: n2\n", _OF_VERSIONS),
        ("runtime/promoted/card.txt", "sum/forward  n1  v02_tile\nmax/forward  n1  v01_naive\n", _OF_VERSIONS),
        ("runtime/promoted/card.txt", "sum/forward  n1  v01_naive\nmax/forward  n1  v02_tile\n", set()),
        ("tests/golden/numbers.json", "[2]", _ALL),
        ("bench/bench_sum.cpp", "int main() { return 1; }\n", {_DTYPE}),
        ("bench/flags.json", "[]", {_DTYPE}),
        ("tests/test_check.cpp", f"// a comment\n{_TREE['tests/test_check.cpp']}", {_CHECK}),
        ("reference/pytorch/sum.py", "pass\n", {_CHECK}),
        ("dev/max/max.h", "long max();\n", set()),
    ],
)
def test_whatever_is_linked_in_or_read_runs_again(project, name, text, units):
    assert project.changed(name, text) == units


def test_flags_count_but_for_warnings_and_so_do_the_environment_and_the_preset(project, monkeypatch):
    before = project.digests()
    project.configure("-DCMAKE_CXX_FLAGS=-Wextra -Werror")
    assert project.digests() == before
    project.configure("-DCMAKE_CXX_FLAGS=-O2")
    assert all(digest != before[unit] for unit, digest in project.digests().items())
    project.configure("-DCMAKE_CXX_FLAGS=")
    monkeypatch.setenv("LADDER_TEST_SCHEDULES", "asc")
    assert all(digest != before[unit] for unit, digest in project.digests().items())
    monkeypatch.delenv("LADDER_TEST_SCHEDULES")
    monkeypatch.setenv("LADDER_STARTED", "1")
    assert project.digests() == before
    other = Unit("order", "test_check")
    assert linked.Build(project.build, project.root).digests([other])[other] != before[_CHECK]


def test_another_clone_has_the_same_digests(project, tmp_path):
    clone = Project(tmp_path / "clone")
    clone.configure()
    assert clone.digests() == project.digests()


def test_a_source_is_preprocessed_again_only_after_a_file_that_it_reads_was_written(project, monkeypatch):
    project.digests()
    asked = []
    preprocessed = tokens.Tokens._preprocessed
    monkeypatch.setattr(
        tokens.Tokens, "_preprocessed", lambda self, *a: (asked.append(a[0]), preprocessed(self, *a))[1]
    )
    for path in (project.root / "core").rglob("*.*"):
        os.utime(path, ns=(1, path.stat().st_mtime_ns - 1_000_000_000))
    before = project.digests()
    assert {os.path.basename(name) for name in asked} == {"check.cpp.o", "test_check.cpp.o", "test_versions.cpp.o"}
    asked.clear()
    assert project.digests() == before and asked == []
    (project.build / "tokens.json").write_text('{"files": [], "objects": {"a": ["", [3], "", ""]}}')
    assert project.digests() == before and asked


def test_a_source_that_cannot_be_preprocessed_has_no_digest(project):
    project.write("tests/test_dtype.cpp", '#include "missing.h"\n')
    assert project.digests().keys() == _ALL - {_DTYPE}
    project.write("tests/test_dtype.cpp", _TREE["tests/test_dtype.cpp"])


_UNITS = [Unit("emulator", f"test_{i}") for i in range(60)]
_DIGESTS = {unit: f"digest of {unit.program}" for unit in _UNITS}


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A function that makes Results as a new run finds them; its `clock` has the date of what is kept next."""
    monkeypatch.setenv("LADDER_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / "kept_results.json"

    def make(since=""):
        return kept.Results(since, copy)

    make.copy = copy
    make.clock = lambda text: monkeypatch.setattr(kept, "now", lambda: text)
    return make


def test_the_oldest_thirtieth_runs_again(results):
    for day, unit in enumerate(_UNITS, 1):
        results.clock(f"2026-01-01T00:00:{day - 1:02}")
        results().keep(unit, _DIGESTS[unit], Totals(passed=1), day)
    waiting, found = results().divide(_UNITS, _DIGESTS)
    assert (waiting, len(found)) == ([_UNITS[1], _UNITS[0]], 58)
    results().keep(_UNITS[0], _DIGESTS[_UNITS[0]], Totals(passed=1), 1)
    assert results().divide(_UNITS, _DIGESTS)[0] == [_UNITS[2], _UNITS[1]]
    assert results(since="2026-01-01T00:00:00").divide(_UNITS, _DIGESTS)[0] == []


def test_units_of_unknown_length_run_first_then_the_longest(results):
    for unit, seconds in zip(_UNITS[:3], (1, 3, 2), strict=True):
        results().keep(unit, "another digest", Totals(passed=1), seconds)
    assert results().divide(_UNITS[:4], _DIGESTS)[0] == [_UNITS[i] for i in (3, 1, 2, 0)]


def test_a_copy_serves_machines_that_have_no_results_until_one_fails(results):
    for unit in _UNITS[:3]:
        run = results()
        run.keep(unit, _DIGESTS[unit], Totals(passed=4, skipped=1), 2)
        run.write_copy()
    shutil.rmtree(kept.folder())
    assert json.loads(results.copy.read_text())["results"] == {_UNITS[2].key: [_DIGESTS[_UNITS[2]], 4, 1, 2]}
    waiting, found = results().divide(_UNITS[:3], _DIGESTS)
    assert waiting == _UNITS[:2] and (found[_UNITS[2]].passed, found[_UNITS[2]].seconds) == (4, 2)
    results().keep(_UNITS[2], _DIGESTS[_UNITS[2]], Totals(failed=1), 2)
    assert results().divide(_UNITS[:3], _DIGESTS)[1] == {}


def test_a_copy_keeps_what_it_has_of_presets_that_did_not_run(results):
    for preset in ("order", "emulator"):
        run = results()
        run.keep(Unit(preset, "test_a"), "1", Totals(passed=1), 1)
        run.write_copy()
    assert list(json.loads(results.copy.read_text())["results"]) == ["emulator test_a", "order test_a"]


def test_another_compiler_is_named_with_the_time_that_everything_takes(results, capsys):
    run = results()
    run.keep(_UNITS[0], "1", Totals(passed=1), 600 * kept.cores())
    run.write_copy()
    capsys.readouterr()
    results().say_if_of_another_compiler()
    assert capsys.readouterr().err == ""
    results.copy.write_text(results.copy.read_text().replace(tokens.compiler(*tools.cxx()), "c++ 1.0"))
    results().say_if_of_another_compiler()
    said = capsys.readouterr().err
    assert "kept_results.json is of c++ 1.0, this is " in said and "about 10 min" in said


def test_a_unit_has_twenty_results_at_most_and_a_broken_one_counts_as_none(results):
    for i in range(25):
        results.clock(f"2026-01-01T00:00:{i:02}")
        results().keep(_CHECK, str(i), Totals(passed=1), 1)
    found = sorted((kept.folder() / "emulator" / "test_check").iterdir())
    assert {path.stem for path in found} == {str(i) for i in range(5, 25)}
    for text in ("", "{}", "[]"):
        (kept.folder() / "emulator" / "test_check" / "24.json").write_text(text)
        assert results().divide([_CHECK], {_CHECK: "24"})[1] == {}
        results.copy.write_text(text)


def test_a_folder_that_cannot_be_written_is_one_line(results, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LADDER_CACHE", str(tmp_path / "file"))
    with pytest.raises(kept.Failure, match="no results are kept in .*LADDER_CACHE names another folder"):
        results().keep(_CHECK, "1", Totals(passed=1), 1)
