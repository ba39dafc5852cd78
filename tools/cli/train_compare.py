"""`./ladder train --compare`: has train_unet replay steps in turn, and judges their times."""

import json
import shlex
import tempfile
from pathlib import Path

from compare import report, steps

from . import device, launcher, ranks


def main(command, words, file, gpus):
    """Runs `command`, train_unet with all but --json, as `gpus` ranks; prints what the times say, and writes the record to
    `file`, if that is given. `words` are those of the verb."""
    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        raw = Path(folder) / "times.json"
        with device.Watch() as watch:
            status = ranks.start([*command, f"--json={raw}"], gpus, launcher.RankNumbers(), beside=True)
        if status != 0:
            return status
        record = json.loads(raw.read_text(encoding="utf-8"))
    record["command"] = shlex.join(["./ladder", "train", *words])
    record["machine"] = watch.between(record["began"], record["ended"])
    record["verdicts"] = steps.verdicts(record)
    for line in steps.lines(record):
        print(line)
    if file:
        report.write_aside(Path(file), json.dumps(record, indent=1, allow_nan=False) + "\n")
    return 0
