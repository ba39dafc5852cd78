"""`--watch`: again at each save, until Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import watch

ROOT = Path(__file__).resolve().parents[2]

# The verb is a script that says which words it got, and ends when it may.
SCRIPT = """\
import sys
from pathlib import Path
from cli import options, paths, watch
paths.ROOT = Path(sys.argv[1])
sys.executable = str(paths.ROOT / "verb")
sys.exit(options.run(lambda words: watch.repeated("bench", ["silu", "--watch", "--check"])))
"""


@pytest.fixture
def watched(tmp_path):
    (tmp_path / "dev").mkdir()
    processes = []

    def start(verb):
        (tmp_path / "verb").write_text(f"#!/bin/sh\n{verb}\n")
        (tmp_path / "verb").chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, tmp_path],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()  # not communicate(), which waits for what the verb left running


def test_again_at_each_save_until_it_is_interrupted(watched, tmp_path):
    process = watched('echo "$@"; exit 1')
    for name in ("v01_naive.cu", "toy.h"):
        assert process.stdout.readline() == f"{ROOT / 'tools'} cli bench silu --check\n"
        assert process.stdout.readline().startswith("ladder: exit status 1 at ")
        (tmp_path / "dev" / name).write_text("saved")
    assert process.stdout.readline() == f"{ROOT / 'tools'} cli bench silu --check\n"
    assert "Ctrl-C ends" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "ladder: interrupted\n"
    assert process.returncode == 130


def test_an_interrupt_ends_what_runs(watched, tmp_path):
    process = watched("trap 'echo stopped; exit 130' INT; echo begun; for i in $(seq 300); do sleep 0.1; done")
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)  # to it alone, not to the group that a terminal would reach
    assert process.communicate(timeout=60)[0] == "stopped\n"
    assert process.returncode == 130


def test_only_sources_count(tmp_path, monkeypatch):
    monkeypatch.setattr(watch.paths, "ROOT", tmp_path)
    folder = tmp_path / "dev" / "toy"
    folder.mkdir(parents=True)
    (folder / "toy.cu").write_text("")
    before = watch._sources()
    for name in (".toy.cu.swp", ".#toy.cu", "toy.cu~", "4913"):
        (folder / name).write_text("")
    assert watch._sources() == before
    os.utime(folder / "toy.cu", ns=(1, 1))
    assert watch._sources() != before
