"""`./ladder test --fuzz`: which programs it runs, with which seeds, and how it ends."""

import re
from pathlib import Path

import pytest

from cli import build, fuzz, setup, verbs
from cli.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Stand-ins, {name: exit status}, for the programs of a build; each prints its words."""
    folder = tmp_path / "tests" / "fuzz"
    folder.mkdir(parents=True)
    monkeypatch.setattr(build, "folder", lambda preset: tmp_path)
    monkeypatch.setattr(build, "build", lambda *_: None)
    monkeypatch.setattr(setup, "program", lambda *_: "clang++")

    def make(**statuses):
        for name, status in statuses.items():
            file = folder / f"fuzz_{name}"
            file.write_text(f'#!/bin/sh\necho "$@" >&2\necho Done\nexit {status}\n')
            file.chmod(0o755)

    return make


def test_every_program_runs_from_its_seeds_and_one_fault_fails_all(programs, capsys):
    programs(npy=0, ldata=0)
    assert fuzz.run(7, ()) == 0
    assert capsys.readouterr().out == "2 passed, 0 failed, 0 skipped\n"
    programs(npy=77)
    assert fuzz.run(7, ()) == 1
    out, said = capsys.readouterr()
    assert out.endswith("1 passed, 1 failed, 0 skipped\n") and "-max_total_time=7" in out
    assert str(ROOT / "tests" / "fuzz" / "seeds" / "npy") in out and "fuzz_npy FILE" in said


def test_a_build_without_a_program_is_no_success(programs):
    assert fuzz.run(7, ()) == 1


def test_fuzz_stands_alone():
    with pytest.raises(UsageError, match="--fuzz takes no other word than --werror: 'silu'"):
        verbs.test(["--fuzz", "silu"])


def test_every_target_has_seeds():
    names = re.findall(r"^ladder_fuzz\((\w+)", (ROOT / "tests" / "fuzz" / "CMakeLists.txt").read_text(), re.MULTILINE)
    assert {"safetensors", "npy", "scheduler", "ldata", "metadata"} <= set(names)
    assert {path.stem for path in (ROOT / "tests" / "fuzz").glob("*.cpp")} == set(names)
    for name in names:
        seeds = list((ROOT / "tests" / "fuzz" / "seeds" / name).iterdir())
        assert seeds and all(0 < seed.stat().st_size < 4096 for seed in seeds)
