"""Report of a comparison: text for people, JSON (ladder.comparison/1, results/SCHEMA.md) and JUnit for programs."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from xml.etree import ElementTree

from cli import files
from cli.columns import aligned
from cli.errors import Failure
from records import record_files

from . import rule

SCHEMA = "ladder.comparison/1"

# Terminal colour codes by status; colour only repeats what the text says.
_COLOURS = {rule.SLOW: "31;1", rule.UNTRUSTED: "35", rule.MISSING: "35", rule.AMBIGUOUS: "33", rule.FAST: "32"}

_HEADINGS = ("verdict", "kernel", "A, us", "B, us", "B / A", "99 %", "cycles", "vs lib")


@dataclass
class Report:
    mode: str  # "live" or "records"
    a: dict  # {"name": ..., ...} of the side
    b: dict
    comparisons: list  # [Comparison], the worst first
    notes: list  # lines for people
    reproduce: Callable  # (Comparison) -> the command that repeats it

    @cached_property
    def counts(self):
        return Counter(comparison.verdict.status for comparison in self.comparisons)

    def failures(self, fail_on):
        return [comparison for comparison in self.comparisons if comparison.verdict.status in fail_on]

    def geomean(self):
        """Geometric mean of B / A over the kernels with a trusted ratio; nan if there is none."""
        return record_files.geometric_mean([comparison.verdict.ratio for comparison in self.comparisons])

    def text(self, everything=False, colour=False):
        lines = [f"A: {self.a['name']}", f"B: {self.b['name']}", *self.notes, ""]
        lines += self._table(everything, colour)
        ratio = self.geomean()
        compared = sum(math.isfinite(comparison.verdict.ratio) for comparison in self.comparisons)
        if compared:
            lines.append(f"geometric mean of B / A over {compared} kernels: {ratio:.4f} ({rule.percent(ratio)})")
        counts = ", ".join(f"{self.counts[status]} {status}" for status in rule.STATUSES if self.counts[status])
        lines.append(f"{len(self.comparisons)} kernels: {counts or 'none to compare'}")
        return "\n".join(lines) + "\n"

    def json(self, command, raw=False):
        """JSON text of the report; `raw` adds the samples of a live comparison."""
        entries = [self._entry(comparison, raw) for comparison in self.comparisons]
        report = {
            "schema": SCHEMA,
            "mode": self.mode,
            "command": command,
            "a": self.a,
            "b": self.b,
            "notes": self.notes,
            "rule": {
                "least_repetitions": rule.LEAST_REPETITIONS,
                "confidence": rule.CONFIDENCE,
                "least_change": rule.LEAST_CHANGE,
                "noise_factor": rule.NOISE_FACTOR,
                "between_records": rule.BETWEEN_RECORDS,
            },
            "counts": {status: self.counts[status] for status in rule.STATUSES},
            "geomean": _or_null(self.geomean()),
            "comparisons": entries,
        }
        return json.dumps(report, indent=1, allow_nan=False) + "\n"

    def junit(self, fail_on):
        """JUnit XML: SLOW and the statuses of `fail_on` are failures; others without a verdict are skipped."""
        failing = {rule.SLOW, *fail_on}
        unsure = {rule.AMBIGUOUS, rule.MISSING, rule.UNTRUSTED} - failing
        failures = sum(self.counts[status] for status in failing)
        skipped = sum(self.counts[status] for status in unsure)
        counts = {
            "tests": str(len(self.comparisons)),
            "failures": str(failures),
            "errors": "0",
            "skipped": str(skipped),
            "time": "0",
        }
        suites = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(suites, "testsuite", {"name": f"ladder compare, {self.mode}", **counts})
        for comparison in self.comparisons:
            device, path, version, problem = comparison.key
            seconds = _median(comparison.b)
            case = ElementTree.SubElement(
                suite,
                "testcase",
                {
                    "classname": f"{device}.{path.replace('/', '.')}.v{version:02d}",
                    "name": problem,
                    "time": f"{0 if math.isnan(seconds) else seconds:.9f}",
                },
            )
            status = comparison.verdict.status
            if status in failing:
                words = {"type": status, "message": self._message(comparison)}
                element = ElementTree.SubElement(case, "failure", words)
                element.text = self.reproduce(comparison)
            elif status in unsure:
                ElementTree.SubElement(case, "skipped", {"message": f"{status}: {self._message(comparison)}"})
        ElementTree.indent(suites)
        return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"

    def _message(self, comparison):
        verdict = comparison.verdict
        if math.isnan(verdict.ratio):
            return verdict.reason
        return f"{rule.told(verdict)} {verdict.reason}".strip()

    def _entry(self, comparison, raw):
        device, path, version, problem = comparison.key
        verdict = comparison.verdict
        entry = {"device": device, "path": path, "version": version, "problem": problem}
        entry.update(
            {name: _or_null(value) if isinstance(value, float) else value for name, value in verdict.__dict__.items()}
        )
        entry["a_seconds"] = _or_null(_median(comparison.a))
        entry["b_seconds"] = _or_null(_median(comparison.b))
        entry["reproduce"] = self.reproduce(comparison)
        if raw:
            entry["repetitions"] = comparison.repetitions
        return entry

    def _table(self, everything, colour):
        rows, after = [_HEADINGS], [""]
        for comparison, others in _folded(self.comparisons):
            verdict = comparison.verdict
            if verdict.status == rule.SAME and not everything:
                continue
            times = ("", "") if others else (_us(comparison.a), _us(comparison.b))
            rows.append(
                (
                    verdict.status,
                    _kernel(comparison, others),
                    *times,
                    _ratio(verdict.ratio),
                    _interval(verdict),
                    _ratio(verdict.cycles_ratio),
                    _ratio(verdict.candle_ratio),
                )
            )
            after.append(self.reproduce(comparison) if verdict.status == rule.SLOW else verdict.reason)
        if len(rows) == 1:
            return []
        shown = [at for at in range(len(_HEADINGS)) if any(row[at] for row in rows[1:])]
        lines = aligned([[*(row[at] for at in shown), last] for row, last in zip(rows, after)], range(2, len(shown)))
        if colour:
            width = max(len(row[0]) for row in rows)
            lines = [_coloured(line, row[0], width) for line, row in zip(lines, rows)]
        return [*lines, ""]


def write_aside(path, text):
    """Replaces the file `path` atomically. Throws Failure."""
    try:
        files.replace(path, text)
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}") from None


def _coloured(line, status, width):
    return f"\033[{_COLOURS[status]}m{line[:width]}\033[0m{line[width:]}" if status in _COLOURS else line


def _folded(comparisons):
    """Yields (comparison, others that share its table line): MISSING kernels with the same reason share a line."""
    missing = {}
    for comparison in comparisons:
        if comparison.verdict.status == rule.MISSING:
            missing.setdefault(comparison.verdict.reason, []).append(comparison)
        else:
            yield comparison, []
    for first, *others in missing.values():
        yield first, others


def _kernel(comparison, others):
    if not others:
        return comparison.label
    paths = dict.fromkeys(each.key[1] for each in (comparison, *others))
    return f"{len(others) + 1} kernels of {', '.join(paths)}"


def _median(result):
    return result.times.median if result and result.times else math.nan


def _us(result):
    seconds = _median(result)
    return "" if math.isnan(seconds) else f"{1e6 * seconds:.2f}"


def _ratio(ratio):
    return "" if math.isnan(ratio) else f"{ratio:.4f}"


def _interval(verdict):
    return "" if math.isnan(verdict.low) else f"{verdict.low:.4f} .. {verdict.high:.4f}"


def _or_null(value):
    return value if math.isfinite(value) else None
