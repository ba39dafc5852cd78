"""./ladder in an odd environment: modules in the caller's folder, closed streams, a full disk after stdout."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli import tools

ROOT = Path(__file__).resolve().parents[2]
# Names that an interpreter of ours imports first: of the standard library, of ours, of what set-up installs.
NAMES = "token re argparse runpy cli images registry numpy torch pytest pip venv ensurepip ruff sitecustomize".split()
# A command that runs a module of an interpreter, whose -m or -c puts the caller's folder first.
UNSAFE = re.compile(r'(?<!"-I", )"-m", "|executable, "-c"|python, "-c"|candidate, "-c"|-m pytest')


@pytest.fixture
def poisoned(tmp_path, monkeypatch):
    """The caller's folder: each module leaves a file when it is imported."""
    for name in NAMES:
        folder = tmp_path / name
        folder.mkdir()
        text = f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\nraise SystemExit('mine')\n"
        (folder / "__init__.py").write_text(text)
        (folder / "__main__.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ladder(words, **more):
    return subprocess.run(
        ["bash", "-c", f"{shlex.quote(str(ROOT / 'ladder'))} {words}"], text=True, capture_output=True, **more
    )


@pytest.mark.parametrize("path", ["", ":", ".", ":/nowhere"])
def test_the_modules_of_the_callers_folder_are_not_ours(poisoned, path):
    done = ladder("list silu", cwd=poisoned, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "") and "silu" in done.stdout
    assert not (poisoned / "imported").exists()


def test_an_interpreter_that_we_start_does_not_look_there_either(poisoned):
    assert tools.can_import(sys.executable, "json", "runpy")
    assert not tools.can_import(sys.executable, "no_such_module")
    (poisoned / "only_here.py").write_text("")
    assert not tools.can_import(sys.executable, "only_here")
    done = tools.captured(*tools.module(sys.executable, "cli"), "list", "silu", cwd=poisoned)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        [sys.executable, ROOT / "reference/pytorch/silu.py"], input="", capture_output=True, text=True
    )
    assert "mine" not in done.stderr and not (poisoned / "imported").exists(), done.stderr


def test_no_tool_runs_a_module_from_the_callers_folder():
    sources = [file for folder in ("tools", "reference", "python") for file in (ROOT / folder).rglob("*.py")]
    found = {
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in sources
        if "tests" not in file.parts
        for line in file.read_text(encoding="utf-8").splitlines()
        if UNSAFE.search(line)
    }
    # These two leave the folder out by themselves.
    allowed = {"tools/cli/tools.py", "reference/pytorch/numpy_and_torch.py"}
    assert {line for line in found if line.partition(":")[0] not in allowed} == set()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_traceback(closed):
    done = ladder(f"list silu {closed}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_after_stdout_is_a_failure():
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = ladder("list silu >/dev/full", env=buffered)
    assert (done.returncode, done.stderr) == (1, "ladder: standard output: No space left on device\n")
