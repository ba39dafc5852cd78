"""`./ladder promote --by step`: what `./ladder train --compare` found in the training step settles lines of the table.

Where the faster side of a record (results/<device>/<date>_<commit>_step-<what>.json) has another version for a problem than
the slower one, and the slower one's stands in the table, the faster one's replaces it. The last cell of such a line names
the record's commit with `step` after it; `./ladder promote` leaves the line alone from then on. Records count in the order
of their dates, so the newest has the last word.
"""

import json

from compare import rule, steps
from registry import listing

from . import promotion
from .record_files import BadRecord


def promote(root, rows, device):
    """The promotion.Promotion that follows from `device`'s comparisons, `rows` being record_files.read()'s. Throws BadRecord
    and Failure."""
    file = promotion.file_of(root, device)
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    present = promotion.parse(text, file)
    table, why = dict(present), {}
    times = {(row.path, row.problem, row.version): row for row in rows if row.record.device == device}
    for record in read(root, device):
        for winner, loser, told in _decided(record):
            for key, label in _differing(winner, loser):
                if key not in table or table[key][2] != loser[key]:
                    continue
                version = next((each for each in listing.versions(root, key[0]) if each.label == label), None)
                if version:
                    table[key] = _cells(key, label, times.get((*key, version.number)), record)
                    why[key] = f"{told} in the step, {table[key][-1]}"
    changes = [
        promotion.Change(*key, present[key][2], table[key][2], why[key])
        for key in sorted(why, key=promotion.order)
        if table[key][2] != present[key][2]
    ]
    changed = {(change.path, change.problem) for change in changes}
    table = {key: table[key] if key in changed else present[key] for key in present}
    new = _head(text) + promotion.body(table) if changes else text
    return promotion.Promotion(device, file, text, new, len(table), changes, 0)


def read(root, device):
    """The comparisons of a device with verdicts, the oldest first. Throws BadRecord."""
    found = []
    for file in sorted((root / "results" / device).glob("*_step-*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            if record["schema"] != steps.SCHEMA:
                raise BadRecord(f"{file}: its schema is not {steps.SCHEMA}")
            if record["verdicts"] and record["slug"] == device:
                list(_decided(record))
                found.append((record["created"], file.name, record))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRecord(f"{file}: not a record: {type(error).__name__}: {error}") from None
    return [record for *_, record in sorted(found, key=lambda each: each[:2])]


def _decided(record):
    """(versions of the faster side, of the slower one, in words by how much) of each verdict that calls one."""
    first, *others = record["sides"]
    for side, verdict in zip(others, record["verdicts"]):
        if _switches(side) != _switches(first) or verdict["status"] not in (rule.FAST, rule.SLOW):
            continue
        a, b = ({(each["pass"], each["problem"]): each["version"] for each in of["versions"]} for of in (first, side))
        winner, loser = (b, a) if verdict["status"] == rule.FAST else (a, b)
        yield winner, loser, f"{abs(verdict['us']):.1f} us less"


def _switches(side):
    """What else than versions its name says: "overlap=on"."""
    return {word for word in side["name"].split(",") if "/" not in word.partition("=")[0]}


def _differing(winner, loser):
    return [(key, label) for key, label in winner.items() if loser.get(key, label) != label]


def _cells(key, label, row, record):
    cells = promotion.cells(row, label) if row else (*key, label, *["-"] * 5)
    return (*cells[:-1], record["commit"][:7] + "+" * record["dirty"] + promotion.STEP_MARK)


def _head(text):
    """The comment that the table begins with."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))])
