"""Errors of the package for an unsuitable PyTorch, compiled library or environment setting."""

import ast
import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ladder_torch
from ladder_torch import library

PACKAGE = Path(ladder_torch.__file__).resolve().parent


def last_line(program, path=PACKAGE.parent, **variables):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(path), **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return (done.stdout + done.stderr).strip().splitlines()[-1]


def test_no_pytorch():
    line = last_line("import sys; sys.modules['torch'] = None; import ladder_torch")
    assert line.startswith("ImportError: ladder_torch needs PyTorch 2.10 or newer, and there is none: ")


def test_an_old_pytorch(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2.9.1+cu128'\n")
    line = last_line("import ladder_torch", f"{tmp_path}:{PACKAGE.parent}")
    assert line == "ImportError: ladder_torch needs PyTorch 2.10 or newer; this is 2.9.1+cu128"


@pytest.fixture
def bare(tmp_path):
    """The package without a compiled library."""
    shutil.copytree(PACKAGE, tmp_path / "ladder_torch", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def test_without_a_library_formulas_run_and_the_rest_is_explained(bare):
    program = """
import torch, ladder_torch
def said(call):
    try:
        return call()
    except RuntimeError as error:
        return str(error)
print([ladder_torch.group_norm_act(torch.ones(1, 2, 3), 1).sum().item(), ladder_torch.status()["cuda"],
       said(lambda: ladder_torch.cpu("emulator")), said(lambda: ladder_torch.use("groupnorm/forward", "v09"))])
"""
    without = "ladder_torch was built without _{}.so; python/README.md says how it is made"
    assert last_line(program, bare) == str(
        [0.0, without.format("cuda"), without.format("emulator"), "ladder_torch was built without a compiled library"]
    )


def test_a_damaged_library_does_not_keep_the_package_from_being_imported(bare):
    (bare / "ladder_torch" / "_cuda.so").write_bytes(b"\x7fELF, and cut off")
    line = last_line(
        "import torch; torch.version.cuda = '13.0'; import ladder_torch; print(ladder_torch.status())", bare
    )
    assert f"_cuda.so does not load beside PyTorch {torch.__version__}: " in line


def test_an_import_takes_along_neither_the_compiler_nor_a_gpu():
    """torch._dynamo alone takes seconds."""
    program = (
        "import sys, torch; before = set(sys.modules); import ladder_torch; print(sorted(set(sys.modules) - before))"
    )
    new = [name for name in ast.literal_eval(last_line(program)) if not name.startswith("ladder_torch")]
    assert not [name for name in new if name.startswith(("torch._dynamo", "torch._inductor"))]
    assert "False" == last_line("import torch, ladder_torch; print(torch.cuda.is_initialized())")


def test_settings_of_the_environment():
    line = "import ladder_torch"
    assert last_line(line, LADDER_TORCH_CPU="nonsense") == "ValueError: cpu('nonsense'): 'formula' or 'emulator'"
    if not library.halves():
        pytest.skip("no compiled library")
    used = "import sys, ladder_torch; print(sys.modules['ladder_torch.versions']._used)"
    assert last_line(used, LADDER_TORCH_USE="groupnorm/forward=v09,gemm/fprop=v02") == (
        "{'groupnorm/forward': 'v09', 'gemm/fprop': 'v02'}"
    )
    assert "has no version 'v77'; it has: v01_naive" in last_line(used, LADDER_TORCH_USE="groupnorm/forward=v77")


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_a_failed_launch_says_how_to_reproduce_it(kernels):
    if kernels != "cpu":
        pytest.skip("on a GPU a bad access is no exception")
    nowhere = torch.frombuffer(mmap.mmap(-1, mmap.PAGESIZE, prot=0), dtype=torch.float32)
    x = nowhere.as_strided((1, 8, 2, 2), (32, 1, 16, 8))
    words = (
        r"groupnorm/forward v01_naive: dev/groupnorm/.*\nto reproduce: ./ladder bench groupnorm/forward --version 1 "
    )
    with ladder_torch.use("groupnorm/forward", "v01"), pytest.raises(RuntimeError, match=f"(?s){words}"):
        torch.ops.ladder.group_norm_act(x, None, None, 4, 1e-5, "silu")
