"""Table of training steps on several GPUs in docs/several_gpus.md, made from each device's newest records
(results/SCHEMA.md):

results/<device>/<date>_<commit>_training-ranks.json           ./ladder train --gpus N --compare ranks=... --json FILE
results/<device>/<date>_<commit>_training-ranks-strong.json    the same with the batch of one GPU
results/<device>/<date>_<commit>_training-pytorch-ranks.json   reference/pytorch/unet_speed.py --gpus N --json FILE
"""

import statistics
from pathlib import Path

from compare import steps
from readme import generated
from readme.train_budget import PYTORCH, newest

PAGE = Path("docs") / "several_gpus.md"
_NOTHING = "*No record yet: the commands above on several GPUs make one.*\n"
_HEAD = "| ranks | images | step | ms | to the first | images/s |\n| ---: | ---: | --- | ---: | ---: | ---: |\n"


def filled(root, text):
    """docs/several_gpus.md's `text` with the table between the markers `training:begin ranks`."""
    tables = (_table(folder) for folder in sorted((root / "results").glob("*/")))
    return generated.filled(text, "ranks", "\n".join(filter(None, tables)) or _NOTHING)


def _table(folder):
    rows, commits, device = [], [], ""
    for kind in ("training-ranks", "training-ranks-strong"):
        record = newest(folder, kind, steps.SCHEMA)
        if record:
            device = record["device"]
            commits.append(record.commit)
            rows += _step_rows(record)
    record = newest(folder, "training-pytorch-ranks", PYTORCH)
    if record:
        device = device or record["versions/gpu"]
        commits.append(record.commit)
        rows += _pytorch_rows(record)
    if not rows:
        return ""
    return f"**{device}**, commit {' and '.join(dict.fromkeys(commits))}:\n\n{_HEAD}" + "".join(
        f"| {' | '.join(row)} |\n" for row in rows
    )


def _step_rows(record):
    """A row for each side. `ranks=alone` is one GPU with its part of the batch, so its images are those of one."""
    ranks, batch, first = record.number("ranks"), record.number("config/batch"), record["sides"][0]["seconds"]
    for side in record["sides"]:
        alone = "sum_times" not in side
        images = batch // ranks if alone else batch
        ms = 1e3 * statistics.median(side["seconds"])
        ratio = statistics.median(own / other for own, other in zip(side["seconds"], first))
        yield _row(1 if alone else ranks, images, f"`{side['name']}`", ms, f"{ratio:.3f} x")


def _pytorch_rows(record):
    for name, told in record["variants"].items():
        if "error" not in told:
            step = f"PyTorch's DistributedDataParallel, `{name}`, buckets of {record['bucket_mb']:g} MB"
            yield _row(record["gpus"], record["batch"], step, record.number(f"variants/{name}/ms"), "")


def _row(ranks, images, step, ms, ratio):
    return [f"{ranks}", f"{images}", step, f"{ms:.3f}", ratio, f"{1e3 * images / ms:.0f}"]
