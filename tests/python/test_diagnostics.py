"""Filtering of a compiler's output during a build, tested on a real compiler's output."""

import shutil
import subprocess

import pytest

from dev.diagnostics import Diagnostics

_SOURCE = """template <int N> void kernel(int* p, int unused) { p[N] = 1; }
template <int N> void launch(int* p) { kernel<N>(p, 1); }
void all(int* p) { launch<1>(p); launch<2>(p); launch<3>(p); }
"""


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++")
def test_a_warning_of_three_instantiations_is_shown_once_with_its_line_and_caret(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kernel.cpp").write_text(_SOURCE)
    command = ["g++", "-Wextra", "-Wall", "-fsyntax-only", str(tmp_path / "dev" / "kernel.cpp")]
    said = subprocess.run(command, capture_output=True, text=True).stderr
    assert said.count("warning:") == 3
    words = Diagnostics(tmp_path)
    shown = [text for line in said.splitlines(keepends=True) if (text := words.shown(line))]
    assert shown[0].startswith("dev/kernel.cpp:1:42: warning: unused parameter")
    assert len(shown) == 3 and shown[2].strip("| ").startswith("~~~~^")


def test_the_command_that_failed_is_not_shown():
    words = Diagnostics("/root")
    lines = [
        "FAILED: a.o\n",
        "/usr/bin/c++ -c a.cpp\n",
        "/root/a.cpp:1:2: error: no\n",
        "/root/a.cpp:1:2: error: yes\n",
    ]
    assert [words.shown(line) for line in lines] == [
        "FAILED: a.o\n",
        "",
        "a.cpp:1:2: error: no\n",
        "a.cpp:1:2: error: yes\n",
    ]
