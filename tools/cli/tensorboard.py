"""A training's log.jsonl as TensorBoard's events, while it grows. Runs in the private Python, which has tensorboardX.

python tools cli.tensorboard LOG EVENTS       until its standard input is closed, and what the log has then
"""

import json
import select
import shutil
import sys
from pathlib import Path

_SECONDS = 2  # between looks at the log

# What a line of the log has, and its name in TensorBoard. train/training.cpp writes them.
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
    """[(name, value, step)] of a line of the log."""
    told = json.loads(line)
    found = [(name, told[key], told["step"]) for key, name in _NAMES.items() if key in told]
    for i, loss in enumerate(told.get("loss_by_quartile_of_t") or []):
        if loss is not None:
            found.append((f"loss by time step/{250 * i} to {250 * i + 249}", loss, told["step"]))
    return found


class Reader:
    """The whole lines that were added to a file since the last look; a file that is not there yet has none."""

    def __init__(self, path):
        self._path = path
        self._at = 0

    def lines(self):
        if not self._path.exists():
            return []
        with open(self._path, "rb") as file:
            file.seek(0, 2)
            if file.tell() < self._at:  # begun anew
                self._at = 0
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [line for line in whole.decode("utf-8").split("\n") if line]


def main(arguments):
    from tensorboardX import SummaryWriter

    log, events = map(Path, arguments)
    shutil.rmtree(events, ignore_errors=True)  # they are made anew of the whole log, a resumed training's too
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
