"""Readers of the dashboard's sources: records, profiles, live comparisons and searches."""

import math
from pathlib import Path

from cli import json_file
from records import record_files
from registry import old_names

from . import searches

LIVE_SCHEMA, PROFILE_SCHEMA = "ladder.comparison/1", "ladder.profile/1"


def read(root):
    """(records, bad, profiles, live). bad: [{"file", "reason"}] of invalid files. live: {device: newest comparison}."""
    results = Path(root) / "results"
    records, wrong = record_files.load_all(results)
    bad = [_split(error, results) for error in wrong]
    profiles, wrong = _readable(results, "*/profiles/*.json", "a profile", _profile)
    comparisons, others = _readable(results, "*/*_compare-live.json", "a live comparison", _live)
    wrong += searches.read(root)[1]
    return records, bad + wrong + others, profiles, {one["device"]: one for one in comparisons}


def _readable(results, pattern, kind, read_one):
    """(results of read_one() for the files of `pattern`, [{"file", "reason"}] of the invalid files)."""
    found, bad = [], []
    for file in record_files.named(results, pattern):
        try:
            found.append(read_one(file, results))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            bad.append({"file": str(file.relative_to(results)), "reason": f"not {kind}: {json_file.reason(error)}"})
    return found, bad


def _live(file, results):
    raw = _of_schema(file, LIVE_SCHEMA)
    return {
        "device": file.relative_to(results).parts[0],
        "day": file.name[:10],
        "a": _short(raw["a"]),
        "b": _short(raw["b"]),
        "paths": sorted({str(one["path"]) for one in raw["comparisons"]}),
        "counts": {str(status): int(count) for status, count in raw["counts"].items()},
    }


def _short(side):
    return str(side["commit"] or side["name"])[:7] + ("+" if side["dirty"] else "")


def _of_schema(file, schema):
    raw = old_names.current(json_file.read(file))
    if raw["schema"] != schema:
        raise ValueError(f"schema {raw['schema']}, this tool reads {schema}")
    return raw


def _profile(file, results):
    raw = _of_schema(file, PROFILE_SCHEMA)
    report = file.with_suffix(".ncu-rep")
    environment = raw["environment"]
    return {
        "file": str(file.relative_to(results)),
        "device": file.relative_to(results).parts[0],
        "report": str(report.relative_to(results)) if report.exists() else None,
        "created": str(raw["created"]),
        "commit": str(environment["commit"])[:7] + ("+" if environment["dirty"] else ""),
        "path": f"{raw['layer']}/{raw['pass']}",
        "version": int(raw["version"]),
        "idea": str(raw["idea"]),
        "problem": str(raw["problem"]),
        "dtype": str(raw["dtype"]),
        "lower_bound": _finite(raw["lower_bound_seconds"]),
        "ncu": str(raw.get("ncu", "")),
        "command": _command(raw["command"]),
        "advice": [str(line) for line in raw.get("advice", [])],
        "total": _figures(raw["total"]),
        "kernels": [_kernel(kernel) for kernel in raw["kernels"]],
    }


def _figures(raw):
    return {
        str(name): {
            "value": _finite(figure["value"]),
            "unit": str(figure["unit"]),
            "text": str(figure.get("text") or ""),
        }
        for name, figure in raw.items()
    }


def _kernel(raw):
    stalls = [{"reason": str(stall["reason"]), "share": _finite(stall["share"])} for stall in raw.get("stalls", [])]
    return {
        "name": str(raw["name"]),
        "grid": _extent(raw["grid"]),
        "block": _extent(raw["block"]),
        "duration": _finite(raw["figures"]["duration"]["value"]),
        "stalls": stalls,
    }


def _extent(sizes):
    """[132, 1, 1] as "132", [8, 4, 1] as "8 × 4"."""
    sizes = [int(size) for size in sizes]
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return " × ".join(map(str, sizes))


def _command(command):
    return command if isinstance(command, str) else " ".join(map(str, command))


def _finite(value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _split(error, results):
    """Splits a BadRecord's line into file, relative to results/, and reason."""
    line = str(error).replace(f"{results}/", "")
    file, _, reason = line.partition(": ")
    return {"file": file, "reason": reason}
