"""runtime/promoted/<device>.txt: the version that the trainer runs for each problem that has a record.

    conv3x3/fprop  n32 h64 w64 c64 k64 bf16  v09_wgmma_halo  20.4 us warm  23.2 cold  cuDNN  28.8 warm  457b462

One line per problem. Columns, two or more spaces apart: pass; problem with its dtype; version; its warm and cold
medians; library of the baseline's best plan; that plan's warm median in the same run (cold if it has no warm time);
commit of the record. "-" stands for a missing value; `#` begins a comment. runtime/promoted.h reads the file too.

The newest record of each version counts. The version with the least warm median is promoted, or with the least cold
median if none has a warm time. The incumbent, named by the table on disk, stays if it takes at most 3 % longer. A line
settled by a comparison in the training step stays (step_promotion.py): its commit is followed by `step`.
"""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from cli.columns import aligned
from cli.errors import Failure
from registry import listing, selection
from registry.listing import DTYPES

MARGIN = 0.03
STEP_MARK = " step"  # follows the commit of a line settled by step_promotion.py
_NUM_CELLS = 8
_TO_THE_RIGHT = (3, 4, 6)  # columns of times

_HEAD = """\
# Which version the trainer runs on {name}, for every problem that results/{device} has a record of.
# Made by `./ladder promote`, which says what changed; a person reviews that, nobody types a line.
# Columns, two or more spaces apart: pass, problem, version, its warm and cold medians, the baseline's library and the
# warm median of its best plan in the same run (cold where nobody took a warm one), commit of the record.
# The least warm time wins; within {margin:.0f} % the version that stands here stays. A commit with "step" after it is of a
# comparison in the training step, which has settled the line.
"""


@dataclass(frozen=True)
class Change:
    path: str
    problem: str
    old: str  # label of the old version; "" if the problem is new in the table
    new: str  # label of the new version; "" if the problem leaves the table
    text: str  # times and reason

    def __str__(self):
        versions = " -> ".join(filter(None, (self.old, self.new))) if self.old and self.new else self.old or self.new
        return f"{self.path}  {self.problem}  {versions}: {self.text}"


@dataclass(frozen=True)
class Promotion:
    device: str
    file: Path
    old: str  # the file's text; "" where there is none
    new: str
    num_cases: int
    changes: list  # [Change] of versions, in the table's order
    num_other_times: int  # lines with the same version and changed figures

    @property
    def is_stale(self):
        return self.old != self.new

    def diff(self):
        """Lines of the file that differ: "- " and the present line, "+ " and the new line."""
        old, new = self.old.splitlines(), self.new.splitlines()
        return [line for line in difflib.ndiff(old, new) if line[:2] in ("- ", "+ ")]


def devices(root):
    """Slugs of the devices that have a table."""
    return sorted(file.stem for file in (Path(root) / "runtime" / "promoted").glob("*.txt"))


def table_of(root, device):
    """The device's file, its text and its lines, {(pass, problem): cells}; "" and {} where there is none. Throws Failure."""
    file = Path(root) / "runtime" / "promoted" / f"{device}.txt"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return file, text, parse(text, file)


def promote(root, rows, device, problems=None):
    """The Promotion by `rows`, the Results of record_files.read(). Throws Failure.

    `problems`: {layer: problem lines without dtype} restricts the promotion to these problems; other lines stay. None
    for all.
    """
    file, text, present = table_of(root, device)
    cases, name = {}, device
    for row in rows:
        if row.record.device == device:
            name = row.record.device_name
            if _is_chosen(row.path, row.problem, problems):
                cases.setdefault((row.path, row.problem), []).append(row)
    versions = {
        path: {version.number: version for version in listing.versions(root, path)}
        for path in {path for path, _ in cases}
    }

    table = {key: cells for key, cells in present.items() if not _is_chosen(*key, problems)}
    why = {}
    for key in {*cases, *(set(present) - set(table))}:
        if key in present and _stays(present[key], cases.get(key, []), versions.get(key[0], {})):
            table[key] = present[key]
            continue
        candidates = _candidates(cases.get(key, []), versions.get(key[0], {}))
        incumbent = present[key][2] if key in present else ""
        best = winner({label: _seconds(row) for label, row in candidates.items()}, incumbent)
        if best:
            table[key] = cells(candidates[best], best)
        if best != incumbent:
            why[key] = _why(candidates, incumbent, best)
    head = _HEAD.format(name=name, device=device, margin=100 * MARGIN)
    return promotion_of(device, file, text, present, head, table, why)


def promotion_of(device, file, text, present, head, table, why):
    """The Promotion from the lines `present` to `table`; `why` is {key: text} of the versions that change."""
    labels = [{key: cells[2] for key, cells in lines.items()} for lines in (present, table)]
    changes = [Change(*key, *(of.get(key, "") for of in labels), why[key]) for key in sorted(why, key=order)]
    num_other_times = sum(key not in why and table[key] != cells for key, cells in present.items())
    return Promotion(device, file, text, head + body(table), len(table), changes, num_other_times)


def _stays(line, rows, versions):
    """Returns True for a line settled in the training step (step_promotion.py), if its version is in the tree and its
    newest record has not failed."""
    number = next((version.number for version in versions.values() if version.label == line[2]), None)
    failed = any(row.version == number and row.status != "PASS" for row in rows)
    return line[-1].endswith(STEP_MARK) and number is not None and not failed


def parse(text, file):
    """{(pass, problem): cells} of a table. Throws Failure naming file and line."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        cells = tuple(re.split(r"\s{2,}", line))
        if len(cells) != _NUM_CELLS:
            raise Failure(
                f"{file}:{number}: {len(cells)} columns, two or more spaces apart, where a line has "
                f"{_NUM_CELLS}; ./ladder promote makes the file anew once it is deleted"
            )
        if cells[:2] in found:
            raise Failure(f"{file}:{number}: {cells[0]} {cells[1]} is there twice")
        found[cells[:2]] = cells
    return found


def _is_chosen(path, problem, problems):
    if problems is None:
        return True
    return selection.without_dtype(problem) in problems.get(path.split("/")[0], ())


def _candidates(rows, versions):
    """{label: Result} of the tree's versions with this dtype that passed with a time; if some are warm, these."""
    timed = {}
    for row in rows:
        version = versions.get(row.version)
        if row.status == "PASS" and row.cold > 0 and version and row.dtype in (version.dtypes or DTYPES):
            timed[version.label] = row
    return {label: row for label, row in timed.items() if row.warm > 0} or timed


def _seconds(row):
    return row.warm if row.warm > 0 else row.cold


def winner(times, incumbent):
    """Label to promote of {label: time}; "" if there is none. The incumbent stays if it takes at most MARGIN longer."""
    best = min(times, key=lambda label: (times[label], label), default="")
    return incumbent if incumbent in times and times[incumbent] <= (1 + MARGIN) * times[best] else best


def _why(candidates, old, new):
    if not new:
        return "no version of the tree passes with a time any more"
    kind = "warm" if candidates[new].warm > 0 else "cold"
    now = _seconds(candidates[new])
    if not old:
        return f"{_us(now)} us {kind}, new"
    if old not in candidates:
        return f"{_us(now)} us {kind}; {old} is gone, or its newest record has no such time that passed"
    before = _seconds(candidates[old])
    return f"{_us(before)} -> {_us(now)} us {kind}, {100 * (1 - now / before):.1f} % less"


def cells(row, label):
    library = row.best_library.split(" ")[0]
    baseline = _time(row.baseline_warm, " warm") if row.baseline_warm > 0 else _time(row.baseline_cold, " cold")
    times = _time(row.warm, " us warm"), _time(row.cold, " cold")
    return row.path, row.problem, label, *times, library or "-", baseline, row.record.short


def _time(seconds, unit):
    return _us(seconds) + unit if seconds > 0 else "-"


def _us(seconds):
    """Text of a time in microseconds, with three digits or all digits before the point."""
    microseconds = 1e6 * seconds
    return f"{microseconds:.{2 if microseconds < 9.995 else 1 if microseconds < 99.95 else 0}f}"


def body(table):
    """Text of the table's lines, aligned within each pass, so that a new line rarely changes others."""
    text = ""
    for path in sorted({path for path, _ in table}):
        lines = [table[key] for key in sorted(table, key=order) if key[0] == path]
        text += "\n".join(["", *aligned(lines, _TO_THE_RIGHT), ""])
    return text


def order(key):
    path, problem = key
    dtype = selection.dtype_of(problem)
    words = [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", problem)]  # text, number, text, ...
    return path, DTYPES.index(dtype) if dtype else len(DTYPES), words
