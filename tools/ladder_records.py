"""Reads the records of results/ (results/SCHEMA.md) and answers what the tables ask of them."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

SCHEMA = "ladder.record/1"


class BadRecord(Exception):
    """One line that names the file."""


@dataclass
class Row:
    """The newest result of one version on one problem on one device."""

    device: str  # slug, the folder's name: "h200"
    device_name: str
    file: str
    created: str
    commit: str
    dirty: bool
    path: str  # "conv3x3/fprop"
    version: int
    idea: str
    problem: str
    dtype: str
    status: str
    reason: str
    flops: float
    cold: float  # median seconds, or nan where the version got no time
    warm: float
    roofline: float
    opponent: str  # "cuDNN 9.19.0", or "" where there was none
    opponent_cold: float  # its best plan's median in the same run, or nan


def read(results):
    """Rows of every GPU record below `results`, the newest of each version and problem. Throws BadRecord.

    A later check without times does not take away a time; a later failure does.
    """
    rows = [row for file in sorted(Path(results).glob("*/*.json")) for row in _read_file(file)]
    newest = {}
    for row in sorted(rows, key=lambda row: (row.created, row.file)):
        key = (row.device, row.path, row.version, row.problem)
        only_checked = row.status == "PASS" and math.isnan(row.cold)
        if key not in newest or not only_checked:
            newest[key] = row
    return sorted(newest.values(), key=lambda row: (row.device, row.path, row.version, row.problem))


def _read_file(file):
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        schema = record["schema"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRecord(f"{file}: not a record: {type(error).__name__}: {error}") from None
    if schema != SCHEMA:
        if isinstance(schema, str) and schema.startswith("ladder.record/"):
            raise BadRecord(f"{file}: schema {schema}, this tool reads {SCHEMA}")
        return []  # of another kind: conformance, profiles
    try:
        device = record["environment"]["device"]
        if device["kind"] != "gpu":
            return []  # an emulated time is no speed
        return [_row(file, record, device, result) for result in record["results"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRecord(f"{file}: broken record: {type(error).__name__}: {error}") from None


def _row(file, record, device, result):
    times = result["times"]
    opponent = result["opponent"]
    opponent_times = opponent.get("times")
    return Row(
        device=file.parent.name,
        device_name=device["name"],
        file=file.name,
        created=record["created"],
        commit=record["environment"]["commit"],
        dirty=bool(record["environment"]["dirty"]),
        path=f"{result['layer']}/{result['pass']}",
        version=int(result["version"]),
        idea=result["idea"],
        problem=result["problem"],
        dtype=result["dtype"],
        status=result["verdict"]["status"],
        reason=result["verdict"]["reason"],
        flops=float(result["flops"]),
        cold=float(times["cold_seconds"]["median"]) if times else math.nan,
        warm=_number(times["warm_seconds"]) if times else math.nan,
        roofline=_number(result["roofline_seconds"]),
        opponent=opponent["library"] or "",
        opponent_cold=float(opponent_times["cold_seconds"]["median"]) if opponent_times else math.nan,
    )


def _number(value):
    """null is no figure."""
    return math.nan if value is None else float(value)


def geometric_mean(values):
    """Of the values that are numbers; nan if there is none."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def problems_of_set(root, layer, name):
    """{problem without its dtype word: the line's name} of one set of dev/<layer>/shapes.txt, in order."""
    problems, current = {}, None
    for line in (Path(root) / "dev" / layer / "shapes.txt").read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("["):
            current = line.strip("[]")
        elif line and current == name:
            label, _, text = line.partition(":")
            problems[" ".join(text.split())] = label.strip()
    return problems


def without_dtype(row):
    return " ".join(word for word in row.problem.split() if word != row.dtype)
