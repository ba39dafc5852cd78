"""tools/dev/launch_nvcc.py: which architectures a source is compiled for, and where ptxas's report goes."""

import sys
from pathlib import Path

import pytest

from dev import launch_nvcc

ROOT = Path(__file__).resolve().parents[2]

OLD = "--generate-code=arch=compute_80,code=[compute_80,sm_80]"
NEW = "--generate-code=arch=compute_90a,code=[sm_90a]"
NEEDS_90 = "LADDER_VERSION(Forward, {.launch = launch, .min_arch = 90})"


def test_older_ones_than_the_version_needs_are_left_out():
    assert launch_nvcc.for_source(["nvcc", OLD, NEW, "-c", "a.cu"], NEEDS_90) == ["nvcc", NEW, "-c", "a.cu"]


def test_a_version_for_older_ones_gets_all():
    command = ["nvcc", OLD, NEW, "-c", "a.cu"]
    assert launch_nvcc.for_source(command, ".min_arch = 80") == command
    assert launch_nvcc.for_source(command, "no version at all") == command


def test_a_build_for_older_ones_alone_still_compiles():
    command = ["nvcc", OLD, "-c", "a.cu"]
    assert launch_nvcc.for_source(command, NEEDS_90) == command


def test_every_version_that_says_so_is_found():
    found = [path for path in ROOT.glob("dev/*/*/v*.cu") if ".min_arch = 90" in path.read_text(encoding="utf-8")]
    assert len(found) > 10
    for path in found:
        assert OLD not in launch_nvcc.for_source([OLD, NEW], path.read_text(encoding="utf-8")), path.name


COMPILER = """import sys
print("ptxas info    : Used 40 registers")
print("a.cu(3): warning: something")
open(sys.argv[sys.argv.index("-o") + 1], "w").close()
sys.exit("--fail" in sys.argv)
"""


@pytest.mark.parametrize(
    ("options", "expected"), [([], (0, "ptxas info    : Used 40 registers\n")), (["--fail"], (1, None))]
)
def test_what_ptxas_says_is_kept_beside_the_object_of_a_compilation_that_succeeded(tmp_path, options, expected):
    compiler, source, result = (tmp_path / name for name in ("compiler.py", "a.cu", "a.o"))
    compiler.write_text(COMPILER, encoding="utf-8")
    source.write_text(NEEDS_90, encoding="utf-8")
    code = launch_nvcc.main(["", sys.executable, str(compiler), "-c", str(source), "-o", str(result), *options])
    report = tmp_path / "a.o.ptxas"
    assert (code, report.read_text(encoding="utf-8") if report.exists() else None) == expected
