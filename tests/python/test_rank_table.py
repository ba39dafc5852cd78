"""The table of docs/several_gpus.md, from made records."""

import json

from compare import steps
from readme import rank_table
from readme.train_budget import PYTORCH

MARKERS = "<!-- training:begin ranks -->\n<!-- training:end -->\n"


def put(root, name, record):
    folder = root / "results" / "h200"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(record), encoding="utf-8")


def compared(batch, *sides):
    return {
        "schema": steps.SCHEMA,
        "created": "2026-11-29T00:00:00Z",
        "device": "NVIDIA H200",
        "ranks": 2,
        "config": {"batch": batch},
        "sides": list(sides),
    }


def test_without_records_the_page_says_so(tmp_path):
    assert "No record yet" in rank_table.filled(tmp_path, MARKERS)


def test_images_are_those_of_the_ranks_that_step_together(tmp_path):
    alone = {"name": "ranks=alone", "seconds": [0.004, 0.004, 0.005]}
    together = {"name": "ranks=all", "seconds": [0.005, 0.005, 0.005], "sum_times": {}}
    put(tmp_path, "2026-11-29_abc_training-ranks.json", compared(64, alone, together))
    put(tmp_path, "2026-11-29_abd_training-ranks-strong.json", compared(32, together))
    text = rank_table.filled(tmp_path, MARKERS)
    assert "**NVIDIA H200**, commit abc and abd:" in text
    assert "| 1 | 32 | `ranks=alone` | 4.000 | 1.000 x | 8000 |" in text
    assert "| 2 | 64 | `ranks=all` | 5.000 | 1.250 x | 12800 |" in text
    assert "| 2 | 32 | `ranks=all` | 5.000 | 1.000 x | 6400 |" in text


def test_pytorch_stands_beside_unless_it_failed(tmp_path):
    record = {
        "schema": PYTORCH,
        "created": "2026-11-29T00:00:00Z",
        "gpus": 2,
        "batch": 64,
        "bucket_mb": 25,
        "versions": {"gpu": "NVIDIA H200"},
        "variants": {"graph": {"ms": 12.8}, "compile_bf16": {"error": "no"}},
    }
    put(tmp_path, "2026-11-29_abe_training-pytorch-ranks.json", record)
    text = rank_table.filled(tmp_path, MARKERS)
    assert "| 2 | 64 | PyTorch's DistributedDataParallel, `graph`, buckets of 25 MB | 12.800 |  | 5000 |" in text
    assert "compile_bf16" not in text
