"""The package as pip installs it: a wheel for every Python, of the library that the source tree has compiled."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ladder_torch
import policy_network as network
from ladder_torch import library

ROOT = Path(ladder_torch.__file__).resolve().parents[2]
# The library that runs here: there may be one for CUDA, and no GPU.
HALF = library.EMULATOR if ladder_torch.status()["cuda"] else library.CUDA


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the wheel's files, and nothing of the source tree on the path."""
    pytest.importorskip("scikit_build_core")
    if HALF.missing():
        pytest.skip(HALF.missing())
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "-C", f"cmake.define.LADDER_COMPILED={HALF.file}"]
    options += ["-C", f"build-dir={folder / 'build'}"]
    subprocess.run([*pip, "wheel", ROOT, "-w", folder, *options], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith("ladder_torch-") and "-py3-none-" in wheel.name
    subprocess.run([*pip, "install", wheel, "--no-deps", "--target", folder / "site"], check=True, timeout=120)
    return folder / "site"


def run(installed, *words):
    return subprocess.run(
        [sys.executable, *words],
        cwd=installed.parent,
        env={"PYTHONPATH": str(installed), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_works_where_nothing_else_of_the_tree_is(installed):
    program = (
        "import torch, ladder_torch; from ladder_torch import library; print(ladder_torch.__file__);"
        f"half = library.{HALF.name.upper()}; half.device == 'cpu' and ladder_torch.cpu('emulator');"
        "x = torch.randn(2, 32, 4, 4).to(half.device).to(memory_format=torch.channels_last);"
        "y = ladder_torch.GN_NHWC(8, 32, activation='silu').to(half.device)(x);"
        "torch.testing.assert_close(y, torch.nn.functional.silu(torch.nn.functional.group_norm(x, 8)));"
        "print(ladder_torch.explain())"
    )
    done = run(installed, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed)) and "groupnorm/forward" in done.stdout
    assert "no record" not in done.stdout, "the promotion table is in the wheel"


def test_the_exporter_is_in_it(installed):
    torch.save(network.tiny().module.state_dict(), installed.parent / "policy.pt")
    done = run(installed, "-m", "ladder_torch.export", "policy.pt", "policy.safetensors")
    assert done.returncode == 0 and "policy.safetensors: the only weights" in done.stdout, done.stderr
    assert (installed.parent / "policy.safetensors").is_file()


BUILT = sorted({half.file for half in library.halves()} | set(ROOT.glob("build/*/python/_*.so")))


@pytest.mark.parametrize("file", BUILT, ids=lambda file: file.name)
def test_a_library_loads_exports_one_function_and_needs_no_abi_of_pytorchs_cpp(file):
    program = f"import torch; torch.ops.load_library({str(file)!r})"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert loaded.returncode == 0, loaded.stderr
    exported = subprocess.run(["nm", "-D", "--defined-only", file], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in exported.splitlines()] == ["ladder_torch_ask"]
    wanted = subprocess.run(["nm", "-DC", "--undefined-only", file], capture_output=True, text=True, check=True).stdout
    foreign = [
        line for line in wanted.splitlines() if any(word in line for word in ("c10::", "at::", "torch::", " Py"))
    ]
    assert not foreign
    needed = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu.so" in needed and "libtorch_python" not in needed and "libc10" not in needed
