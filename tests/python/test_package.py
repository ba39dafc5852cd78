"""The PyTorch package in the tools: whose headers it is compiled with, which Python tests it, and what is said without any."""

import subprocess
import zipfile
from pathlib import Path

import pytest

from cli import package, paths, verbs

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    for name in ("LADDER_TORCH_INCLUDE", "LADDER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LADDER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(package.importlib.util, "find_spec", lambda name: None)
    return tmp_path / "cache"


def test_headers_are_those_that_are_named_then_installed_then_fetched_once(cache, monkeypatch):
    fetched = []

    def download(what, pin, folder, log, more):
        folder.mkdir(parents=True)
        fetched.append((pin, more))
        with zipfile.ZipFile(folder / "torch.whl", "w") as archive:
            for name in ("torch/include/torch/version.h", "torch/include/ATen/ATen.h", "torch/lib/libtorch.so"):
                archive.writestr(name, "x")
        return folder / "torch.whl"

    monkeypatch.setattr(package.wheels, "download", download)
    for _ in range(2):
        folder = package.headers()
    assert folder.parent == cache and [file.name for file in folder.rglob("*.h")] == ["version.h"]
    assert len(fetched) == 1 and fetched[0][0] == package.TORCH and not list(cache.glob("*.partial"))

    installed = cache / package.TORCH.replace("==", "-") / "lib/python3.11/site-packages/torch/include"
    installed.mkdir(parents=True)
    assert package.headers() == installed
    monkeypatch.setenv("LADDER_TORCH_INCLUDE", "/some/include")
    assert package.headers() == Path("/some/include")


def test_pytorch_is_fetched_once_and_a_new_pin_is_added_to_it(cache, monkeypatch):
    done = []

    def logged(what, command, *_):
        done.append(what.split()[0])
        if done[-1] == "making":
            command[-1].mkdir()

    monkeypatch.setattr(package.run, "logged", logged)
    for _ in range(2):
        package.fetch_torch()
    assert done == ["making", "fetching"]
    home = cache / package.TORCH.replace("==", "-")
    (home / "kept").touch()
    monkeypatch.setattr(package, "_WITH_TORCH", [package.TORCH, "more==1"])
    for _ in range(2):
        package.fetch_torch()
    assert done == ["making", "fetching", "fetching"]
    assert (home / "kept").exists() and not list(cache.glob("*.partial"))


def test_without_pytorch_its_tests_are_skipped_with_a_line(monkeypatch, capfd):
    monkeypatch.setattr(package, "python", lambda: None)
    assert str(package.test("emulator")) == "0 passed, 0 failed, 1 skipped"
    assert "the PyTorch package: skipped, there is no PyTorch; ./ladder setup --torch" in capfd.readouterr().err


def test_the_python_is_the_named_one_if_it_has_pytorch(tmp_path, monkeypatch):
    named = tmp_path / "python"
    for status in (0, 1):
        named.write_text(f'#!/bin/sh\ncase "$2" in *"import pytest, torch") exit {status};; esac\nexit 9\n')
        named.chmod(0o755)
        monkeypatch.setenv("LADDER_PYTHON", str(named))
        monkeypatch.setattr(package.sys, "executable", "/no/such/python")
        assert package.python() == (named if status == 0 else None)


def test_build_python_builds_the_library_and_nothing_else(monkeypatch):
    built = []
    monkeypatch.setattr(package, "headers", lambda: Path("/some/include"))
    monkeypatch.setattr(
        package.build, "build", lambda preset, options, targets: built.append((preset, options, targets))
    )
    assert verbs.build(["--preset", "emulator", "python"]) == 0
    assert built == [("emulator", ["-DLADDER_TORCH_INCLUDE=/some/include"], ["ladder_python"])]


def test_test_python_ends_with_the_totals(monkeypatch, capfd):
    monkeypatch.setattr(package, "test", lambda preset, options: package.Totals(2, 1, 0))
    assert verbs.test(["--preset", "emulator", "python"]) == 1
    assert capfd.readouterr().out.splitlines()[-1] == "2 passed, 1 failed, 0 skipped"


def test_a_package_is_asked_for_in_the_help():
    done = subprocess.run([paths.ROOT / "ladder", "test", "--help"], capture_output=True, text=True, check=True)
    assert "python: the PyTorch package" in " ".join(done.stdout.split())
