"""Constructs that the emulator lacks, as docs/emulator.md lists them: found in a source with their lines, and nowhere else."""

import re
from pathlib import Path

import pytest

from cli import check, constructs
from registry import listing
from search import trial

ROOT = Path(__file__).resolve().parents[2]


def found(text):
    return [(line, word) for line, word, _ in constructs.scan(text)]


def example(word):
    """A line of code with a pattern of the table."""
    if word.endswith("/"):
        return f"#include <{word}header.h>"
    return re.sub(r"\[(\w)[^]]*\]", r"\1", word.replace("*", "xy"))


@pytest.mark.parametrize("word", [word for word, _ in constructs.table()])
def test_each_word_of_the_page_is_found_in_code_alone(word):
    code = example(word)
    assert [line for line, _ in found(f"int a;\n{code}\n")] == [2]
    assert found(f"// {code}\n/* {code} */\n") == []
    assert code.startswith("#") or found(f'const char* text = "{code}";\n') == []
    assert re.match(r"\W|extern", code) or found(f"my_{code} x.{code} std::{code}\n") == []


def test_the_page_has_its_rows_and_a_replacement_for_each():
    table = dict(constructs.table())
    assert len(table) > 100
    assert table["__shared__"] == "use LADDER_SHARED(type, name, extents) (core/device.h)"
    assert table["__brkpt("] == "leave it out"
    assert all(table.values())


def test_lines_and_words_as_the_source_has_them():
    text = """\
#include <cub/cub.cuh>
#  include <cooperative_groups.h>
__global__ void kernel(float* y) {
  extern
    __shared__ float a[];
  __shared__ float b[2];  // asm
  asm volatile("membar.gl;");
  y[0] = __vadd4(1, 2) + __fadd_rn(1, 2) + __fadd_rz(1, 2);
  child<<<1, 1>>>(y);
}
int  main() { cudaMalloc (&p, 4); cudaStream_t s; }
"""
    assert found(text) == [
        (1, "<cub/cub.cuh>"),
        (2, "cooperative_groups"),
        (4, "extern __shared__"),
        (6, "__shared__"),
        (7, "asm"),
        (8, "__vadd4"),
        (8, "__fadd_rz"),
        (9, "<<<"),
        (11, "int main"),
        (11, "cudaMalloc"),
    ]


@pytest.mark.parametrize(
    "condition, lines",
    [
        ("#ifdef __CUDACC__", [4]),
        ("#if defined(__CUDACC__)", [4]),
        ("#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800", [4]),
        ("#if __CUDA_ARCH__ >= 900", [4]),
        ("#if 0", [4]),
        ("#ifndef __CUDACC__", [2]),
        ("#if !defined(__CUDACC__)", [2]),
        ("#if 1", [2]),
        ("#if defined(__CUDACC__) || defined(MINE)", [2, 4]),
        ("#if !defined(__CUDACC__) && defined(MINE)", [2, 4]),
        ("#if MINE", [2, 4]),
    ],
)
def test_branches_of_the_preprocessor_that_the_emulator_skips(condition, lines):
    assert found(f"{condition}\nasm(1);\n#else\nasm(2);\n#endif\n") == [(line, "asm") for line in lines]
    assert found(f"#if 0\n{condition}\nasm(1);\n#else\nasm(2);\n#endif\n#endif\n") == []


def test_branches_after_an_elif():
    text = "#ifdef __CUDACC__\nasm(2);\n#elif 1\nasm(4);\n#elif MINE\nasm(6);\n#else\nasm(8);\n#endif\nasm(10);\n#endif\n#else\n"
    assert [line for line, _ in found(text)] == [4, 10]


def test_names_that_the_source_defines_do_not_count():
    assert found("__device__ unsigned __vadd4(int a, int b);\nint x = __vadd4(1, 2);\n") == []
    assert found("#define __brkpt()\nvoid f() { __brkpt(); }\n") == []
    assert found("static float f() { return 0; }\nint x = __vadd4(1, 2);\n") == [(2, "__vadd4")]


def test_what_the_emulator_has_is_not_found():
    calls = [
        "__nanosleep(20)",
        "__dp4a(1, 2, 3)",
        "h2exp(x)",
        "htanh_approx(x)",
        "__hfma2_relu(a, b, c)",
        "__builtin_assume(n > 0)",
    ]
    assert found(";\n".join(calls)) == []


def test_no_version_has_any():
    files = sorted((ROOT / "dev").rglob("v*.cu"))
    assert len(files) > 100
    assert [(file.name, *each) for file in files for each in constructs.scan(file.read_text(encoding="utf-8"))] == []


def test_a_summary_is_one_short_line():
    text = "int main() {\n" + "cudaMalloc(p);\ncudaFree(p);\n" * 50 + "}\n__shared__ int a;\n"
    said = constructs.summary(constructs.scan(text))
    assert said == (
        "line 1, 2, 3, 4, 5, ...: int main, cudaMalloc, cudaFree: leave it out: allocation, copies and checks are the "
        "harness's; line 103: __shared__: use LADDER_SHARED(type, name, extents) (core/device.h)"
    )


@pytest.mark.parametrize("preset, reason", [("emulator", True), ("cuda", False)])
def test_try_names_them_before_it_compiles(monkeypatch, tmp_path, preset, reason):
    monkeypatch.setattr(trial.launch_nvcc, "for_source", lambda words, source: words)
    monkeypatch.setattr(trial, "_headers", lambda place: {})
    monkeypatch.setattr(trial.sandbox, "command", lambda words, **more: words)
    monkeypatch.setattr(trial.sandbox, "run", lambda command, seconds: (0, ""))
    words = ["c++", "-c", "a", "-o", "b"]
    place = trial.Workplace(listing.Pass("silu", "forward", ()), preset, words, words)
    said = trial._compiled(place, "void f() { k<<<1, 1>>>(); }\n", tmp_path, trial.Limits())
    expected = (
        "it does not compile for the emulator: line 1: <<<: use launch() or bind_launch() of core/device.h, on the host"
    )
    assert said == (expected if reason else "")


def test_check_names_them_and_compiles_nothing(monkeypatch, tmp_path, capsys):
    versions = tmp_path / "dev" / "toy" / "fprop"
    versions.mkdir(parents=True)
    (versions / "v01_naive.cu").write_text("// Idea:   x.\n\n__shared__ int a;\n")
    monkeypatch.setattr(check.paths, "ROOT", tmp_path)
    monkeypatch.setattr(check.bench, "main", lambda *_: pytest.fail("it was built"))
    assert check.main(["toy/fprop", "--version", "1"]) == 1
    assert "dev/toy/fprop/v01_naive.cu:3: the emulator has no __shared__: use LADDER_SHARED(" in capsys.readouterr().err
