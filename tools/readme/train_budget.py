"""Tables of a training step's time in train/README.md, made from the newest records of results/ (results/SCHEMA.md):

results/<device>/<date>_<commit>_training-budget.json      ./ladder train --budget FILE
results/<device>/<date>_<commit>_training-sampling.json    ./ladder sample RUN --count 320 --json FILE
results/<device>/<date>_<commit>_training-pytorch.json     reference/pytorch/unet_speed.py --json FILE
results/<device>/<date>_<commit>_training-pytorch-sampling.json    the same with --sample
"""

import math
import statistics
from pathlib import Path

from cli import json_file
from readme import generated
from records.record_files import BadRecord, named

README = Path("train") / "README.md"
BUDGET, SAMPLING, PYTORCH = "ladder.budget/1", "ladder.sampling/1", "ladder.pytorch-speed/1"
WORST = 10
RECORDS = "kernel records"  # a budget's "timed_by" (train/step_times.h)
LEAST_SHARE = 0.01  # share of the step's time that gives an operation its own line

_NO_BUDGET = "*No record yet: `./ladder train --budget FILE` on a GPU makes one.*\n"
_NO_SPEED = (
    "*No record yet: `./ladder train --budget FILE` and `reference/pytorch/unet_speed.py --json FILE` on a "
    "GPU make them.*\n"
)

# {variant of reference/pytorch/unet_speed.py: (its label in the table, its variant for sampling or None)}
_VARIANTS = {
    "eager_fp32": ("PyTorch eager, fp32", None),
    "eager_bf16_channels_last": ("PyTorch eager", None),
    "eager_bf16_channels_last_graph": ("PyTorch eager in a CUDA graph", "sample_eager"),
    "compile_bf16": ("PyTorch compile, NCHW", None),
    "compile_bf16_channels_last": ("PyTorch compile", None),
    "graph": ("PyTorch compile in a CUDA graph", "sample"),
}


def filled(root, text):
    """train/README.md's `text` with both tables, between the markers `training:begin budget` and `speed`."""
    text = generated.filled(text, "budget", _newest_budget(root) or _NO_BUDGET)
    return generated.filled(text, "speed", _of_devices(speed_table, root) or _NO_SPEED)


def step_lines(root):
    """Text on a training step against PyTorch's fastest, a line per device."""
    return _of_devices(_step_line, root) or _NO_SPEED


def _of_devices(text_of, root):
    """text_of() of each device's Records, joined."""
    return "\n".join(filter(None, (text_of(Records(folder)) for folder in sorted((root / "results").glob("*/")))))


def _newest_budget(root):
    """budget_table() of the device with the newest budget; "" without one."""
    made = [records for records in map(Records, (root / "results").glob("*/")) if records.budget]
    return budget_table(max(made, key=lambda records: str(records.budget.raw.get("created", "")))) if made else ""


class Records:
    """The newest record of each kind in a device's folder, or None."""

    def __init__(self, folder):
        self.budget = newest(folder, "training-budget", BUDGET)
        self.sampling = newest(folder, "training-sampling", SAMPLING)
        self.pytorch = newest(folder, "training-pytorch", PYTORCH)
        self.pytorch_sampling = newest(folder, "training-pytorch-sampling", PYTORCH)


class Record:
    """A record's JSON file. A missing value throws BadRecord, which names the file."""

    def __init__(self, file, raw):
        self.file, self.raw = file, raw
        self.commit = file.name.split("_")[1]

    def __getitem__(self, path):
        """The value at a path such as "config/model/channels". Throws BadRecord."""
        value = self.raw
        for key in path.split("/"):
            if not isinstance(value, dict) or key not in value:
                raise BadRecord(f"{self.file}: it has no '{path}'")
            value = value[key]
        return value

    def number(self, path):
        value = self[path]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            raise BadRecord(f"{self.file}: '{path}' is {value!r}, not a positive number")
        return value


def newest(folder, kind, schema):
    """The newest Record of <folder>/<date>_<commit>_<kind>.json, or None. Throws BadRecord."""
    found = []
    for file in named(folder, f"*_*_{kind}.json"):
        try:
            raw = json_file.read(file)
        except (OSError, ValueError) as error:
            raise BadRecord(f"{file}: not a record: {json_file.reason(error)}") from None
        if not isinstance(raw, dict) or raw.get("schema") != schema:
            raise BadRecord(f"{file}: its schema is not {schema}")
        date = str(raw.get("created", "")) or file.name.split("_")[0]
        found.append((date, file.name, Record(file, raw)))
    return max(found, key=lambda each: each[:2])[2] if found else None


class Operation:
    """One operation of a budget: its time and bounds, in microseconds."""

    def __init__(self, record, raw):
        try:
            self.layer, self.path, self.problem, self.version = (
                str(raw[key]) for key in ("layer", "pass", "problem", "version")
            )
            self.us, self.bound = float(raw["us"]), _figure(raw["lower_bound_us"])
            # Older records, timed with events, lack these keys.
            self.realistic, self.before, self.overlap = (
                _figure(raw.get(key)) for key in ("realistic_us", "gap_us", "overlap_us")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadRecord(f"{record.file}: broken operation: {type(error).__name__}: {error}") from None

    @property
    def gap(self):
        return self.us - self.bound


def _figure(value):
    return math.nan if value is None else float(value)  # a bound is None if the device's peak is unknown


def budget_table(records):
    """Table of a step's time by kind of operation, the largest gap to the lower bound first."""
    record = records.budget
    if record is None:
        return ""
    operations = [Operation(record, raw) for raw in record["operations"]]
    total = sum(operation.us for operation in operations)
    if not operations or total <= 0:
        raise BadRecord(f"{record.file}: it has no operation that was timed")
    if record.raw.get("timed_by") == RECORDS:
        return _table_of_records(record, operations, total)
    lines = [
        f"{_heading(record)}: {record.number('ms_a_step'):.2f} ms a step, {_how(record)}, "
        f"{record.number('tflops'):.0f} TFLOP/s. Operations timed in their places, one after the other: "
        f"{1e-3 * total:.2f} ms.",
        "",
        "| operation | launches | time, us | lower bound, us | gap, us | share of the time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    kinds = {}
    for operation in operations:
        kinds.setdefault(operation.path, []).append(operation)
    sums = [(path, len(of), sum(each.us for each in of), sum(each.bound for each in of)) for path, of in kinds.items()]
    for path, count, us, bound in sorted(sums, key=lambda kind: _by_gap(kind[2] - kind[3], kind[2])):
        lines.append(f"| {path} | {count} | {us:.0f} | {_us(bound)} | {_us(us - bound)} | {100 * us / total:.1f} % |")
    bound = sum(operation.bound for operation in operations)
    lines += [
        f"| *all* | {len(operations)} | {total:.0f} | {_us(bound)} | {_us(total - bound)} | 100 % |",
        "",
        f"The {WORST} single operations with the largest gaps:"
        if len(operations) > WORST
        else "Single operations by their gaps:",
        "",
        "| layer | operation | problem | version | time, us | lower bound, us | gap, us |",
        "| --- | --- | --- | --- | ---: | ---: | ---: |",
    ]
    for each in sorted(operations, key=lambda operation: _by_gap(operation.gap, operation.us))[:WORST]:
        lines.append(
            f"| {each.layer} | {each.path} | `{each.problem}` | {each.version} | {each.us:.1f} | "
            f"{_us(each.bound, 1)} | {_us(each.gap, 1)} |"
        )
    return "\n".join(lines) + "\n"


def _table_of_records(record, operations, total):
    """budget_table() for a budget timed by kernel records: busy times and gaps add up to the step's time."""
    lines = [
        f"{_heading(record)}: {record.number('ms_a_step'):.2f} ms a step, {_how(record)}, {record['programmatic_edges']} of "
        f"its {record['programmatic_edges'] + record['plain_edges']} edges programmatic, "
        f"{record.number('tflops'):.0f} TFLOP/s. Under kernel records a step took {1e-3 * total:.2f} ms: busy and gap add up "
        "to it.",
        "",
        "| operation | launches | busy, us | gap in front | overlap | realistic bound | peak bound | share |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    kinds = {}
    for operation in operations:
        kinds.setdefault(operation.path, []).append(operation)
    small = [path for path, of in kinds.items() if sum(each.us for each in of) < LEAST_SHARE * total]
    if len(small) > 1:
        kinds[f"{len(small)} others"] = [each for path in small for each in kinds.pop(path)]

    def most_to_gain(kind):
        us, bound = (sum(getattr(each, name) for each in kind[1]) for name in ("us", "realistic"))
        return _by_gap(us - bound, us)

    for name, of in [*sorted(kinds.items(), key=most_to_gain), ("*all*", operations)]:
        us, *sums = (
            sum(getattr(each, field) for each in of) for field in ("us", "before", "overlap", "realistic", "bound")
        )
        cells = [f"{us - sums[0]:.0f}", *(_us(each) for each in sums), f"{100 * us / total:.1f} %"]
        lines.append(f"| {name} | {len(of)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _by_gap(gap, us):
    """Sort key: large gaps first; unknown gaps last, by time."""
    return (1, -us) if math.isnan(gap) else (0, -gap)


def _us(value, digits=0):
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _heading(record):
    device, name, dtype, batch = (record[key] for key in ("device", "config/name", "config/dtype", "config/batch"))
    return f"**{device}**, {name}, {dtype}, batch {batch}, commit {record.commit}"


def _how(record):
    return f"one CUDA graph of {record['graph_nodes']} nodes" if record["graph"] else "launch by launch"


def speed_table(records):
    """Table of our training step against PyTorch's variants; "" without records."""
    ours, theirs = records.budget, records.pytorch
    if ours is None and theirs is None:
        return ""
    rows, notes = [], []
    milliseconds = None
    if ours is not None:
        milliseconds, batch = ours.number("ms_a_step"), ours.number("config/batch")
        rows.append(
            [
                f"**Ladder**, {ours['config/dtype']}",
                f"{milliseconds:.2f}",
                "1",
                f"{1e3 * batch / milliseconds:.0f}",
                f"{ours.number('device_bytes') / 2**20:.0f}",
                _our_sampling(records.sampling),
            ]
        )
    else:
        notes.append("Missing: our own step, `./ladder train --budget FILE`.")
    if theirs is None:
        notes.append("Missing: PyTorch's steps, `reference/pytorch/unet_speed.py --json FILE`.")
    else:
        _check_same_step(ours, theirs)
        rows += _pytorch_rows(theirs, records.pytorch_sampling, milliseconds, notes)
    sampled_at = {record.commit for record in (records.sampling, records.pytorch_sampling) if record}
    others = sampled_at - {(ours or theirs).commit}
    if others:
        notes.append(f"Sampled at commit {' and '.join(sorted(others))}.")
    return (
        "\n".join(
            [
                _speed_heading(ours, theirs),
                "",
                "| | ms a step | x Ladder | images/s | peak memory, MiB | 64 images sampled, ms |",
                "| --- | ---: | ---: | ---: | ---: | ---: |",
                *("| " + " | ".join(row) + " |" for row in rows),
                *(line for note in notes for line in ("", note)),
            ]
        )
        + "\n"
    )


def _step_line(records):
    ours, theirs = records.budget, records.pytorch
    if ours is None or theirs is None:
        return ""
    _check_same_step(ours, theirs)
    rows = _pytorch_rows(theirs, None, ours.number("ms_a_step"), [])
    if not rows:
        return ""
    name, milliseconds, ratio, *_ = min(rows, key=lambda row: float(row[1]))
    return (
        f"{_speed_heading(ours, theirs)} **{ours.number('ms_a_step'):.2f} ms** a training step in {ours['config/dtype']}; "
        f"{name} {milliseconds} ms, {ratio} x.\n"
    )


def _check_same_step(ours, theirs):
    if ours is not None and (theirs["config"], theirs["batch"]) != (ours["config/name"], ours["config/batch"]):
        raise BadRecord(
            f"{theirs.file}: {theirs['config']} at batch {theirs['batch']} is not what "
            f"{ours.file.name} timed: {ours['config/name']} at batch {ours['config/batch']}"
        )


def _speed_heading(ours, theirs):
    either = ours or theirs
    device = ours["device"] if ours else theirs["versions/gpu"]
    name, batch = (ours["config/name"], ours["config/batch"]) if ours else (theirs["config"], theirs["batch"])
    release = f", PyTorch {theirs['versions/torch']}" if theirs else ""
    other = f" and {theirs.commit}" if ours and theirs and theirs.commit != ours.commit else ""
    return f"**{device}**, {name}, batch {batch}{release}, commit {either.commit}{other}:"


def _our_sampling(record):
    if record is None:
        return "-"
    if (record["images"], record["sampler"], record["steps"]) != (64, "ddim", 50):
        raise BadRecord(
            f"{record.file}: the table shows batches of 64 images by 50 steps of ddim, not of "
            f"{record['images']} by {record['steps']} of {record['sampler']}"
        )
    seconds = record["batch_seconds"]
    if not isinstance(seconds, list) or len(seconds) < 2:
        raise BadRecord(f"{record.file}: a time takes two batches or more, of which the first warms up")
    return f"{1e3 * statistics.median(seconds[1:]):.0f}"


def _pytorch_rows(record, sampling, our_milliseconds, notes):
    rows = []
    for name in record["variants"]:
        if name not in _VARIANTS:
            raise BadRecord(f"{record.file}: no variant '{name}' is known here")
    for name, (label, sampled) in _VARIANTS.items():
        told = record["variants"].get(name)
        if told is None:
            continue
        if "error" in told:
            notes.append(f"Missing: {label}: {told['error']}")
            continue
        milliseconds = record.number(f"variants/{name}/ms")
        ratio = f"{milliseconds / our_milliseconds:.2f}" if our_milliseconds else "-"
        memory = f"{record.number(f'variants/{name}/peak_allocated_mib'):.0f}"
        rows.append(
            [
                label,
                f"{milliseconds:.2f}",
                ratio,
                f"{1e3 * record.number('batch') / milliseconds:.0f}",
                memory,
                _pytorch_sampling(sampling, sampled, notes),
            ]
        )
    return rows


def _pytorch_sampling(record, variant, notes):
    if record is None or variant not in record["variants"]:
        return "-"
    told = record["variants"][variant]
    if "error" in told:
        notes.append(f"Missing: PyTorch's {variant}: {told['error']}")
        return "-"
    if (told.get("images"), told.get("sampler")) != (64, "ddim 50"):
        raise BadRecord(f"{record.file}: '{variant}' is not 64 images by 50 steps of ddim")
    return f"{record.number(f'variants/{variant}/ms'):.0f}"
