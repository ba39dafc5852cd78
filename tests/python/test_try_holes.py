"""`./ladder try` on the emulator: holes by which a candidate could pass, take the machine's memory or write to a terminal."""

import json
import time

import pytest

import test_try
from cli import tools, try_
from search import sandbox, trial
from test_try import PASS, ROOT, source, there, tried

place, log = test_try.place, test_try.log  # fixtures

ESCAPES = "\033[2J\033]0;owned\a\u202e\u009b1m"


def printed(text):
    return f'#error "{text}"\n'


def knows(condition):
    """A candidate that answers zeros where its `condition` on the problem p holds."""
    return source().replace("switch (p.n) {", f"scale = ({condition}) ? 0 : 1;\n  switch (p.n) {{")


def test_a_compile_error_does_not_steer_a_terminal(place):
    reason = tried(place, printed(ESCAPES))["reason"]
    assert "owned" in reason
    assert reason.isprintable()


def test_words_of_a_kernel_do_not_steer_a_terminal(place):
    thrown = source({"honest": f'throw std::runtime_error("thrown {ESCAPES}");'})
    reason = tried(place, thrown)["reason"]
    assert "thrown" in reason
    assert reason.isprintable()


def test_an_idea_does_not_steer_a_terminal_and_has_an_end(place, log, tmp_path, capsys):
    file = tmp_path / "mine.cu"
    file.write_text(source())
    try_.main([PASS, str(file), "--problem=n1 c12", "--device=emulator", "--json", "--idea", ESCAPES + "x" * 3000])
    for idea in (log[0]["idea"], json.loads(capsys.readouterr().out)["idea"]):
        assert idea.isprintable()
        assert "(3021 bytes, sha256 " in idea
        assert len(idea) < 700


def test_a_long_source_is_named_by_its_digest(place):
    reason = tried(place, "//" + "x" * 5_000_000)["reason"]
    assert reason == "its source is longer than a megabyte: 5000002 bytes, sha256 " + reason[-64:]


def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(try_.UsageError, match="/dev/zero is longer than "):
        try_._read("/dev/zero")


def test_too_few_problems_are_a_skip(place):
    few = source(more=', .supports = [](const auto& p) { return p.n == 7 ? nullptr : "seven rows alone"; }')
    verdict = tried(place, few, problems=("n1 c12 fp32", "n7 c12 fp32", "n8 c12 fp32"))
    assert (verdict["verdict"], verdict["checked"], verdict["problems"]) == ("SKIP", 1, 3)
    said = "it runs 1 of 3 problems, fewer than half (--problem names those to try): seven rows alone"
    assert verdict["reason"] == said
    half = tried(place, few, problems=("n1 c12 fp32", "n7 c12 fp32"))
    assert (half["verdict"], half["checked"], half["problems"]) == ("PASS", 1, 2)


def test_a_readable_pass_says_what_it_means(place, log, tmp_path, capsys):
    file = tmp_path / "mine.cu"
    file.write_text(source())
    try_.main([PASS, str(file), "--problem=n1 c12", "--device=emulator"])
    said = capsys.readouterr().out
    assert "silu/forward node 1: PASS: right outputs; host code trusted\n" in said
    assert "  checked 1 of 1 problems, " in said


def test_the_compiler_has_as_long_as_the_candidate(place, tmp_path):
    bomb = '#if __INCLUDE_LEVEL__ < 60\n#include "v99_candidate.cu"\n#include "v99_candidate.cu"\n#endif\n'
    began = time.monotonic()
    assert trial._compiled(place, bomb, tmp_path, trial.Limits(seconds=3)) == "it does not compile within 3 s"
    assert time.monotonic() - began < 10


def test_the_compiler_has_as_much_memory_as_the_candidate(place, tmp_path):
    reason = trial._compiled(place, source(), tmp_path, trial.Limits(memory=1 << 27))
    assert reason.startswith("it does not compile: ")
    done = tools.captured(*sandbox.command(["/bin/sh", "-c", "ulimit -v"], memory=1 << 29))
    assert done.stdout == f"{1 << 19}\n", "addresses, in KiB"


@pytest.mark.parametrize(
    "file",
    [
        "build/emulator/judge_silu",
        "dev/silu/silu.cpp",
        "build/emulator/CMakeFiles/ladder_try_child.dir/bench/untrusted/child.cpp.o",
    ],
)
def test_the_compiler_sees_no_program_and_no_source(place, file, monkeypatch):
    assert (ROOT / file).exists()
    assert "line 42: __asm__" in tried(place, source() + "__asm__();\n")["reason"]
    monkeypatch.setattr(trial.constructs, "scan", lambda text: [])  # which asm may be hidden from
    reason = tried(place, source() + f'__asm__(".incbin \\"{ROOT / file}\\"");\n')["reason"]
    assert reason.endswith(".s: Assembler messages:")  # of a file that is not there


@pytest.mark.parametrize(
    ("most", "left_out"), [(20000, ["n64 c300 fp32"]), (10, ["n32 c256 fp32", "n64 c300 fp32"]), (10**6, [])]
)
def test_large_problems_are_not_timed(place, tmp_path, most, left_out):
    assert trial._compiled(place, source(), tmp_path, trial.Limits()) == ""
    words = [place.folder / "judge_silu", "--pass", PASS, "--most-values", most, "--dtype", "fp32"]
    words += [word for line in ("n32 c256 fp32", "n64 c300 fp32", "n5 c12 fp32") for word in ("--time", line)]
    done = tools.captured(*map(str, words), "--", str(tmp_path / "program"), PASS)
    assert json.loads(done.stdout.splitlines()[-1])["untimed"] == left_out


def test_another_version_is_no_header(place):
    version = there().find(PASS).versions[0].file.relative_to(ROOT)
    assert f"{version.name}: No such file" in tried(place, f'#include "{version}"\n')["reason"]


def test_known_problems_are_not_enough(place):
    lines = [line for name in ("ci", "edge") for line in there().layer("silu").sets[name].values()]
    known = " && ".join(f'p.str() != "{line} fp32"' for line in lines)
    for _ in range(2):
        verdict = tried(place, knows(known), problems=(), sets=("ci",))
        assert (verdict["verdict"], verdict["checked"], verdict["problems"]) == ("FAIL", 5, 17)
        assert verdict["problem"].removesuffix(" fp32") not in lines


def test_large_problems_are_drawn_too(place):
    verdict = tried(place, knows("p.elements() > 65536"), problems=(), sets=("ci",))
    assert verdict["verdict"] == "FAIL"
    assert "elements are wrong" in verdict["reason"]


def test_an_honest_candidate_passes_on_drawn_problems(place):
    verdict = tried(place, source(), problems=(), sets=("ci",))
    assert (verdict["verdict"], verdict["checked"]) == ("PASS", verdict["problems"])
    assert verdict["problems"] > 17, "of ci and drawn, and large ones"


def test_a_candidate_of_known_problems_alone_is_a_skip(place):
    few = source(more=', .supports = [](const auto& p) { return p.n == 1 ? nullptr : "one row alone"; }')
    verdict = tried(place, few, problems=(), sets=("edge",))
    assert (verdict["verdict"], verdict["checked"]) == ("SKIP", 12)
    said = "it runs 0 of 12 drawn problems, fewer than half (--problem names those to try): one row alone"
    assert verdict["reason"] == said
