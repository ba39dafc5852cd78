"""A program built with some of its layer's versions, and its effect on the full program."""

import subprocess
from pathlib import Path

import pytest

from cli import partial, tools
from cli.errors import Failure
from registry import listing, selection

ROOT = Path(__file__).resolve().parents[2]

# build.ninja in CMake's form, with `cat` as compiler and linker.
BUILD = """\
rule compile
  command = cat $in > $out
rule link
  command = $PRE_LINK && cat $FLAGS $in > $TARGET_FILE && $POST_BUILD
build dev/toy/toy.cpp.o: compile src/toy.cpp
build dev/toy/fprop/v01_naive.cu.o: compile src/v01
build dev/toy/fprop/v02_tile.cu.o: compile src/v02
build dev/toy/dgrad/v01_naive.cu.o: compile src/v01
build toy: phony dev/toy/toy.cpp.o dev/toy/fprop/v01_naive.cu.o dev/toy/fprop/v02_tile.cu.o
build bench_toy: link dev/toy/toy.cpp.o dev/toy/fprop/v01_naive.cu.o dev/toy/fprop/v02_tile.cu.o $
dev/toy/dgrad/v01_naive.cu.o | src/library || toy
  FLAGS = src/flags
  POST_BUILD = touch linked
  PRE_LINK = :
  TARGET_FILE = bench_toy

build all: phony bench_toy
""".replace("$\n", "")


def part(*names):
    return partial.Part("bench_toy", "fprop-2", "toy", frozenset(f"dev/toy/{name}.cu" for name in names))


@pytest.fixture
def build(tmp_path):
    if tools.ninja() is None:
        pytest.skip("no ninja")
    (tmp_path / "src").mkdir()
    for name in ("toy.cpp", "v01", "v02", "library", "flags"):
        (tmp_path / "src" / name).write_text(f"{name} ")
    (tmp_path / "build.ninja").write_text(BUILD)

    def run(*words):
        done = subprocess.run([tools.ninja(), "-C", tmp_path, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        return tmp_path

    return run


def test_it_compiles_what_it_has_and_the_whole_program_the_rest(build):
    some = part("fprop/v02_tile")
    folder = build("-t", "targets")
    partial.write(some, folder)
    build("-f", some.ninja_file, some.target)
    assert (folder / some.target).read_text() == "flags toy.cpp v02 "
    assert not any((folder / name).exists() for name in ("dev/toy/fprop/v01_naive.cu.o", "bench_toy", "linked"))
    build()
    assert (folder / "bench_toy").read_text() == "flags toy.cpp v01 v02 v01 "
    assert (folder / "linked").exists()
    (folder / "src" / "v02").write_text("new ")
    build("-f", some.ninja_file, some.target)
    assert (folder / some.target).read_text() == "flags toy.cpp new "
    assert (folder / "bench_toy").read_text() == "flags toy.cpp v01 v02 v01 "


def test_its_file_changes_only_with_what_it_says(build):
    some = part("fprop/v02_tile")
    folder = build("-t", "targets")
    partial.write(some, folder)
    before = (folder / some.ninja_file).stat()
    partial.write(some, folder)
    assert (folder / some.ninja_file).stat() == before
    (folder / "build.ninja").write_text(BUILD.replace("src/flags", "src/toy.cpp"))
    partial.write(some, folder)
    build("-f", some.ninja_file, some.target)
    assert (folder / some.target).read_text() == "toy.cpp toy.cpp v02 "


def test_a_version_to_debug_has_an_object_of_its_own():
    compiled = (
        "build dev/toy/fprop/v02_tile.cu.o: {}_COMPILER src/v02 | pch || toy\n  DEP_FILE = v02.d\n  FLAGS = -O1\n"
    )
    there = "dev/toy/fprop/v02_tile.cu"
    some = partial.Part("bench_toy", "fprop-2-debug", "toy", frozenset([there]), there)
    for language, symbols in (("CXX", "-O0 -g3 -Wno-invalid-pch"), ("CUDA", "-g -G")):
        text = partial.statements(
            some, BUILD.replace("build dev/toy/fprop/v02_tile", compiled.format(language) + "build x")
        )
        mine = "partial/fprop-2-debug/dev/toy/fprop/v02_tile.cu.o"
        assert f"build {mine}: {language}_COMPILER src/v02 | pch || toy\n" in text
        assert f"  DEP_FILE = {mine}.d\n  FLAGS = -O1 {symbols}\n" in text
        assert f"build partial/fprop-2-debug/bench_toy: link dev/toy/toy.cpp.o {mine} | src/library\n" in text


def test_a_program_that_is_not_there():
    with pytest.raises(Failure, match="^the build makes no bench_toy$"):
        partial.statements(part(), "build test_bench_toy: phony all\n")


def test_which_versions_need_the_whole_program():
    there = listing.read(ROOT)

    def of(path, text):
        a_pass = there.find(path)
        return partial.of("bench_conv3x3", {path: selection.versions(a_pass, text)}, text)

    fprop = of("conv3x3/fprop", "7")
    assert fprop.sources == {"dev/conv3x3/fprop/v07_wmma_double_buffer.cu"}
    assert fprop.target == "partial/fprop-7/bench_conv3x3"
    assert of("conv3x3/dgrad", "1,2").name == "dgrad-1-2"
    assert of("conv3x3/dgrad", "1,4") is None  # v04 launches a version of fprop
    assert of("conv3x3/fprop", "all") is None
    assert of("conv3x3/fprop", "best") is None
