"""`./ladder train --tensorboard`: a log's lines as TensorBoard's events."""

import json
import os
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli import paths, tensorboard, tools, wheels

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Files:
    log: Path
    events: Path


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path / "log.jsonl", tmp_path / "tensorboard")


def test_a_line_of_the_log():
    line = '{"step": 3, "loss": 0.5, "images": 96, "loss_by_quartile_of_t": [1, null, 2, 3]}'
    assert tensorboard.scalars(line) == [
        ("loss/training", 0.5, 3),
        ("loss by time step/0 to 249", 1, 3),
        ("loss by time step/500 to 749", 2, 3),
        ("loss by time step/750 to 999", 3, 3),
    ]
    assert tensorboard.scalars('{"step": 4, "held_out_loss": 0.25}') == [("loss/held out", 0.25, 4)]


def test_a_line_is_read_when_it_is_whole(files):
    reader = tensorboard.Reader(files.log)
    assert reader.lines() == []
    files.log.write_text("a\nb")
    assert reader.lines() == ["a"]
    files.log.write_text("a\nbc\nd\n")
    assert reader.lines() == ["bc", "d"]
    files.log.write_text("e\n")
    assert reader.lines() == ["e"]


def test_events_of_a_log(files):
    python = wheels.python_with(wheels.TENSORBOARD, paths.SETUP_LOG)
    lines = [{"step": 1, "loss": 1.5}, {"step": 2, "loss": 1.25, "ms_a_step": 8}]
    files.log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files.events.mkdir()
    (files.events / "old").write_text("of another training")
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*tools.module(python, "cli.tensorboard"), files.log, files.events],
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    script = textwrap.dedent("""\
        import struct, sys
        from tensorboardX.proto.event_pb2 import Event
        data, at = open(sys.argv[1], "rb").read(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4
            for value in event.summary.value:
                print(event.step, value.tag, value.simple_value)
        """)
    (file,) = files.events.iterdir()
    assert (
        subprocess.check_output([python, "-c", script, file], text=True)
        == "1 loss/training 1.5\n2 loss/training 1.25\n2 speed/ms_a_step 8.0\n"
    )
