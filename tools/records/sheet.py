"""A record's results as CSV: a line a version and problem, a column a size of the problem."""

import csv
import io
import math

from registry import selection

_US = 1e6


def text(record):
    rows = [_row(result) for result in record.results]
    columns = dict.fromkeys(name for row in rows for name in row)
    sizes = [name for name in columns if any(name in sizes_of(result.problem) for result in record.results)]
    first = ["layer", "pass", "version", "idea", "problem", "dtype", *sizes]
    out = io.StringIO()
    writer = csv.DictWriter(out, [*first, *(name for name in columns if name not in first)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def sizes_of(problem):
    """{"h": 64, "w": 64} of "h64 w64 bf16"."""
    letters = [(selection.size(word), word) for word in problem.split()]
    return {letter: int(word[len(letter) :]) for letter, word in letters if letter}


def _row(result):
    times, baseline = result.times, result.baseline_times
    layer, _, a_pass = result.path.partition("/")
    figures = {
        "error": result.error,
        "us_cold": _US * result.cold,
        "us_cold_low": _US * times.low if times else math.nan,
        "us_cold_high": _US * times.high if times else math.nan,
        "us_warm": _US * result.warm,
        "tflops": 1e-12 * result.flops / result.cold,
        "gbytes_per_s": 1e-9 * result.min_bytes / result.cold,
        "us_roofline": _US * result.roofline,
        "baseline_us_cold": _US * result.baseline_cold,
        "baseline_us_warm": _US * (result.baseline_warm if baseline else math.nan),
    }
    return {
        "layer": layer,
        "pass": a_pass,
        "version": result.version,
        "idea": result.idea,
        "problem": result.problem,
        "dtype": result.dtype,
        **sizes_of(result.problem),
        "status": result.status,
        "reason": result.reason,
        "baseline": result.best_library,
        "baseline_plan": result.best_plan,
        **{name: "" if math.isnan(value) else f"{value:.6g}" for name, value in figures.items()},
    }
