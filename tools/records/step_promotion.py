"""`./ladder promote --by step`: what was measured in the training step settles lines of the table.

Of `./ladder train --compare`: where the faster side of a record (results/<device>/<date>_<commit>_step-<what>.json) has
another version for a problem than the slower one, and the slower one's stands in the table, the faster one's replaces it.
Of `./ladder train --budget`: where budgets of one commit (<date>_<commit>_step-budget-<what>.json, each with another --use)
have several versions for a problem, the one with the least time in its place replaces one that stands and took longer by
more than the margin. The last cell of such a line names the record's commit with `step` after it; `./ladder promote` leaves
the line alone from then on. Records count in the order of their dates, so the newest has the last word.
"""

import json
import re
import statistics
from collections import defaultdict
from dataclasses import replace

from cli import json_file
from compare import rule, steps
from registry import listing

from . import promotion, record_files
from .record_files import BadRecord

BUDGET = "ladder.budget/1"


def promote(root, rows, device):
    """The promotion.Promotion that follows from `device`'s records of steps, `rows` being record_files.read()'s. Throws
    BadRecord and Failure."""
    file, text, present = promotion.table_of(root, device)
    table, why = dict(present), {}
    times = {(row.path, row.problem, row.version): row for row in rows if row.record.device == device}
    for record, settled in read(root, device):
        for key, label, told in settled(table):
            version = next((each for each in listing.versions(root, key[0]) if each.label == label), None)
            if version:
                table[key] = _cells(key, label, times.get((*key, version.number)), record)
                why[key] = f"{told} in the step, {table[key][-1]}"
    why = {key: words for key, words in why.items() if table[key][2] != present[key][2]}
    table = {key: table[key] if key in why else present[key] for key in present}
    head = re.match(r"(#.*\n?)*", text)[0]
    made = promotion.promotion_of(device, file, text, present, head, table, why)
    return made if why else replace(made, new=text)


def read(root, device):
    """(record, function of the table that lists (key, version, in words by how much) of what it settles) of a device, the
    oldest first. Throws BadRecord."""
    found, budgets = [], defaultdict(list)
    for file in record_files.named(root / "results" / device, "*_step-*.json"):
        try:
            record = json_file.read(file)
            if record["schema"] == BUDGET:
                budgets[record["commit"], json.dumps(record["config"], sort_keys=True)].append(
                    (record, _mean_us(record))
                )
            elif record["schema"] != steps.SCHEMA:
                raise BadRecord(f"{file}: its schema is neither {steps.SCHEMA} nor {BUDGET}")
            elif record["verdicts"] and record["slug"] == device:
                decided = list(_decided(record))
                found.append((record, lambda table, decided=decided: _by_comparison(table, decided)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRecord(f"{file}: not a record: {json_file.reason(error)}") from None
    for group in budgets.values():
        newest = max((record for record, _ in group), key=lambda record: record["created"])
        found.append((newest, lambda table, group=group: _by_budgets(table, [times for _, times in group])))
    return sorted(found, key=lambda each: each[0]["created"])


def _by_comparison(table, decided):
    for winner, loser, told in decided:
        for key, label in winner.items():
            if key in table and loser.get(key, label) != label and table[key][2] == loser[key]:
                yield key, label, told


def _mean_us(budget):
    """{(pass, problem): {version: mean microseconds of its operations, each in its place}}, but of those that run beside the
    others, whose place is not in the step's time."""
    times = defaultdict(lambda: defaultdict(list))
    for each in budget["operations"]:
        if not each.get("beside", False):
            times[each["pass"], each["problem"]][each["version"]].append(each["us"])
    return {key: {label: statistics.fmean(us) for label, us in of.items()} for key, of in times.items()}


def _by_budgets(table, budgets):
    measured = defaultdict(lambda: defaultdict(list))
    for budget in budgets:
        for key, versions in budget.items():
            for label, us in versions.items():
                measured[key][label].append(us)
    for key, versions in measured.items():
        times = {label: statistics.fmean(us) for label, us in versions.items()}
        standing = table[key][2] if key in table else ""
        best = promotion.winner(times, standing)
        if standing in times and best != standing:
            yield key, best, f"{times[standing]:.1f} -> {times[best]:.1f} us"


def _decided(record):
    """(versions of the faster side, of the slower one, in words by how much) of each verdict that calls one."""
    first, *others = record["sides"]
    for side, verdict in zip(others, record["verdicts"]):
        if _switches(side) != _switches(first) or verdict["status"] not in rule.CALLS:
            continue
        a, b = ({(each["pass"], each["problem"]): each["version"] for each in of["versions"]} for of in (first, side))
        winner, loser = (b, a) if verdict["status"] == rule.FAST else (a, b)
        yield winner, loser, f"{abs(verdict['us']):.1f} us less"


def _switches(side):
    """What else than versions its name says: "overlap=on"."""
    return {word for word in side["name"].split(",") if "/" not in word.partition("=")[0]}


def _cells(key, label, row, record):
    cells = promotion.cells(row, label) if row else (*key, label, *["-"] * 5)
    return (*cells[:-1], record["commit"][:7] + "+" * record["dirty"] + promotion.STEP_MARK)
