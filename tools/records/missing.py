"""Results that a device has no record of, or none of today's machine code, in the order in which they are worth recording:
first what is promoted or part of the training step, then one set of each layer for all versions, then what older records
have. `./ladder record --missing` and `--stale` take them from here.
"""

import itertools
import re
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

from cli.columns import aligned
from readme import train_budget
from registry import selection
from registry.listing import DTYPES

from . import promotion, record_files
from .results import version_name

PHASES = ("promoted", "set", "recorded")
RECORDED, CURRENT, DATED, NONE, UNKNOWN = "recorded", "current", "of older code", "no record", "unknown"

# Seconds: what a run of a program takes before its first result, a result that no record is like, and a run at most.
_START, _DEFAULT, _LONGEST = 3.0, 2.0, 120.0


@dataclass(frozen=True)
class Group:
    """One run of a bench program: each version on each problem."""

    phase: str  # of PHASES
    path: str  # "conv3x3/fprop"
    dtype: str
    versions: tuple  # labels: "v07_wmma"
    problems: tuple  # lines with their dtype
    seconds: float  # estimated

    @property
    def jobs(self):
        """Names of its results, as Google Benchmark has them."""
        return [f"{self.path}/{label}/{line}" for label in self.versions for line in self.problems]


def devices(results):
    """The GPUs that `results` has a folder for, whatever is in its files."""
    return sorted({file.parent.name for file in record_files.named(results, "*/*.json")} - {"emulator"})


def wanted(root, results, chosen, device, records, lines, dtypes, only_lines):
    """{(path, version's number, problem): the first of PHASES that asks for it} of {path: Versions}.

    `lines`: {layer: lines of the second phase}, with `only_lines` all there is to record; `dtypes`: None for all.
    """
    asked = [] if only_lines else [(*each, PHASES[0]) for each in _in_step(root, results, device)]
    for path, versions in chosen.items():
        for line in lines[path.split("/")[0]]:
            for version in versions:
                asked += [(path, version.number, each, PHASES[1]) for each in _with_dtypes(line, version)]
    if not only_lines:
        asked += [(row.path, row.version, row.problem, PHASES[2]) for row in _results(records, device)]
    numbers = {path: {version.number: version for version in versions} for path, versions in chosen.items()}
    found = {}
    for path, number, problem, phase in asked:
        version, dtype = numbers.get(path, {}).get(number), selection.dtype_of(problem)
        if version and (not dtypes or dtype in dtypes) and problem in _with_dtypes(problem, version):
            found.setdefault((path, number, problem), phase)
    return found


def states(cases, records, device, digests=None):
    """{case: CURRENT, DATED, NONE or UNKNOWN} of wanted()'s cases, by the `digests` of today's machine code; RECORDED or NONE
    where these are None."""
    recorded = defaultdict(set)
    for result in _results(records, device):
        recorded[result.path, result.version, result.problem].add(result.machine_code)
    return {case: _state(version_name(*case[:2]), recorded.get(case), digests) for case in cases}


def groups(cases, chosen, records):
    """The Groups of {case: phase}, in the order in which they are to be recorded: phase by phase, bf16 first, as a training
    step is in it. `records` of any device tell how long it takes."""
    estimate = _Estimate(records)
    labels = {(path, version.number): version.label for path, these in chosen.items() for version in these}
    found = defaultdict(lambda: defaultdict(list))  # {(phase, path, dtype): {problem: labels}}
    for (path, number, problem), phase in cases.items():
        found[phase, path, selection.dtype_of(problem)][problem].append(labels[path, number])
    paths = list(chosen)
    ordered = sorted(
        found, key=lambda key: (PHASES.index(key[0]), key[2] != "bf16", paths.index(key[1]), DTYPES.index(key[2]))
    )
    return [group for key in ordered for group in _split(key, found[key], estimate)]


def table(found):
    """Its lines: a row a pass, of states()."""
    passes, bare = defaultdict(Counter), defaultdict(set)
    not_bare = {case[:2] for case, state in found.items() if state != NONE}
    for (path, number, _), state in found.items():
        passes[path][state] += 1
        if (path, number) not in not_bare:
            bare[path].add(number)
    there = set(found.values())
    heads = [state for state in (RECORDED, CURRENT, DATED, NONE, UNKNOWN) if state in there]
    rows = [["pass", *heads, "without any record"]]
    for path, counts in passes.items():
        alone = " ".join(f"v{number:02d}" for number in sorted(bare[path])) or "-"
        rows.append([path, *(str(counts[state]) for state in heads), alone])
    return aligned(rows, range(1, len(heads) + 1))


def plan_table(planned):
    """A row a phase, pass and dtype of groups()."""
    rows = [["why", "pass", "dtype", "versions", "results", "seconds"]]
    for (phase, path, dtype), some in itertools.groupby(planned, lambda each: (each.phase, each.path, each.dtype)):
        some = list(some)
        names = sorted({label[:3] for group in some for label in group.versions})
        seconds = f"{sum(group.seconds for group in some):.0f}"
        results = str(sum(len(group.jobs) for group in some))
        rows.append([phase, path, dtype, " ".join(names), results, seconds])
    return aligned(rows, (4, 5))


def _results(records, device):
    """The Results on a device that somebody checked."""
    return [
        result
        for record in records
        if record.device == device
        for result in record.results
        if result.status != "UNCHECKED"
    ]


def _state(name, recorded, digests):
    if digests is None:
        return RECORDED if recorded else NONE
    if name not in digests:
        return UNKNOWN
    return CURRENT if digests[name] in (recorded or ()) else DATED if recorded else NONE


def _in_step(root, results, device):
    """(path, version's number, problem) of the promotion table and of the newest budget of a training step."""
    _, _, table = promotion.table_of(root, device)
    labels = [(path, cells[2], problem) for (path, problem), cells in table.items()]
    budget = train_budget.newest(results / device, "training-budget", train_budget.BUDGET)
    operations = [train_budget.Operation(budget, raw) for raw in budget["operations"]] if budget else []
    labels += [(each.path, each.version, each.problem) for each in operations]
    return [(path, int(label[1:3]), problem) for path, label, problem in labels if re.match(r"v\d\d_", label)]


def _with_dtypes(line, version):
    """The problems that a line means for a Version: the line, or one for each of its dtypes."""
    able = version.dtypes or DTYPES
    if said := selection.dtype_of(line):
        return [line] if said in able else []
    return [f"{line} {dtype}" for dtype in able]


class _Estimate:
    """Seconds of a Group: those of the same results in the newest record that has them, else the mean of their pass."""

    def __init__(self, records):
        self._spent, self._of_pass, self._first = {}, defaultdict(list), {}
        for result in (result for record in records for result in record.results if result.seconds_spent > 0):
            self._spent[result.path, f"v{result.version:02d}_{result.idea}", result.problem] = result.seconds_spent
            self._of_pass[result.path].append(result.seconds_spent)
        for (path, _, problem), seconds in self._spent.items():  # the longest: with reference and baseline
            self._first[path, problem] = max(seconds, self._first.get((path, problem), 0))

    def of(self, path, labels, problem):
        typical = statistics.fmean(self._of_pass[path]) if self._of_pass[path] else _DEFAULT
        each = [self._spent.get((path, label, problem), typical) for label in labels]
        return max(each[0], self._first.get((path, problem), 0)) + sum(each[1:])


def _split(key, problems, estimate):
    """Groups of problems with the same versions, none longer than it need be."""
    phase, path, dtype = key
    alike = defaultdict(list)
    for problem, labels in problems.items():
        alike[tuple(sorted(labels))].append(problem)
    for labels, lines in alike.items():
        run, seconds = [], _START
        for line in lines:
            more = estimate.of(path, labels, line)
            if run and seconds + more > _LONGEST:
                yield Group(phase, path, dtype, labels, tuple(run), seconds)
                run, seconds = [], _START
            run.append(line)
            seconds += more
        yield Group(phase, path, dtype, labels, tuple(run), seconds)
