"""A recorded training beside the same one in PyTorch: the table and the picture of train/README.md, and the record itself.

    tools/readme/loss_curves.py --make results/h200/2026-01-31_abc1234_training-run.json --ladder runs/unet64-1 \\
        --pytorch RUN.json --commit abc1234 --command "./ladder train --steps 20000"

--make joins a run's log.jsonl and what `reference/pytorch/unet_train.py --data ... --out RUN.json` wrote into a record,
schema ladder.training-run/1 (results/SCHEMA.md), curves thinned to 400 points. `./ladder table` shows the newest record of
all devices, and below its curves results/samples_64.png and results/nearest_images.png where they are there.
"""

import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli import files, json_file, options, train
from cli.errors import Failure
from readme import generated
from readme.train_budget import newest
from records.record_files import BadRecord, now

SCHEMA = "ladder.training-run/1"
PICTURE = Path("results") / "training_curves.svg"
MOST_POINTS = 400
HALF_LIFE = 500  # steps over which a loss loses half of its weight in loss_ema
LAST_STEPS = 1000  # whose mean is the final training loss

_NOTHING = (
    "*No record yet: `tools/readme/loss_curves.py --make` joins the logs of a training and of PyTorch's to one.*\n"
)
# Pictures of the recorded run that the README shows where they are there, in results/.
_IMAGES = {
    "samples_64.png": "64 images drawn from the averaged weights",
    "nearest_images.png": "Images drawn, each beside the training images nearest to it",
}
_SIDES = {"ladder": "Ladder", "pytorch": "PyTorch"}


def main(arguments):
    chosen = _parse(arguments)
    metadata = train.checkpoint_metadata(chosen.ladder)
    config = train.checkpoint_config(chosen.ladder)
    record = {
        "schema": SCHEMA,
        "created": now(),
        "device": metadata.get("device"),
        "commit": chosen.commit,
        "command": chosen.command,
        "config": config,
        "ladder": of_log(chosen.ladder / "log.jsonl"),
        "pytorch": of_pytorch(chosen.pytorch, config) if chosen.pytorch else None,
    }
    try:
        files.replace(chosen.make, json.dumps(record, indent=1) + "\n")
    except OSError as error:
        raise Failure(f"'{chosen.make}' cannot be written: {error.strerror}") from None
    print(f"wrote {chosen.make}")
    return 0


def _parse(arguments):
    parser = options.Parser("table", description="A recorded training beside the same one in PyTorch.")
    parser.add_argument("--make", type=Path, metavar="RECORD", help="the record to write")
    parser.add_argument("--ladder", type=Path, metavar="RUN", help="folder of ./ladder train")
    parser.add_argument("--pytorch", type=Path, metavar="FILE", help="what unet_train.py --data wrote")
    parser.add_argument("--commit", help="that was trained with")
    parser.add_argument("--command", help="the line that trains so")
    chosen = parser.parse_args(arguments)
    if not chosen.make:
        parser.error("--ladder, --pytorch, --commit and --command are for --make; ./ladder table shows the record")
    if not (chosen.ladder and chosen.commit and chosen.command):
        parser.error("--make needs --ladder RUN, --commit and --command")
    return chosen


def of_log(path):
    """A side of a record, of the trainer's log. A step that was done again, as after a crash, counts as done last."""
    points, held_out = [], []  # (step, loss, ms a step), (step, loss)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for line in map(json_file.parse, lines):
            step = line["step"]
            if "loss" in line:
                while points and points[-1][0] >= step:
                    points.pop()
                points.append((step, line["loss"], line["ms_a_step"]))
            elif "held_out_loss" in line:
                while held_out and held_out[-1][0] >= step:
                    held_out.pop()
                held_out.append((step, line["held_out_loss"]))
    except OSError as error:
        raise Failure(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"'{path}' is no log of ./ladder train: {json_file.reason(error)}") from None
    if not points:
        raise Failure(f"'{path}' has no step")
    steps = [step for step, _, _ in points]
    lengths = [step - before for step, before in zip(steps, [0, *steps])]
    seconds = sum(1e-3 * ms * length for (_, _, ms), length in zip(points, lengths))
    return _side(
        steps,
        [loss for _, loss, _ in points],
        seconds,
        1e3 * seconds / steps[-1],
        {"step": [step for step, _ in held_out], "loss": [loss for _, loss in held_out]},
    )


def of_pytorch(path, config):
    """A side of a record, of what unet_train.py wrote. Throws Failure where it trained something else."""
    try:
        told = json_file.read(path)
        for ours, theirs in (("name", "config"), ("batch", "batch"), ("steps", "steps")):
            if config[ours] != told[theirs]:
                raise Failure(f"'{path}' has {theirs} {told[theirs]}, the run to be compared has {config[ours]}")
        steps = [(i + 1) * told["window"] for i in range(len(told["losses"]))]
        held_out = {
            "step": [each["step"] for each in told["evaluations"]],
            "loss": [each["held_out"] for each in told["evaluations"]],
            "loss_of_average": [each["held_out_ema"] for each in told["evaluations"]],
        }
        side = _side(steps, told["losses"], told["train_seconds"], told["ms_per_step"], held_out)
        how = [told["dtype"], *(word for word in ("compile", "graph") if told[word])]
        return {**side, "how": f"PyTorch {told['versions']['torch']}, {', '.join(how)}"}
    except OSError as error:
        raise Failure(f"'{path}' cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Failure(f"'{path}' is nothing that unet_train.py --data wrote: {type(error).__name__}: {error}") from None


def _side(steps, losses, seconds, milliseconds, held_out):
    last = [loss for step, loss in zip(steps, losses) if step > steps[-1] - LAST_STEPS]
    return {
        "steps": steps[-1],
        "wall_seconds": seconds,
        "ms_a_step": milliseconds,
        "final_loss": sum(last) / len(last),
        **thinned(steps, losses, averaged(steps, losses)),
        "held_out": held_out,
    }


def averaged(steps, losses):
    """The exponential moving average of losses that lie apart by any number of steps, without a start at zero."""
    out, total, weight, before = [], 0.0, 0.0, 0
    for step, loss in zip(steps, losses):
        kept = 0.5 ** ((step - before) / HALF_LIFE)
        total, weight, before = kept * total + (1 - kept) * loss, kept * weight + 1 - kept, step
        out.append(total / weight)
    return out


def thinned(steps, losses, averages):
    """At most MOST_POINTS points: of neighbours the last step and average, and the mean loss."""
    size = -(-len(steps) // MOST_POINTS)
    groups = [range(at, min(at + size, len(steps))) for at in range(0, len(steps), size)]
    return {
        "step": [steps[group[-1]] for group in groups],
        "loss": [round(sum(losses[i] for i in group) / len(group), 6) for group in groups],
        "loss_ema": [round(averages[group[-1]], 6) for group in groups],
    }


def filled(root, text):
    """(train/README.md's `text` with the table, {picture: what draw() takes})."""
    record = _newest(root)
    pictures = {root / PICTURE: _figures(record)} if record else {}
    return generated.filled(text, "run", _table(root, record) if record else _NOTHING), pictures


def _newest(root):
    found = [newest(folder, "training-run", SCHEMA) for folder in sorted((root / "results").glob("*/"))]
    records = [record for record in found if record]
    record = max(records, key=lambda each: (str(each.raw.get("created", "")), each.file.name), default=None)
    if record is not None:
        _check(record)
    return record


def _sides(record):
    return {name: label for name, label in _SIDES.items() if record[name] is not None}


def _check(record):
    for side in _sides(record):
        for path in ("steps", "wall_seconds", "ms_a_step", "final_loss"):
            record.number(f"{side}/{path}")
        for first, *others in (("step", "loss", "loss_ema"), ("held_out/step", "held_out/loss")):
            for name in (first, *others):
                values = record[f"{side}/{name}"]
                if not isinstance(values, list) or not all(_is_number(value) for value in values):
                    raise BadRecord(f"{record.file}: '{side}/{name}' is not a list of numbers")
                if len(values) != len(record[f"{side}/{first}"]):
                    raise BadRecord(f"{record.file}: '{side}/{name}' is not as long as '{side}/{first}'")
        if not record[f"{side}/step"]:
            raise BadRecord(f"{record.file}: '{side}/step' is empty")


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _table(root, record):
    name, dtype, batch = (record[f"config/{key}"] for key in ("name", "dtype", "batch"))
    lines = [
        f"**{record['device']}**, {name}, {dtype}, batch {batch}, commit {record['commit'][:10]}: "
        f"`{record['command']}`",
        "",
        "| | steps | ms a step | wall time | final training loss | held-out loss | held out, averaged weights |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for side, label in _sides(record).items():
        held_out = record[f"{side}/held_out"]
        lines.append(
            f"| {record[side].get('how', label)} | {record[f'{side}/steps']} "
            f"| {record[f'{side}/ms_a_step']:.2f} "
            f"| {_duration(record[f'{side}/wall_seconds'])} | {record[f'{side}/final_loss']:.4f} "
            f"| {_last(held_out['loss'])} | {_last(held_out.get('loss_of_average', []))} |"
        )
    lines += ["", f"![Training and held-out loss, step by step](../{PICTURE.as_posix()})"]
    for name, words in _IMAGES.items():
        if (root / "results" / name).exists():
            lines += ["", f"![{words}](../results/{name})"]
    return "\n".join(lines) + "\n"


def _last(losses):
    return f"{losses[-1]:.4f}" if losses else "-"


def _duration(seconds):
    whole = round(seconds)
    return f"{whole // 3600} h {whole // 60 % 60:02} min" if whole >= 3600 else f"{whole // 60} min {whole % 60:02} s"


def _figures(record):
    """(title, data): what the picture shows."""
    curves = {
        side: [
            record[f"{side}/step"],
            record[f"{side}/loss"],
            record[f"{side}/loss_ema"],
            record[f"{side}/held_out/step"],
            record[f"{side}/held_out/loss"],
        ]
        for side in _sides(record)
    }
    return f"{record['config/name']}, batch {record['config/batch']}, on {record['device']}", curves


def draw(title, curves):
    """The picture as SVG text."""
    figure, axes = generated.pyplot().subplots(figsize=(8, 4.4))
    for color, (side, (steps, losses, averages, held_out_steps, held_out)) in zip(("C0", "C1"), curves.items()):
        axes.plot(steps, losses, color=color, linewidth=0.6, alpha=0.35)
        axes.plot(steps, averages, color=color, linewidth=1.4, label=f"{_SIDES[side]}, training")
        axes.plot(
            held_out_steps,
            held_out,
            color=color,
            linestyle="none",
            marker="o" if color == "C0" else "x",
            markersize=4,
            label=f"{_SIDES[side]}, held out",
        )
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("mean squared error of the noise")
    axes.grid(which="major", alpha=0.3)
    return generated.svg(figure, title, curves)


if __name__ == "__main__":
    sys.exit(options.run(main))
