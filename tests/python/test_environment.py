"""./ladder in an odd environment: modules in the caller's folder, closed streams, a full disk after stdout."""

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli import build, lock, setup, tools
from cli.errors import Failure

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
    # These leave the folder out by themselves.
    allowed = {"tools/cli/interpreter.py", "tools/cli/tools.py", "reference/pytorch/numpy_and_torch.py"}
    assert {line for line in found if line.partition(":")[0] not in allowed} == set()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_traceback(closed):
    done = ladder(f"list silu {closed}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_after_stdout_is_a_failure():
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = ladder("list silu >/dev/full", env=buffered)
    assert (done.returncode, done.stderr) == (1, "ladder: standard output: No space left on device\n")


@pytest.fixture
def compilers(tmp_path, monkeypatch):
    """Fake compilers in a folder that alone is on PATH; each prints its name and its flags."""
    for name in ("ccache", "g++", "nvcc", "with blank"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*, release 13.0"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv("CXX", raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("ccache g++", ["ccache", "g++"]),
        ("g++ -m64 '-DA=\"b c\"'", ["g++", "-m64", '-DA="b c"']),
        ("with blank", ["with blank"]),
        (" g++ ", ["g++"]),
    ],
)
def test_a_compiler_with_flags_is_split_as_cmake_does(compilers, monkeypatch, variable, words):
    monkeypatch.setenv("CXX", variable)
    assert tools.cxx() == [str(compilers / words[0]), *words[1:]]
    assert setup._preprocessed("").stdout.startswith(" ".join(words))
    monkeypatch.setattr(setup.tools, "cmake", lambda: "cmake")
    monkeypatch.setattr(setup.tools, "ninja", lambda: "ninja")
    assert setup._missing_packages({}) == set()


def test_a_compiler_that_is_not_there_is_named_and_nothing_is_installed(compilers, monkeypatch):
    monkeypatch.setattr(setup.debian, "install", lambda *words: pytest.fail("installs"))
    monkeypatch.setenv("CXX", "nope -m64")
    with pytest.raises(Failure, match="CXX is 'nope -m64', and there is no program 'nope'"):
        setup._tools_and_libraries(setup._LIBRARIES)
    monkeypatch.setenv("CUDACXX", "nope")
    monkeypatch.setattr(setup, "PRIVATE", compilers)
    with pytest.raises(Failure, match="CUDACXX is 'nope', and there is no program 'nope'"):
        setup._cuda("cuda")
    monkeypatch.setenv("CUDACXX", "ccache nvcc")
    monkeypatch.delenv("LADDER_NO_SYSTEM_CUDA", raising=False)
    assert setup._cuda("cuda") is False


@pytest.fixture
def nccl_fetched(tmp_path, monkeypatch):
    """Pins that setup._nccl() fetches, on a machine without NCCL."""
    fetched = []
    monkeypatch.setattr(setup, "PRIVATE", tmp_path)
    monkeypatch.setattr(setup, "_needs_ensurepip", lambda: None)
    monkeypatch.setattr(setup.wheels, "install", lambda what, pins, folder, log: fetched.append((pins, folder)))
    monkeypatch.delenv("LADDER_NCCL", raising=False)
    monkeypatch.setenv("LADDER_NO_SYSTEM_CUDA", "1")
    return fetched


def test_nccl_is_fetched_where_no_place_has_it(nccl_fetched, tmp_path):
    assert setup._nccl() is True
    assert nccl_fetched == [(["nvidia-nccl-cu13==2.28.9"], "nccl")]
    (tmp_path / "nccl").mkdir()
    assert setup._nccl() is False
    assert len(nccl_fetched) == 1


def test_a_machine_without_a_network_goes_on_without_nccl(nccl_fetched, monkeypatch, capsys):
    def fails(*_):
        raise Failure("no network\nmore")

    monkeypatch.setattr(setup.wheels, "install", fails)
    assert setup._nccl() is False
    assert "no NCCL for several GPUs: no network (" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("major", "minor", "is_fetched"), [(2, 26, True), (2, 27, False), (2, 30, False), (3, 0, False), (2, 9, True)]
)
@pytest.mark.parametrize("place", ["LADDER_NCCL", "CUDA_HOME", "CPLUS_INCLUDE_PATH"])
def test_an_nccl_that_is_there_is_used_if_new_enough(
    nccl_fetched, tmp_path, monkeypatch, place, major, minor, is_fetched
):
    (tmp_path / "include").mkdir()
    (tmp_path / "include/nccl.h").write_text(
        f"#define NCCL_MAJOR {major}\n#define NCCL_MINOR {minor}\n#define NCCL_PATCH 9\n"
    )
    if place == "CUDA_HOME":
        monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    if place != "LADDER_NCCL":
        monkeypatch.delenv("LADDER_NO_SYSTEM_CUDA")
        # The machine's own NCCL, in the compiler's default places.
        has_nccl = setup._has_nccl
        monkeypatch.setattr(setup, "_has_nccl", lambda folder: str(tmp_path) in folder and has_nccl(folder))
    monkeypatch.setenv(place, str(tmp_path / "include" if place == "CPLUS_INCLUDE_PATH" else tmp_path))
    assert setup._nccl() is is_fetched
    assert bool(nccl_fetched) is is_fetched


def test_options_come_before_targets(tmp_path, monkeypatch):
    (tmp_path / "build.ninja").write_text("rule touch\n  command = touch $out\nbuild a: touch\n")
    monkeypatch.setattr(build, "folder", lambda preset: tmp_path)
    monkeypatch.setenv("POSIXLY_CORRECT", "1")
    build._ninja("emulator", ["a"], keep_going=True)
    assert (tmp_path / "a").exists()


def test_git_says_itself_why_it_refuses():
    env = {**os.environ, "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    for words in ("compare HEAD~1 HEAD", "compare --live HEAD~1 silu"):
        done = ladder(words, env=env)
        assert done.returncode == 2 and done.stderr.count("detected dubious ownership") == 1, done.stderr


def test_a_tree_that_may_not_be_written_is_named_with_what_can_be_done(tmp_path, monkeypatch):
    def refused(*words, **more):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("builtins.open", refused)
    with pytest.raises(Failure, match=r"may not be written \(Read-only file system\).*copy the tree"):
        with lock.held(tmp_path / "build" / ".emulator.lock"):
            pass


def test_a_tree_that_is_not_there_is_named():
    for verb in ("table", "promote", "dashboard"):
        done = ladder(f"{verb} --root /nonexistent")
        assert (done.returncode, "there is no folder '/nonexistent'" in done.stderr) == (2, True), done.stderr


def test_somebodys_words_neither_flood_nor_steer_the_terminal():
    done = ladder("list 'a\x1b[31m\x07b'")
    assert (done.returncode, "a?[31m?b" in done.stderr, "\x1b" in done.stderr) == (2, True, False), done.stderr
    assert len(ladder(f"list {'x' * 100_000}").stderr) < 5000
