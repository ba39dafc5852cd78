"""`./ladder promote --by step`: settles lines of the promotion table by times measured in the training step.

Records of `./ladder train --compare` (results/<device>/<date>_<commit>_step-<what>.json): if the two sides run
different versions for a problem and the table has the slower side's version, the faster side's version replaces it.

Records of `./ladder train --budget` (<date>_<commit>_step-budget-<what>.json, with a different --use each): if budgets
of one commit have several versions for a problem, the version with the least time in the step replaces the table's
version if that took longer by more than the margin.

The last cell of a settled line is the record's commit, followed by `step`; from then on `./ladder promote` leaves the
line alone. Records apply in the order of their dates, so the newest decides.
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
    """The promotion.Promotion by `device`'s records of steps. Throws BadRecord, Failure. `rows`: Results of
    record_files.read()."""
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
    """[(record, settle)] of a device, oldest first. settle(table) yields (key, version's label, gain as text) of each
    line that the record settles. Throws BadRecord."""
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
    """{(pass, problem): {version: mean microseconds of its operations in the step}}, without operations of the side
    stream: these overlap others, so that their time in the step says little."""
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
    """Yields (versions of the faster side, versions of the slower side, gain as text) of each verdict FAST or SLOW.
    Skips sides that differ in switches too."""
    first, *others = record["sides"]
    for side, verdict in zip(others, record["verdicts"]):
        if _switches(side) != _switches(first) or verdict["status"] not in rule.CALLS:
            continue
        a, b = ({(each["pass"], each["problem"]): each["version"] for each in of["versions"]} for of in (first, side))
        winner, loser = (b, a) if verdict["status"] == rule.FAST else (a, b)
        yield winner, loser, f"{abs(verdict['us']):.1f} us less"


def _switches(side):
    """Switches in a side's name, other than versions: {"overlap=on"}."""
    return {word for word in side["name"].split(",") if "/" not in word.partition("=")[0]}


def _cells(key, label, row, record):
    cells = promotion.cells(row, label) if row else (*key, label, *["-"] * 5)
    return (*cells[:-1], record["commit"][:7] + "+" * record["dirty"] + promotion.STEP_MARK)
