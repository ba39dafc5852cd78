"""tools/dev/objects.py: what a version's object file may refer to and keep."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dev import objects

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "emulator"
CHEATS = sorted((ROOT / "tests" / "wrong" / "static").glob("*.cu"))
VERSIONS = sorted((ROOT / "dev").glob("*/*/v*.cu"))


def cached(name):
    cache = BUILD / "CMakeCache.txt"
    found = (
        re.search(rf"^{name}:\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE) if cache.is_file() else None
    )
    return found[1] if found else ""


def test_there_are_cheats_and_versions():
    assert len(CHEATS) >= 12
    assert VERSIONS


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda path: path.stem)
def test_a_cheat_is_refused(cheat, tmp_path):
    compiler = cached("CMAKE_CXX_COMPILER")
    if not compiler:
        pytest.skip("no build/emulator: ./ladder build --preset emulator")
    output = tmp_path / "v99_cheat.cu.o"
    command = [compiler, "-x", "c++", "-std=c++20", "-O0", f"-I{ROOT}", f"-isystem{cached('LADDER_CUDA_INCLUDE')}"]
    subprocess.run([*command, "-c", str(cheat), "-o", str(output)], check=True, timeout=300)
    expected = re.match(r"// Refused: (.*)", cheat.read_text(encoding="utf-8"))[1]
    found = objects.faults_of(output, f"dev/toy/fprop/{output.name}")
    assert any(fault.startswith(expected) for fault in found), found


def test_no_version_is_refused():
    paths = [path for path in sorted(BUILD.rglob("v*.cu.o")) if objects.VERSION.search(str(path))]
    if not paths or not shutil.which("objdump"):
        pytest.skip("no version's object in build/emulator: ./ladder build --preset emulator")
    found = {str(path.relative_to(BUILD)): objects.faults_of(path) for path in paths}
    assert not {path: faults for path, faults in found.items() if faults}


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_a_source_is_the_same_to_every_compiler(version):
    assert objects.source_faults(version.read_text(encoding="utf-8")) == []


def test_no_header_of_the_kernels_has_loads_that_may_move_above_a_wait():
    found = {str(path): objects.source_faults(path.read_text(encoding="utf-8")) for path in ROOT.glob("dev/**/*.h")}
    assert len(found) > 50
    assert {path: faults for path, faults in found.items() if {"says __ldg", "says __restrict__"} & {*faults}} == {}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("#if defined(__CUDACC__)", "says #if"),
        ("  #  ifdef LADDER_EMULATOR", "says #if"),
        ("auto* x = const_cast<float*>(t.x);", "says const_cast"),
        ("const float first = __ldg(t.x);", "says __ldg"),
        ("void kernel(const float* __restrict__ x)", "says __restrict__"),
    ],
)
def test_a_source_that_is_not(line, fault):
    assert objects.source_faults(f"int x;\n{line}\n") == [fault]
