"""Tables of python/README.md and README.md from the PyTorch package's records (results/<device>/*_torch*.json, written
by python/bench.py): each table's newest record, between the markers `training:begin torch` and `torch-step`."""

import math
import statistics

from cli import json_file
from readme import generated
from records.record_files import BadRecord, named

SCHEMA = "ladder.torch/1"
_NOTHING = "*No record yet: `python3 python/bench.py --json FILE` on a GPU makes one.*\n"
_STEPS = {"unet": "eager", "unet_compiled": "torch.compile"}


def filled(root, text):
    records = _newest(root)
    text = generated.filled(text, "torch-step", _step_line(records))
    tables = [_steps(records), *(_TABLES[name](*records[name]) for name in _TABLES if name in records)]
    return generated.filled(text, "torch", "\n".join(filter(None, tables)) or _NOTHING)


def _newest(root):
    """{table: (its newest record, its rows)}. Throws BadRecord."""
    found = {}
    for file in named(root / "results", "*/*_torch*.json"):
        try:
            record = json_file.read(file)
            if record["schema"] != SCHEMA:
                raise ValueError(f"schema {record['schema']}, this tool reads {SCHEMA}")
            date, _ = record["date"], record["environment"]
            for name in (*_STEPS, *_TABLES):
                if name in record and date > found.get(name, ({"date": ""},))[0]["date"]:
                    found[name] = (record, record[name])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRecord(f"{file}: broken record: {json_file.reason(error)}") from None
    return found


def _heading(record, words):
    return f"**{record['environment']['gpu']}**, PyTorch {record['environment']['torch']}: {words}\n\n"


def _table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "| --- " + "| ---: " * (len(columns) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def _sides(rows):
    before, after = (row["milliseconds"] for row in rows)
    return [f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]


def _steps(records):
    """Table with a line per mode of the step (_STEPS), each against PyTorch's time from the same record."""
    lines = [
        [
            records[name][0]["environment"]["gpu"],
            how,
            *_sides(records[name][1]),
            str(records[name][1][1]["modules_swapped"]),
        ]
        for name, how in _STEPS.items()
        if name in records
    ]
    if not lines:
        return ""
    words = "A training step of guided-diffusion's U-Net, 32 images of 64x64, bf16, in a CUDA graph, ms:\n\n"
    return words + _table(["GPU", "", "PyTorch", "after swap()", "ratio", "modules swapped"], lines)


def _norm(record, rows):
    """Table of GroupNorm + SiLU by pass and shape: our time, and PyTorch's better layout, eager and compiled."""
    ways = ("ladder_torch", "eager", "compile")
    lines = []
    for each in ("forward", "backward"):
        ratios = []
        for row in rows:
            times = [
                min(
                    value[each]
                    for name, value in row["microseconds"].items()
                    if name == way or name.startswith(f"{way},")
                )
                if way != "ladder_torch"
                else row["microseconds"][way][each]
                for way in ways
            ]
            ratios.append(times[0] / times[2])
            lines.append([f"{each}, {row['problem']}", *(f"{time:.1f}" for time in times), f"{ratios[-1]:.2f}"])
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines.append([f"{each}, geometric mean", "", "", "", f"{mean:.2f}"])
    text = _heading(
        record, "GroupNorm + SiLU, warm, in a CUDA graph, us; of PyTorch the better of channels_last and NCHW"
    )
    return text + _table(["", "ladder_torch", "eager", "torch.compile", "of torch.compile"], lines)


def _bench(record, rows):
    lines = [
        [row["problem"], row["version"], f"{row['operator']:.2f}", f"{row['kernel']:.2f}",
         f"{row['operator'] / row['kernel']:.2f}"]
        for row in rows
    ]  # fmt: skip
    return _heading(record, "an operator in a CUDA graph beside its kernel in `./ladder bench`, warm, us") + _table(
        ["problem", "version", "operator", "kernel", "ratio"], lines
    )


def _host(record, rows):
    lines = []
    for row in rows:
        ours, theirs = row["microseconds"]["ladder_torch"], row["microseconds"]["PyTorch eager"]
        what = "forward and backward" if row["gradients"] else "forward, without gradients"
        lines.append([what, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}"])
    return _heading(record, "the CPU's time for one call of GroupNorm + SiLU, us") + _table(
        ["", "ladder_torch", "eager", "ratio"], lines
    )


def _step_line(records):
    """README.md's sentence on the training step, from the newest record of each mode."""
    parts = [(records[name], name) for name in _STEPS if name in records]
    if not parts:
        return _NOTHING
    words = []
    for (_, rows), name in parts:
        before, after, _ = _sides(rows)
        words.append(f"{_STEPS[name]} {before} to **{after} ms**")
    gpu = parts[0][0][0]["environment"]["gpu"]
    return f"`swap(model)` on guided-diffusion's U-Net, a training step on {gpu}: {'; '.join(words)}.\n"


_TABLES = {"norm": _norm, "bench": _bench, "host": _host}
