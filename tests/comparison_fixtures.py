"""Records for the tests of ./ladder compare, and a program that stands in for a benchmark."""

import json

ENVIRONMENT = {
    "device": {"kind": "gpu", "name": "NVIDIA H200", "slug": "h200", "uuid": "GPU-1", "driver": "13.0",
               "runtime": "13.0", "max_sm_clock_hz": 1.98e9},
    "commit": "a" * 40, "dirty": False, "compiler": "nvcc 13", "flags": "-O3", "build": "cuda", "host": "here",
}


def times(seconds, clock=1.98e9):
    """`clock` is one for all samples or a list."""
    seconds = [round(value, 10) for value in seconds]
    clocks = clock if isinstance(clock, list) else [clock] * len(seconds)
    return {
        "cold_seconds": {"median": _median(seconds), "low": min(seconds), "high": max(seconds), "coverage": 0.95},
        "cold_samples": {"seconds": seconds, "sm_clock_hz": clocks},
        "warm_seconds": None, "warm_samples": {"seconds": [], "sm_clock_hz": []}, "throttled_samples": 0,
    }


def result(version, version_times, problem="n32 c64 bf16", status="PASS", reason="", opponent=None, digest="d1",
           plan="eng7", heuristic=None, library="cuDNN 9"):
    against = {"library": None, "reason": "not asked for"}
    if opponent:
        against = {"library": library, "best_plan": plan, "heuristic_plan": "eng1", "times": opponent,
                   "heuristic_times": heuristic, "verdict": {"error": 1e-3, "status": "PASS", "reason": ""}}
    return {
        "layer": "toy", "pass": "fprop", "version": version, "idea": "naive", "problem": problem,
        "dtype": problem.split()[-1], "flops": 2e9, "min_read_bytes": 1e6, "min_write_bytes": 1e6, "workspace_bytes": 0,
        "roofline_seconds": 5e-6, "command": "bench_toy", "digest": digest, "times": version_times, "opponent": against,
        "verdict": {"status": status, "reason": reason, "error": 1e-3, "worst_over_bound": 0.5, "unwritten": 0},
    }


def record(results, created="2026-01-01T00:00:00Z", calibration=None, **environment):
    whole = {**ENVIRONMENT, **environment}
    return {"schema": "ladder.record/1", "created": created, "command": ["bench_toy"], "seed": 1,
            "environment": whole, "calibration": calibration, "results": results}


def write(file, raw):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(raw))
    return file


def _median(values):
    """As statistics.median, whose import would be most of the fake benchmark's time."""
    values, half = sorted(values), len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


# What a side's benchmark does: `behaviour.json` beside the tree says how fast it is and what goes wrong. The noise
# comes from the number of the call, so a test gives the same every time.
BENCH = '''#!{python} -SE
import json, pathlib, random, sys
sys.path.insert(0, {path!r})
import comparison_fixtures as fixtures

arguments = sys.argv[1:]
here = pathlib.Path({folder!r})
behaviour = json.loads((here / "behaviour.json").read_text())
if "--help" in arguments:
    print("--check --once" + ("" if behaviour.get("old") else " --unchecked --handicap"))
    sys.exit(0)
calls = here / "calls"
with open(calls, "a") as file:
    file.write(json.dumps(arguments) + "\\n")
call = len(calls.read_text().splitlines())
with open(here.parent / "order", "a") as file:
    file.write(here.name)
if call in behaviour.get("dies_at", []):
    print("bench_toy: out of memory", file=sys.stderr)
    sys.exit(1)
value = lambda flag: arguments[arguments.index(flag) + 1] if flag in arguments else None
checked = "--check" in arguments
wanted = None if value("--version") == "all" else set(map(int, value("--version").split(",")))
problems = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--problem"] or behaviour["problems"]
rng = random.Random(1000 * behaviour["seed"] + call)
results, failed = [], False
for version, seconds in behaviour["seconds"].items():
    if wanted and int(version) not in wanted:
        continue
    for problem in problems:
        scale = rng.gauss(1, behaviour.get("noise", 0.001)) * behaviour.get("factor", {{}}).get(version, 1.0)
        if call in behaviour.get("slow_at", []):
            scale *= 1.1
        samples = [seconds * scale * rng.gauss(1, 0.002) for _ in range(int(value("--samples") or 1))]
        fails = version in behaviour.get("fails", [])
        failed |= fails
        skips = version in behaviour.get("skips", [])
        status = "SKIP" if skips else ("FAIL" if fails else "PASS") if checked else "UNCHECKED"
        digest = f"d{{call}}" if version in behaviour.get("unsteady", []) else "d1"
        reason = "too wide" if skips else "3 elements are wrong" if fails else ""
        times = None if checked or skips else fixtures.times(samples)
        results.append(fixtures.result(int(version), times, problem, status, reason, digest=digest))
failure = "a spin is read wrongly" if call in behaviour.get("stopwatch_fails_at", []) else ""
pathlib.Path(value("--record")).write_text(json.dumps(fixtures.record(results, calibration={{"failure": failure}})))
sys.exit(1 if failed and checked else 0)
'''
