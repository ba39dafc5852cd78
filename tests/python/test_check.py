"""`./ladder check`: both halves run, and each can fail it."""

import pytest

from cli import build, check
from cli.errors import Failure

REPORT = """\
ptxas info    : Compiling entry function 'silu_forward_v01_kernel' for 'sm_80'
    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, 128 bytes smem, 408 bytes cmem[0]
"""


@pytest.fixture
def halves(tmp_path, monkeypatch):
    """Set both halves' outcomes: the emulator's status or Failure, nvcc's (success, output), bytes spilled."""
    there = {"emulator": 0, "nvcc": (True, ""), "spilled": 0, "words": None}

    def bench(words, in_place, preset):
        there["words"], there["preset"] = words, preset
        assert not in_place
        if isinstance(there["emulator"], Exception):
            raise there["emulator"]
        print("the emulator's verdict")
        return there["emulator"]

    def compiled(preset, objects):
        for name in objects:
            report = tmp_path / f"{name}.ptxas"
            report.parent.mkdir(parents=True, exist_ok=True)
            report.write_text(REPORT.format(spilled=there["spilled"]))
        return there["nvcc"]

    monkeypatch.setattr(check.bench, "main", bench)
    monkeypatch.setattr(check.build, "folder", lambda preset: tmp_path)
    monkeypatch.setattr(check.build, "compiled", compiled)
    monkeypatch.setattr(check.setup, "has_nvcc", lambda: there["nvcc"] is not None)
    return there


def run(capsys, *words):
    status = check.main(["silu/forward", "--version", "1", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_it_runs_the_ci_problems_and_says_what_nvcc_made(halves, capsys):
    status, out, _ = run(capsys)
    assert status == 0
    assert halves["words"] == "silu/forward --version=1 --set=ci --random=5 --check --device=emulator".split()
    assert out.startswith("the emulator's verdict\n"), "nvcc takes longer"
    assert out.splitlines()[-1].split() == "silu forward v01_naive sm_80 1 40 128 0".split()


def test_it_takes_the_problems_that_are_asked_for(halves, capsys):
    run(capsys, "--problem", "odd", "--problem", "n5 c12", "--dtype", "bf16")
    asked = ["--problem=odd", "--problem=n5 c12", "--dtype=bf16"]
    assert halves["words"] == ["silu/forward", "--version=1", *asked, "--check", "--device=emulator"]
    run(capsys, "--set", "edge")
    assert halves["words"] == "silu/forward --version=1 --set=edge --check --device=emulator".split()


def test_races_are_looked_for_where_that_is_asked_for(halves, capsys):
    run(capsys)
    assert halves["preset"] is None
    run(capsys, "--order")
    assert halves["preset"] == "order"


def test_a_wrong_kernel_fails_it(halves, capsys):
    halves["emulator"] = 1
    assert run(capsys)[0] == 1
    halves["emulator"] = Failure("silu/forward v01 does not compile: a.cu:1: no")
    status, out, err = run(capsys)
    assert (status, "does not compile" in err, "sm_80" in out) == (1, True, True)


def test_one_that_nvcc_refuses_fails_it(halves, capsys):
    halves["nvcc"] = (False, "a.cu(3): error: no such thing\n")
    status, out, err = run(capsys)
    assert (status, out) == (1, "the emulator's verdict\n")
    assert "a.cu(3): error: no such thing\nladder: nvcc does not compile it\n" in err


def test_a_spill_in_silence_fails_it(halves, capsys):
    halves["spilled"] = 64
    status, out, err = run(capsys)
    assert (status, out.split()[-1]) == (1, "64")
    assert "silu_forward_v01_kernel spills on sm_80 (64 bytes stored" in err


def test_without_nvcc_the_emulator_decides(halves, capsys):
    halves["nvcc"] = None
    status, _, err = run(capsys)
    assert (status, "no nvcc, so no registers" in err) == (0, True)
    halves["emulator"] = 1
    assert run(capsys)[0] == 1


def test_the_compilers_words_and_not_ninjas(tmp_path, monkeypatch):
    ninja = tmp_path / "ninja"
    ninja.write_text(
        "#!/bin/sh\necho 'ninja: Entering directory x'\necho '[1/1] Building a.o'\necho 'FAILED: a.o '\n"
        "echo 'nvcc -c a.cu -o a.o'\necho 'a.cu(3): error: no'\necho 'ninja: build stopped'\nexit 1\n"
    )
    ninja.chmod(0o755)
    monkeypatch.setattr(build, "BUILD", tmp_path)
    monkeypatch.setattr(build, "_configure", lambda preset, options: None)
    monkeypatch.setattr(build.tools, "ninja", lambda: str(ninja))
    assert build.compiled("emulator", ["a.o"]) == (False, "a.cu(3): error: no\n")
    ninja.write_text("#!/bin/sh\necho 'ninja: no work to do.'\n")
    assert build.compiled("emulator", ["a.o"]) == (True, "")
