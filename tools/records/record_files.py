"""Reader of the records in results/ (results/SCHEMA.md); rejects a record that contradicts itself."""

import hashlib
import json
import math
import re
import statistics
from datetime import datetime, timezone
from pathlib import Path

from cli import json_file, say
from registry import old_names

from . import current
from .results import Plan, Record, Result, Times

SCHEMA = "ladder.record/2"
_READABLE = (SCHEMA, "ladder.record/1")  # old_names.current() translates the older one
STATUSES = ("PASS", "FAIL", "SKIP", "UNTRUSTED", "UNCHECKED")

# Tolerance between a stated median and that of the samples, seconds: samples are rounded to 0.1 ns, the median was not.
_ROUNDING = 1.1e-10

_CHECKSUM_LINE = re.compile(r'^"sha256": "([0-9a-f]{64})",\n', re.MULTILINE)


_NUMBER = (int, float, type(None))


class BadRecord(Exception):
    """The reason that a record is rejected, in one line that names the file."""


def load(file):
    """The Record in `file`, or None if the file is JSON of another kind. Throws BadRecord."""
    file = Path(file)
    try:
        text = json_file.unpacked(file.read_bytes()).decode("utf-8-sig")
        text = text.replace("\r\n", "\n").replace("\r", "\n")  # the checksum is over text with "\n"
        raw = old_names.current(json_file.parse(text))
        if not isinstance(raw, dict) or "schema" not in raw:
            raise ValueError("JSON of another kind, without a schema")
        schema = raw["schema"]
    except (OSError, ValueError, RecursionError) as error:
        raise BadRecord(f"{file}: not a record: {json_file.reason(error)}") from None
    if schema not in _READABLE:
        if isinstance(schema, str) and schema.startswith("ladder.record/"):
            raise BadRecord(f"{file}: schema {schema}, this tool reads {SCHEMA}")
        return None
    if "sha256" in raw and raw["sha256"] != checksum(text):
        raise BadRecord(f"{file}: changed since it was written: its checksum is that of another text")
    try:
        return _record(file, raw)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise BadRecord(f"{file}: broken record: {json_file.reason(error)}") from None


def named(results, pattern):
    """Files in results/ by a glob pattern that ends in .json, plain and compressed (.json.xz), sorted. Omits hidden
    files, which macOS and editors create."""
    found = [file for each in (pattern, f"{pattern}.xz") for file in Path(results).glob(each)]
    return sorted(file for file in found if not file.name.startswith("."))


def load_all(results, device="*"):
    """([Record], [BadRecord]) of every GPU or of one device, oldest first. A copy of a record is a BadRecord."""
    records, bad = [], []
    for file in named(results, f"{device}/*.json"):
        try:
            record = load(file)
        except BadRecord as error:
            bad.append(error)
            continue
        if record and record.environment["device"]["kind"] == "gpu":  # emulated times mean nothing
            records.append(record)
    records, copies = _without_copies(records)
    current.mark(results, records)
    return sorted(records, key=lambda record: (record.created, record.file.name)), bad + copies


def _without_copies(records):
    """(records, [BadRecord of a copy]). The original is the one in its device's folder with the shortest name."""
    originals, copies = {}, []
    for record in sorted(records, key=lambda each: (each.device != each.slug, len(each.file.name), each.file.name)):
        original = originals.setdefault(record.identity, record)
        if original is not record:
            copies.append(BadRecord(f"{record.file}: a copy of {original.device}/{original.file.name}"))
    return list(originals.values()), copies


def newest_device(records):
    """The device of the newest of `records` (oldest first); prints a line if there are other devices."""
    newest = records[-1].device
    others = sorted({record.device for record in records} - {newest})
    if others:
        say.line(f"the newest record is of {newest}; --device chooses another ({', '.join(others)})")
    return newest


def now():
    """Current UTC time in the format of records."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def checksum(text):
    """SHA-256 of a record's text without its checksum line."""
    return hashlib.sha256(_CHECKSUM_LINE.sub("", text, count=1).encode()).hexdigest()


def text_of(raw):
    """Text of a record's file: one line per field, one line per result, with its checksum first."""
    fields = []
    for key, value in raw.items():
        if key == "sha256":
            continue
        if key == "results":
            lines = ",\n".join(json.dumps(result, sort_keys=True, separators=(",", ":")) for result in value)
            fields.append(f'"results": [\n{lines}]')
        else:
            fields.append(f"{json.dumps(key)}: {json.dumps(value, sort_keys=True, separators=(',', ':'))}")
    text = "{\n" + ",\n".join(fields) + "\n}\n"
    return '{\n"sha256": "' + checksum(text) + '",\n' + text[2:]


def _record(file, raw):
    environment = raw["environment"]
    device = environment["device"]
    programs = raw.get("programs", {})
    _check_types(
        environment, [raw["calibration"], *(run.get("calibration") for runs in programs.values() for run in runs)]
    )
    record = Record(
        file=file,
        device=file.parent.name,
        device_name=device.get("name", device["kind"]),
        created=_text(raw["created"]),
        commit=_text(environment["commit"]),
        dirty=bool(environment["dirty"]),
        environment=environment,
        calibration=raw["calibration"],
        programs=programs,
        machine=raw.get("machine"),
        kernels=raw.get("kernels", []),
        machine_code=dict(raw.get("machine_code", {})),
        results=[],
    )
    record.results = [_result(record, result) for result in raw["results"]]
    return record


def _check_types(environment, calibrations):
    """Throws TypeError for a figure that is no number, or a name that is no text: readers rely on these types."""
    for figures in (environment["device"], *filter(None, calibrations)):
        for name, value in figures.items():
            if name.endswith(("_per_s", "_hz")) and (isinstance(value, bool) or not isinstance(value, _NUMBER)):
                raise TypeError(f"{name} is {value!r}, no number")
    for words in (environment["device"], environment):
        for name in ("kind", "name", "slug", "uuid", "driver", "runtime", "compiler", "flags"):
            if not isinstance(words.get(name), (str, type(None))):
                raise TypeError(f"{name} is {words[name]!r}, no text")


def _result(record, raw):
    verdict, baseline = raw["verdict"], raw["baseline"]
    name = f"v{raw['version']:02d} {raw['problem']}"
    if verdict["status"] not in STATUSES:
        raise ValueError(f"{name}: status {verdict['status']!r}")
    baseline_verdict = baseline.get("verdict") or {}
    return Result(
        record=record,
        path=f"{_text(raw['layer'])}/{_text(raw['pass'])}",
        version=int(raw["version"]),
        idea=_text(raw["idea"]),
        problem=_text(raw["problem"]),
        dtype=_text(raw["dtype"]),
        status=verdict["status"],
        reason=_text(verdict["reason"]),
        error=_number(verdict["error"]),
        worst_over_bound=_number(verdict["worst_over_bound"]),
        digest=_text(raw.get("digest", "")),
        command=_text(raw["command"]),
        seconds_spent=_number(raw.get("seconds_spent")),
        flops=float(raw["flops"]),
        min_bytes=float(raw["min_read_bytes"]) + float(raw["min_write_bytes"]),
        roofline=_number(raw["roofline_seconds"]) or math.nan,
        times=_times(raw["times"], name),
        baseline=baseline["library"] or "",
        baseline_reason=_text(baseline.get("reason", "")),
        search=_text(baseline.get("search", "all")),
        tried_plans=[
            Plan(
                _text(plan["name"]),
                float(plan["seconds"]) or math.nan,
                _text(plan.get("reason", "")),
                _text(plan.get("library") or old_names.library_of(plan["name"], baseline["library"] or "")),
            )
            for plan in baseline.get("tried_plans") or []
        ],
        best_plan=_text(baseline.get("best_plan", "")),
        heuristic_plan=_text(baseline.get("heuristic_plan", "")),
        baseline_error=_number(baseline_verdict.get("error")),
        baseline_times=_times(baseline.get("times"), f"the baseline of {name}"),
        heuristic_times=_times(baseline.get("heuristic_times"), f"the heuristic's plan of {name}"),
        streaming=_streaming(raw.get("streaming"), name),
    )


def _streaming(raw, name):
    if not raw:
        return math.nan
    name = f"the streaming kernel of {name}"
    _agree(float(raw["seconds"]), _samples(raw["samples"], name), name)
    return float(raw["seconds"])


def _times(raw, name):
    if not raw:
        return None
    cold, warm = raw["cold_samples"], raw["warm_samples"]["seconds"]
    stated = raw["cold_seconds"]
    times = Times(
        seconds=_samples(cold["seconds"], name),
        clocks=_clocks(cold["sm_clock_hz"], name),
        warm=_samples(warm, name) if warm else [],
        median=float(stated["median"]),
        low=float(stated["low"]),
        high=float(stated["high"]),
        warm_median=_number(raw["warm_seconds"]),
        throttled=int(raw["throttled_samples"]),
    )
    if len(times.clocks) != len(times.seconds):
        raise ValueError(f"{name}: {len(times.seconds)} cold samples with {len(times.clocks)} clocks")
    _agree(times.median, times.seconds, name)
    if times.warm:
        _agree(times.warm_median, times.warm, name)
    if not times.low <= times.median <= times.high:
        raise ValueError(f"{name}: the interval {times.low} .. {times.high} leaves out the median {times.median}")
    return times


def _agree(stated, samples, name):
    median = statistics.median(samples)
    if not abs(stated - median) <= _ROUNDING:
        raise ValueError(f"{name}: the median is said to be {stated} s, its samples say {median} s")


def _samples(values, name):
    values = [float(value) for value in values]
    if not values or not all(0 < value < math.inf for value in values):
        raise ValueError(f"{name}: samples must be positive numbers")
    return values


def _clocks(values, name):
    known = [value for value in values if value is not None]
    if known:
        _samples(known, name)
    return [_number(value) for value in values]


def _number(value):
    """Converts JSON's null to nan."""
    return math.nan if value is None else float(value)


def _text(value):
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def read(results):
    """The newest Result of each version, problem and device in `results`. Prints a line for each rejected file.

    Neither a later PASS without times nor an UNCHECKED time replaces a time; a later failure does. A time with a
    baseline that was not fully searched does not count.
    """
    records, bad = load_all(results)
    for error in bad:
        say.line(f"left out: {error}")
    newest = {}
    for record in records:
        for result in record.results:
            if result.status == "UNCHECKED" or (result.times and not result.fully_searched):
                continue
            only_checked = result.status == "PASS" and not result.times
            if result.key not in newest or not only_checked:
                newest[result.key] = result
    return [newest[key] for key in sorted(newest)]


def geometric_mean(values):
    """Geometric mean of the positive values, nan excluded; nan without any."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
