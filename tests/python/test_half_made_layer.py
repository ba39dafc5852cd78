"""A layer that lacks a part is named and left out of the build; the others are in it."""

import subprocess
from pathlib import Path

import pytest

from cli import build, tools

ROOT = Path(__file__).resolve().parents[2]

PROJECT = f"""\
cmake_minimum_required(VERSION 3.24)
project(toy LANGUAGES NONE)
include({ROOT}/cmake/LadderLayer.cmake)
ladder_find_layers(layers)
message(STATUS "built: ${{layers}}")
"""
PARTS = ("dev/{0}/{0}.cpp", "dev/{0}/shapes.txt", "dev/{0}/fprop/v01_naive.cu")
PARTS += ("reference/{0}_reference.cpp", "bench/bench_{0}.cpp")


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("", encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    if not (tools.cmake() and tools.ninja()):
        pytest.skip("no CMake, or no Ninja")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    for layer in ("add", "sum"):
        for part in ("dev/{0}/{0}.h", *PARTS):
            write(tmp_path / part.format(layer))
    write(tmp_path / "dev" / "common" / "vectors.h")
    return tmp_path


def configured(tree, monkeypatch):
    """(layers that are built, lines that `./ladder` says of others)."""
    folder = tree / "build" / "emulator"
    ninja = f"-DCMAKE_MAKE_PROGRAM={tools.ninja()}"
    command = [tools.cmake(), "-G", "Ninja", ninja, "-S", tree, "-B", folder]
    said = subprocess.run(command, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    monkeypatch.setattr(build, "BUILD", tree / "build")
    lines = build._left_out("emulator")
    assert all(f"-- {line}\n" in said.stdout for line in lines)
    return said.stdout.split("-- built: ")[1].split("\n")[0].split(";"), lines


def test_whole_layers_are_built(tree, monkeypatch):
    assert build._left_out("no such build") == []
    assert configured(tree, monkeypatch) == (["add", "sum"], [])


@pytest.mark.parametrize("part", PARTS)
def test_a_layer_without_a_part_is_left_out_until_it_has_it(tree, monkeypatch, part):
    part = part.format("add")
    (tree / part).unlink()
    named = part.replace("fprop/v01_naive", "*/v*")
    assert configured(tree, monkeypatch) == (["sum"], [f"dev/add is left out: there is no {named}"])
    write(tree / part)
    assert configured(tree, monkeypatch) == (["add", "sum"], [])


def test_a_header_alone_is_one_line(tree, monkeypatch):
    write(tree / "dev" / "half" / "half.h")
    (line,) = configured(tree, monkeypatch)[1]
    assert line == "dev/half is left out: there is no " + ", ".join(
        part.format("half").replace("fprop/v01_naive", "*/v*") for part in PARTS
    )
