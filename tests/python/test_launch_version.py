"""tools/dev/launch_version.py: a version that does not compile is named and left out, and compiled again by the next build."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dev import launch_version

ROOT = Path(__file__).resolve().parents[2]

BUILD = """\
rule compile
  command = {python} {launcher} {cxx} -MD -MF $out.d -o $out -c $in
  depfile = $out.d
  deps = gcc
rule link
  command = {cxx} -o $out $in
build v01.o: compile {root}/dev/toy/fprop/v01_naive.cpp
build v02.o: compile {root}/dev/toy/fprop/v02_tiles.cpp
build main.o: compile {root}/main.cpp
build bench: link main.o v01.o v02.o
"""
MAIN = """\
int versions = 0;
int main() { return versions; }
"""
VERSION = "extern int versions;\nstatic const int added = versions += 1;\n"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            "In file included from a.h:3:\n/x/dev/v07_wmma.cu:12:5: error: 'foo' was not declared\n/x/a.cu:13:1: error: b\n",
            "v07_wmma.cu:12: 'foo' was not declared",
        ),
        (
            "/x/dev/v07_wmma.cu:12:5: warning: odd\n/x/a.h:9:1: fatal error: b.h: No such file\n",
            "a.h:9: b.h: No such file",
        ),
        ('/x/v07_wmma.cu(12): error: identifier "foo" is undefined\n', 'v07_wmma.cu:12: identifier "foo" is undefined'),
        ("\nptxas fatal   : Unresolved extern function 'f'\n", "ptxas fatal   : Unresolved extern function 'f'"),
        ("", "the compiler said nothing"),
    ],
)
def test_the_first_error_of_every_compiler(said, line):
    assert launch_version.first_error(said) == line


class Build:
    def __init__(self, tmp_path):
        self.root = tmp_path
        # The launcher knows a version by its .cu; the compiler of this test would need -x c++ for it.
        launcher = (ROOT / "tools" / "dev" / "launch_version.py").read_text(encoding="utf-8")
        (self.root / "launch.py").write_text(launcher.replace(r"\w+\.cu)", r"\w+\.cpp)"), encoding="utf-8")
        (self.root / "dev" / "toy" / "fprop").mkdir(parents=True)
        (self.root / "build").mkdir()
        self.write("v01_naive", VERSION)
        self.write("v02_tiles", VERSION)
        (self.root / "main.cpp").write_text(MAIN, encoding="utf-8")
        (self.root / "build" / "build.ninja").write_text(
            BUILD.format(python=sys.executable, launcher=self.root / "launch.py", cxx="c++", root=self.root),
            encoding="utf-8",
        )

    def write(self, name, text):
        (self.root / "dev" / "toy" / "fprop" / f"{name}.cpp").write_text(text, encoding="utf-8")

    def ninja(self, keep_going=True):
        done = subprocess.run(
            ["ninja", "-C", self.root / "build"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, launch_version.VARIABLE: "1" if keep_going else "0"},
        )
        return done.returncode, done.stdout

    def versions(self):
        return subprocess.run([self.root / "build" / "bench"]).returncode

    def missing(self):
        return [json.loads(file.read_text()) for file in (self.root / "build").glob(f"*{launch_version.SUFFIX}")]


@pytest.fixture
def build(tmp_path):
    if not (shutil.which("ninja") and shutil.which("c++")):
        pytest.skip("no Ninja, or no C++ compiler")
    return Build(tmp_path)


def test_a_build_without_a_fault_is_left_alone(build):
    assert build.ninja()[0] == 0
    assert (build.versions(), build.missing()) == (2, [])
    assert "no work to do" in build.ninja()[1]


def test_a_version_that_does_not_compile_stops_no_other(build):
    build.write("v02_tiles", "int broken = ;\n" + VERSION)
    status, said = build.ninja()
    assert status == 0, said
    assert "toy/fprop v02 does not compile: v02_tiles.cpp:1: expected " in said
    assert build.versions() == 1
    (missing,) = build.missing()
    assert (missing["path"], missing["number"], missing["source"]) == ("toy/fprop", 2, "dev/toy/fprop/v02_tiles.cpp")
    assert missing["line"] in said
    assert "expected" in (build.root / "build" / "v02.o.errors").read_text()


def test_it_is_compiled_again_by_every_build_until_it_is_right(build):
    build.write("v02_tiles", "int broken = ;\n")
    for _ in range(2):
        assert "toy/fprop v02 does not compile" in build.ninja()[1]
    status, said = build.ninja(keep_going=False)
    assert status != 0, said
    assert "v02_tiles.cpp:1" in said
    assert build.missing() == []
    build.ninja()
    build.write("v02_tiles", VERSION)
    assert build.ninja()[0] == 0
    assert (build.versions(), build.missing()) == (2, [])


def test_what_is_no_version_fails_as_ever(build):
    (build.root / "main.cpp").write_text("int main() {", encoding="utf-8")
    assert build.ninja()[0] != 0
    assert build.missing() == []
