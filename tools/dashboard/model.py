"""Data of the dashboard's page, as plain dicts and lists. No HTML here.

A series is one kernel on one problem and device: (device, path, version, problem). Its newest result is compared with
the one before on the same card. Times are seconds with seven digits; missing figures are None.
"""

import math
from dataclasses import replace
from itertools import islice

from . import history, ideas, searches, standing

VERDICTS = ("SLOW", "FAST", "SAME", "AMBIGUOUS", "MISSING", "UNTRUSTED")
FIRST = "FIRST"  # only one record on its card, so nothing to compare with
UNTIMED = "UNTIMED"  # no time in either of the two records
OLDER = "OLDER"  # not measured by the newest comparison of its device

# Keys of a record's fingerprint that break a series: times before and after their change say nothing about the source.
# A change of compiler, flags, library, or of the card for another of the same model is only marked, and a step there
# counts as a step.
_BREAKING = {"device", "driver", "CUDA", "SM clock"}
_OF_ONE_CARD = {*_BREAKING, "uuid"}  # records get a verdict only if they agree in these
_CHANGE_WORDS = {"uuid": "card"}

_FIGURES = ("ratio", "low", "high", "noise", "threshold", "cycles_ratio")
STATUSES = ("PASS", "FAIL", "SKIP", "UNTRUSTED")  # the packed history stores a point's status as its index here

# A pass is memory-bound, and its rate shown in bytes, if for this share of its problems moving the least bytes takes
# longer than the arithmetic.
_MEMORY_BOUND = 0.9


def build(root, records, bad, profiles, live, compare):
    """Returns the page's data. Its long columns are in "histories" and "samples", for page.py to pack.

    `records` from record_files.load_all(), oldest first; `bad`, `profiles` and `live` from sources.read(); `compare(a,
    b)` returns the Comparisons of two records.
    """
    numbers = {id(record): number for number, record in enumerate(records)}
    all_points = _points(records)
    verdicts = _verdicts(all_points, compare)
    memory_bound = _memory_bound([points[-1] for points in all_points.values()])
    series, histories, samples = [], [], []
    for key in sorted(all_points, key=_newest_version_first):
        points = all_points[key]
        pair = _pair(points)
        series.append(_series(key, points, pair, numbers, verdicts.get(key)))
        histories.append([_packed_point(result, numbers) for result in points])
        samples.append([result.times.seconds for result in pair if _is_timed(result)])
    paths = sorted({entry["path"] for entry in series})
    shown_records = [_record(record) for record in records]
    for entry in series:
        entry["memoryBound"] = (entry["device"], entry["path"]) in memory_bound
        entry["copy"] = shown_records[entry["record"]]["copy"]
    shapes = {layer: ideas.shapes(root, layer) for layer in sorted({path.split("/")[0] for path in paths})}
    return {
        "records": shown_records,
        "series": series,
        "live": _only_news(series, shown_records, live),
        "standing": standing.rows(root, series, shown_records),
        "ladders": {path: ideas.of_ladder(root, path) for path in paths},
        "shapes": shapes,
        "profiles": profiles,
        "searches": searches.read(root)[0],
        "bad": bad,
        "histories": histories,
        "samples": samples,
    }


def _newest_version_first(key):
    device, path, version, problem = key
    return device, path, -version, problem


def _points(records):
    """{key: its Results, oldest first}.

    Left out: UNCHECKED results, since their times count for nothing, and a PASS without times, which must not hide an
    earlier time.
    """
    points = {}
    for record in records:
        for result in record.results:
            if result.status == "UNCHECKED" or (result.status == "PASS" and result.times is None):
                continue
            points.setdefault(result.key, []).append(result)
    return points


def _memory_bound(results):
    """{(device, path)} of the memory-bound passes: their lower bound is the time to move the least bytes. A device with
    unknown peak bandwidth has none."""
    votes = {}
    for result in results:
        dram = result.record.environment["device"].get("dram_bytes_per_s")
        if dram and result.min_bytes and math.isfinite(result.roofline):
            of_pass = votes.setdefault((result.record.device, result.path), [])
            of_pass.append(result.roofline <= 1.001 * result.min_bytes / dram)
    return {key for key, of_pass in votes.items() if sum(of_pass) >= _MEMORY_BOUND * len(of_pass)}


def _verdicts(all_points, compare):
    """{key: Verdict} of the newest result against the one before. Compares each pair of records once for all series."""
    pairs = {}
    for key, points in all_points.items():
        *before, newest = (result.record for result in _pair(points))
        for old in before:
            pairs.setdefault((id(old), id(newest)), (old, newest, set()))[2].add(key)
    verdicts = {}
    for before, newest, keys in pairs.values():
        for comparison in compare(_only(before, keys), _only(newest, keys)):
            verdicts[comparison.key] = comparison.verdict
    return verdicts


def _pair(points):
    """[older, newest]: the newest result, preceded by the newest older result of the same card, if any."""
    newest = points[-1]
    older = (result for result in reversed(points[:-1]) if not _changed(result.record, newest.record, _OF_ONE_CARD))
    return [*reversed([newest, *islice(older, 1)])]


def _only_news(series, records, live):
    """Marks verdicts OLDER that are not of their device's newest comparison. Returns {device: its live comparison} for
    devices whose newest comparison is live."""
    days = {}
    for entry in series:
        if entry["verdict"]["status"] in VERDICTS:
            days.setdefault(entry["device"], set()).add(day(records, entry))
    newest = {device: max(of) for device, of in days.items()}
    live = {device: one for device, one in live.items() if one["day"] > newest.get(device, "")}
    for entry in series:
        verdict, measured = entry["verdict"], day(records, entry)
        if verdict["status"] in VERDICTS and (entry["device"] in live or measured < newest[entry["device"]]):
            reason = f"{verdict['status']} on {measured}" + (f": {verdict['reason']}" if verdict["reason"] else "")
            verdict.update(status=OLDER, reason=reason)
    return live


def day(records, entry):
    """The date of a series' newest record."""
    return records[entry["record"]]["created"][:10]


def _only(record, keys):
    return replace(record, results=[result for result in record.results if result.key in keys])


def _series(key, points, pair, numbers, verdict):
    device, path, version, problem = key
    newest = points[-1]
    entry = {
        "device": device,
        "path": path,
        "version": version,
        "problem": problem,
        "dtype": newest.dtype,
        "shape": newest.shape,
        "idea": newest.idea,
        "status": newest.status,
        "reason": newest.reason,
        "record": numbers[id(newest.record)],
        "records": {numbers[id(result.record)] for result in points},
        "pair": [numbers[id(result.record)] for result in pair],
        "dated": newest.is_dated,
        "command": newest.command,
        "flops": number(newest.flops),
        "bytes": number(newest.min_bytes),
        "roofline": number(newest.roofline),
        "error": number(newest.error),
        "worst": number(newest.worst_over_bound),
        "baseline": newest.baseline,
        "baselineReason": newest.baseline_reason,
        "plan": newest.best_plan,
        "library": newest.best_library,
        "baselineError": number(newest.baseline_error),
        "streaming": number(newest.streaming),
        "times": _times(newest.times),
        "baselineTimes": _times(newest.baseline_times),
        "heuristic": number(newest.heuristic_times.median) if newest.heuristic_times else None,
        "verdict": _verdict(pair, verdict),
        "changes": _changes(points, numbers),
        "steps": _steps(points, numbers),
        "timed": [numbers[id(result.record)] for result in pair if _is_timed(result)],
        "kernels": _kernels(newest),
    }
    return entry


def _times(times):
    if times is None:
        return None
    return {
        "median": number(times.median),
        "low": number(times.low),
        "high": number(times.high),
        "warm": number(times.warm_median),
        "throttled": times.throttled,
    }


def _verdict(pair, verdict):
    if verdict is None and pair[-1].status == "UNTRUSTED":
        return {"status": "UNTRUSTED", "reason": pair[-1].reason}
    if verdict is None and len(pair) > 1:
        return {"status": UNTIMED, "reason": "no time in either record"}
    if verdict is None:
        return {"status": FIRST, "reason": "the only record of it on its card"}
    figures = {name: number(getattr(verdict, name)) for name in _FIGURES}
    return {"status": verdict.status, "reason": verdict.reason, **figures}


def _kernels(result):
    """Registers, shared memory and spills (bytes) of the version's kernels; None for a record that predates them."""
    stem = f"dev/{result.path}/v{result.version:02d}_"
    arch = str(result.record.environment["device"].get("arch", ""))
    mine = [kernel for kernel in result.record.kernels if str(kernel.get("file", "")).startswith(stem)]
    mine = [kernel for kernel in mine if arch in str(kernel.get("arch", ""))] or mine
    if not mine:
        return None
    return {
        "registers": max(kernel["registers"] for kernel in mine),
        "smem": max(kernel["static_smem_bytes"] for kernel in mine),
        "spills": sum(kernel["spill_store_bytes"] + kernel["spill_load_bytes"] for kernel in mine),
    }


def _changes(points, numbers):
    """[[record, breaks the series, "driver", "driver 13.0 → 13.1"]] of each change other than the source's."""
    found = []
    for before, after in zip(points, points[1:]):
        changed = [
            (name, old, new) for name, old, new in _differences(before.record, after.record) if name != "library"
        ]
        if before.baseline and after.baseline and before.baseline != after.baseline:
            changed.append(("library", before.baseline, after.baseline))
        if changed:
            names = ", ".join(_CHANGE_WORDS.get(name, name) for name, _, _ in changed)
            text = ", ".join(
                f"{_CHANGE_WORDS.get(name, name)} {_short(old)} → {_short(new)}" for name, old, new in changed
            )
            found.append([numbers[id(after.record)], _changed(before.record, after.record, _BREAKING), names, text])
    return found


def _short(value):
    """Short text of a fingerprint's value: a card's UUID by its first digits, a clock in MHz."""
    text = str(value)
    if text.startswith("GPU-"):
        return text[:12]
    return f"{value / 1e6:.0f} MHz" if isinstance(value, (int, float)) else text


def _differences(before, after):
    old, new = before.fingerprint, after.fingerprint
    if old == new:
        return []
    return [(name, old.get(name), new.get(name)) for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _changed(before, after, names):
    return any(name in names for name, _, _ in _differences(before, after))


def _steps(points, numbers):
    """[[record, seconds before, seconds after, the record before]] of each step; none across a break of the series."""
    timed = [result for result in points if _is_timed(result)]
    starts = [at for at in range(1, len(timed)) if _changed(timed[at - 1].record, timed[at].record, _BREAKING)]
    found, begin = [], 0
    for end in [*starts, len(timed)]:
        run = timed[begin:end]
        for at, before, after in history.steps([result.times.median for result in run]):
            old, new = (numbers[id(result.record)] for result in run[at - 1 : at + 1])
            found.append([new, number(before), number(after), old])
        begin = end
    return found


def _packed_point(result, numbers):
    times = result.times if _is_timed(result) else None
    baseline = result.baseline_times.median if result.baseline_times else None
    return (
        numbers[id(result.record)],
        times and times.median,
        times and times.low,
        times and times.high,
        baseline,
        STATUSES.index(result.status),
    )


def _is_timed(result):
    return result.times is not None and result.status == "PASS"


def _record(record):
    device = record.environment["device"]
    calibration = record.calibration or {}
    libraries = [library for result in record.results for library in result.baseline.split(", ") if library]
    return {
        "file": f"{record.device}/{record.file.name}",
        "device": record.device,
        "name": record.device_name,
        "created": record.created,
        "commit": record.short,
        "results": len(record.results),
        "driver": device.get("driver"),
        "runtime": device.get("runtime"),
        "library": ", ".join(sorted(set(libraries))),
        "clock": number(device.get("max_sm_clock_hz")),
        "clockSeen": number(calibration.get("max_sm_clock_hz")),
        "copy": number(calibration.get("copy_bytes_per_s")),
        "dram": number(device.get("dram_bytes_per_s")),
        "empty": number((calibration.get("empty") or {}).get("seconds")),
        "failure": calibration.get("failure", ""),
    }


def number(value):
    """`value` with seven digits, more than any figure here has; None if not finite, which JSON cannot express."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.7g}")


def is_passed(series):
    return series["status"] == "PASS" and series["times"] is not None


def ratio(series):
    """The baseline's time over the version's, or None."""
    if not is_passed(series) or not series["baselineTimes"]:
        return None
    return series["baselineTimes"]["median"] / series["times"]["median"]


def rate_unit(series):
    """Unit of a kernel's rate: GB/s of the least bytes for a memory-bound pass, else TFLOP/s."""
    return "GB/s" if series["memoryBound"] else "TFLOP/s"


def work(series):
    """Work of a kernel in GB or TFLOP, by rate_unit(); None if unknown or 0."""
    amount = series["bytes"] * 1e-9 if series["memoryBound"] else series["flops"] and series["flops"] * 1e-12
    return amount or None


def rates(series):
    """{heading: figure} of a kernel's newest result; {} without a time."""
    if not is_passed(series) or not work(series):
        return {}
    seconds = series["times"]["median"]
    found = {rate_unit(series): work(series) / seconds}
    if series["memoryBound"] and series["copy"]:
        found["copy, %"] = 100 * series["bytes"] / seconds / series["copy"]
    if series["memoryBound"] and series["streaming"]:
        found["streaming, %"] = 100 * series["streaming"] / seconds
    return found
