"""`./ladder debug`: where it stops, and what it tells gdb."""

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from cli import debug, device, digests
from cli.errors import Failure

ROOT = Path(__file__).resolve().parents[2]


def test_every_kernel_of_every_version_is_known_by_name():
    for version in sorted(ROOT.glob("dev/*/*/v*.cu")):
        for path in digests.with_includes({version}):
            text = path.read_text()
            kernels = re.findall(r"^(?!\s*//).*__global__", text, re.MULTILINE)
            assert len(debug._KERNEL.findall(text)) == len(kernels), path


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Runs the verb over a build that is there; what it hands over, and the script for gdb."""
    monkeypatch.setattr(debug.device, "choose", lambda wanted: device.Choice("emulator", "for a test"))
    monkeypatch.setattr(debug.build, "build", lambda preset, part: None)
    monkeypatch.setattr(debug.build, "folder", lambda preset: tmp_path)
    monkeypatch.setattr(debug.setup, "program", lambda name, package: f"/bin/{name}")
    monkeypatch.setattr(
        debug.tools,
        "captured",
        lambda *command: subprocess.CompletedProcess(command, 0, "0 t void silu_forward_v01_kernel<float>(unsigned)\n"),
    )
    monkeypatch.setenv("LADDER_WATCHDOG_SECONDS", "20")
    handed = []
    monkeypatch.setattr(debug.run, "handed_over", handed.extend)
    (tmp_path / "partial" / "forward-1-debug").mkdir(parents=True)

    def ask(*arguments):
        handed.clear()
        debug.main(list(arguments))
        script = tmp_path / "partial" / "forward-1-debug" / "bench_silu.gdb"
        return [str(word) for word in handed], script.read_text()

    return ask


def test_it_stops_in_the_thread_that_was_asked_for(asked):
    words, script = asked("silu/forward", "--version", "1", "--problem", "n7 c33 bf16", "--thread", "5", "--block=1,2")
    block, thread = "ladder::simt::detail::current->block_idx", "ladder::simt::detail::current->thread_idx"
    assert (
        f"tbreak silu_forward_v01_kernel if {block}.x == 1 && {block}.y == 2 && {block}.z == 0 "
        f"&& {thread}.x == 5 && {thread}.y == 0 && {thread}.z == 0\nrun\n"
    ) in script
    assert "quit" not in script
    assert words[:3] == ["/bin/gdb", "-q", "-x"] and words[4] == "--args"
    assert words[6:] == ["--pass", "forward", "--version", "1", "--problem", "n7 c33 bf16", "--once"]
    assert debug.os.environ["LADDER_WATCHDOG_SECONDS"] == "0"


def test_cuda_gdb_knows_the_thread_only_once_the_kernel_is_loaded():
    chosen = SimpleNamespace(block=(0, 0, 0), thread=(5, 0, 0))
    script = debug._breaks("cuda", ["silu_kernel"], chosen)
    assert script.startswith("set cuda api_failures ignore\ntbreak silu_kernel -force-condition if blockIdx.x == 0 && ")
    assert "threadIdx.x == 5" in script


def test_words_after_two_dashes_are_gdbs(asked):
    words, script = asked("silu", "--version", "1", "--problem", "odd", "--dtype", "bf16", "--", "--batch", "-ex", "bt")
    assert words[4:8] == ["--batch", "-ex", "bt", "--args"]
    assert words[-2:] == ["--dtype", "bf16"]
    assert "quit 1" in script


def test_a_version_without_a_kernel_of_its_own(asked, monkeypatch):
    monkeypatch.setattr(debug.tools, "captured", lambda *command: subprocess.CompletedProcess(command, 0, "0 T main\n"))
    with pytest.raises(Failure, match="v01_naive.cu has no kernel of its own to stop at"):
        asked("silu", "--version", "1", "--problem", "odd")


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
@pytest.mark.skipif(not (ROOT / "build" / "emulator" / "bench_silu").exists(), reason="no emulator build")
def test_gdb_sees_the_thread():
    def ladder(*more):
        return subprocess.run(
            [
                ROOT / "ladder",
                "debug",
                "silu",
                "--version=1",
                "--problem=odd",
                "--device=emulator",
                "--thread=33",
                *more,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    commands = [
        "--batch",
        *(word for what in ("threadIdx.x", "blockIdx.y", "blockDim.x") for word in ("-ex", f"print {what}")),
    ]
    done = ladder("--", *commands)
    assert done.returncode == 0, done.stderr
    assert "silu_forward_v01_kernel<float> (count=231" in done.stdout
    assert re.findall(r"^\$\d = (.*)$", done.stdout, re.MULTILINE) == ["33", "0", "256"]
    done = ladder("--block=9", "--", *commands)
    assert (done.returncode, "no kernel of it ran in block (9,0,0), thread (33,0,0)\n" in done.stdout) == (1, True)
