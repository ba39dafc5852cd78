"""The tables of python/README.md: of each kind the newest record's, and a broken one named."""

import json

import pytest

from readme import torch_tables
from records.record_files import BadRecord

PAGE = "<!-- training:begin torch -->\nold\n<!-- training:end -->\n<!-- training:begin torch-step -->\n<!-- training:end -->\n"


def write(root, name, date, **tables):
    file = root / "results" / "h100" / f"{name}_torch.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    environment = {"gpu": "NVIDIA H100", "torch": "2.11.0", "python": "3.12.3"}
    file.write_text(json.dumps({"schema": "ladder.torch/1", "date": date, "environment": environment, **tables}))


def step(before, after):
    return [
        {"swapped": swapped, "modules_swapped": 141 * swapped, "milliseconds": value, "loss": 1.0}
        for swapped, value in ((False, before), (True, after))
    ]


def test_the_newest_of_each_table(tmp_path):
    assert "No record yet" in torch_tables.filled(tmp_path, PAGE)
    write(tmp_path, "a", "2026-01-02", unet=step(20, 10))
    write(tmp_path, "b", "2026-01-01", unet=step(99, 98), unet_compiled=step(12, 9))
    text = torch_tables.filled(tmp_path, PAGE)
    assert "| NVIDIA H100 | eager | 20.00 | 10.00 | 0.50 | 141 |" in text
    assert "| NVIDIA H100 | torch.compile | 12.00 | 9.00 | 0.75 | 141 |" in text
    assert "eager 20.00 to **10.00 ms**; torch.compile 12.00 to **9.00 ms**" in text
    assert "98" not in text and "old" not in text


def test_every_table(tmp_path):
    times = {
        "ladder_torch": {"forward": 5.0, "backward": 8.0},
        "ladder_torch, fp32 parameters": {"forward": 1.0, "backward": 1.0},
        "eager, channels_last": {"forward": 50.0, "backward": 80.0},
        "eager, NCHW": {"forward": 40.0, "backward": 90.0},
        "compile, channels_last": {"forward": 20.0, "backward": 12.0},
        "compile, NCHW": {"forward": 10.0, "backward": 16.0},
    }
    slower = times | {"ladder_torch": {"forward": 20.0, "backward": 8.0}}
    write(
        tmp_path,
        "a",
        "2026-01-01",
        norm=[{"problem": "n1", "microseconds": slower}, {"problem": "n2", "microseconds": times}],
        bench=[{"problem": "n1", "version": "v09", "operator": 6.0, "kernel": 5.0}],
        host=[{"gradients": True, "microseconds": {"ladder_torch": 30.0, "PyTorch eager": 20.0}}],
    )
    text = torch_tables.filled(tmp_path, PAGE)
    assert (
        "| forward, n2 | 5.0 | 40.0 | 10.0 | 0.50 |" in text and "| backward, n1 | 8.0 | 80.0 | 12.0 | 0.67 |" in text
    )
    assert "| forward, geometric mean |  |  |  | 1.00 |" in text  # of 2.00 and 0.50
    assert "| n1 | v09 | 6.00 | 5.00 | 1.20 |" in text
    assert "| forward and backward | 30 | 20 | 1.50 |" in text


def test_a_broken_record_is_named(tmp_path):
    write(tmp_path, "a", "2026-01-01", unet=step(20, 10))
    file = tmp_path / "results" / "h100" / "b_torch.json"
    for text in ("{", json.dumps({"schema": "ladder.torch/9"}), json.dumps({"schema": "ladder.torch/1"})):
        file.write_text(text)
        with pytest.raises(BadRecord, match="b_torch.json: broken record: "):
            torch_tables.filled(tmp_path, PAGE)
