"""One kernel on one problem: its figures in words, what its history says, and its line of a download."""

from . import model
from .html_table import Html, escape, figure, micros, name_of
from .verdicts import signed


def row(series, records):
    """A line of a download, whose times the charts draw too."""
    times, baseline = series["times"] or {}, series["baselineTimes"] or {}
    record = records[series["record"]]
    same = "device path version idea problem dtype status reason flops bytes baseline error command".split()
    return {
        **{name: series[name] for name in same},
        "cold_seconds": times.get("median"),
        "cold_low": times.get("low"),
        "cold_high": times.get("high"),
        "warm_seconds": times.get("warm"),
        "copy_bytes_per_s": series["copy"],
        "streaming_seconds": series["streaming"],
        "baseline_seconds": baseline.get("median"),
        "times_library": model.ratio(series),
        "roofline_seconds": series["roofline"],
        "baseline_error": series["baselineError"],
        "verdict": series["verdict"]["status"],
        "ratio_to_previous": series["verdict"].get("ratio"),
        "commit": record["commit"],
        "created": record["created"],
    }


def shown(series):
    """HTML of its figures and of the command that measures it again."""
    facts = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more or '')}</small></dd></div>"
        for name, value, more in _facts(series)
    )
    words = f"{name_of(series)} {series['idea'].replace('_', ' ')}, {series['problem']}. {_sentence(series['verdict'])}"
    return (
        f"<p class=sentence>{escape(words)}</p><dl class=facts>{facts}</dl><div class=command><pre><code id=reproducer>"
        f"{escape(series['command'])}</code></pre><button type=button id=copy>Copy</button></div>"
    )


def _facts(series):
    yield "check", series["status"], series["reason"]
    times, baseline, ratio = series["times"], series["baselineTimes"], model.ratio(series)
    if model.is_passed(series):
        seconds = times["median"]
        yield "cold", f"{micros(seconds)} µs", f"95 %: {micros(times['low'])} to {micros(times['high'])} µs"
        if times["warm"]:
            yield "warm", f"{micros(times['warm'])} µs", "launches back to back"
        rates = model.rates(series)
        if rates:
            unit, rate = next(iter(rates.items()))
            copied = rates.get("copy, %")
            of_copy = copied and f"{copied:.0f} % of a copy's {figure(series['copy'] * 1e-9)} GB/s"
            yield (
                "rate",
                f"{figure(rate)} {unit}",
                of_copy or f"{figure(series['bytes'] / seconds * 1e-12)} TB/s of the least bytes",
            )
        if "streaming, %" in rates:
            moving = f"a kernel that only moves them: {micros(series['streaming'])} µs"
            yield "of what a streaming kernel takes", f"{rates['streaming, %']:.0f} %", moving
        if series["roofline"]:
            yield (
                "of the card's limit",
                f"{100 * series['roofline'] / seconds:.0f} %",
                f"at least {micros(series['roofline'])} µs",
            )
        if times["throttled"]:
            yield "throttled", f"{times['throttled']} samples", "the clock had fallen under 75 %"
    if baseline:
        untuned = series["heuristic"] and f"untuned {micros(series['heuristic'])} µs"
        yield series["baseline"], f"{micros(baseline['median'])} µs", ", ".join(filter(None, (series["plan"], untuned)))
    if ratio:
        faster = "we are faster" if ratio > 1 else f"{series['library']} is faster"
        yield "× library", figure(ratio), faster
    if series["error"] is not None:
        known = series["baselineError"] is not None
        yield (
            "error",
            f"{series['error']:.1e}",
            f"library {series['baselineError']:.1e}" if known else "library's is unknown",
        )
        if series["worst"] is not None:
            yield "of its bound", f"{100 * series['worst']:.0f} %", "the largest error of an element"


def _sentence(verdict):
    if verdict["status"] == model.FIRST:
        return "One record on its card so far: there is nothing to compare it with yet."
    if not verdict.get("ratio"):
        return f"{verdict['status']}: {verdict['reason']}."
    ends = verdict["low"], verdict["high"]
    span = f" (99 % interval {signed(ends[0])} to {signed(ends[1])})" if None not in ends else ""
    cycles = f", in cycles {signed(verdict['cycles_ratio'])}" if verdict["cycles_ratio"] else ""
    least = f" A change counts from {100 * verdict['threshold']:.1f} % on." if verdict["threshold"] else ""
    return f"{verdict['status']}: time {signed(verdict['ratio'])}{span}{cycles}. {verdict['reason']}{least}"


def notes(series, points, records, most=12):
    """HTML of the steps of its history and the changes around it, each with its commit."""
    commits = [record["commit"] for record in records]
    found = [
        f"Step at {commits[new]} (after {commits[old]}): {micros(before)} to {micros(after)} µs, {signed(after / before)}."
        for new, before, after, old in series["steps"]
    ]
    found += [f"Before {commits[record]}: {text}." for record, _, _, text in series["changes"]]
    found += [f"{model.STATUSES[one[-1]]} at {commits[one[0]]}." for one in points if model.STATUSES[one[-1]] != "PASS"]
    if len(points) == 1:
        found.append("One record so far; each further ./ladder record adds a point.")
    if len(found) > most:
        found[most:] = [f"And {len(found) - most} more."]
    return Html("".join(f"<li>{escape(note)}</li>" for note in found))
