"""Converts a training's growing log.jsonl to TensorBoard's events. Runs in the private Python, which has tensorboardX.

python tools cli.tensorboard LOG EVENTS       ends after its standard input is closed and the log is read to its end
"""

import json
import select
import shutil
import sys
from pathlib import Path

_SECONDS = 2  # between two reads of the log

# {key in a line of the log, written by train/training.cpp: name in TensorBoard}
_NAMES = {
    "loss": "loss/training",
    "held_out_loss": "loss/held out",
    "gradient_norm": "optimizer/gradient norm",
    "learning_rate": "optimizer/learning rate",
    "ema_rate": "optimizer/EMA rate",
    "skipped": "optimizer/updates left out",
    "ms_a_step": "speed/ms a step",
}


def scalars(line):
    """[(name in TensorBoard, value, step)] of a line of the log."""
    told = json.loads(line)
    found = [(name, told[key], told["step"]) for key, name in _NAMES.items() if key in told]
    for i, loss in enumerate(told.get("loss_by_quartile_of_t") or []):
        if loss is not None:
            found.append((f"loss by time step/{250 * i} to {250 * i + 249}", loss, told["step"]))
    return found


class Reader:
    """Reads the complete lines that were appended to a file since the last read; none while the file does not exist."""

    def __init__(self, path):
        self._path = path
        self._at = 0

    def lines(self):
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(0, 2)
            if file.tell() < self._at:  # the file was truncated: read from its start
                self._at = 0
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for line in whole.decode("utf-8").split("\n") if line]


def main(arguments):
    from tensorboardX import SummaryWriter

    log, events = map(Path, arguments)
    shutil.rmtree(events, ignore_errors=True)  # events are rewritten from the full log, for a resumed training too
    reader = Reader(log)
    with SummaryWriter(str(events)) as writer:
        ended = False
        while not ended:
            ended = bool(select.select([sys.stdin], [], [], _SECONDS)[0])
            for line in reader.lines():
                for name, value, step in scalars(line):
                    writer.add_scalar(name, value, step)
            writer.flush()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (OSError, ValueError, KeyError) as failure:
        print(f"ladder: TensorBoard: {failure}", file=sys.stderr)
        sys.exit(1)
