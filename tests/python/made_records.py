"""Complete and consistent records for tests, which a test then spoils."""

import json


def times(seconds, clock=1.98e9, warm=None):
    """Returns a record's times. `seconds` is a list of cold samples, or the value of all samples; `clock` likewise.
    `warm` is a list of samples; by default all are nine tenths of the cold median."""
    cold = list(seconds) if isinstance(seconds, (list, tuple)) else [seconds] * 3
    clocks = list(clock) if isinstance(clock, (list, tuple)) else [clock] * len(cold)
    hot = warm or [0.9 * _median(cold)] * 3
    cold, hot = ([round(sample, 10) for sample in samples] for samples in (cold, hot))
    return {
        "cold_seconds": {"median": _median(cold), "low": min(cold), "high": max(cold), "coverage": 0.95},
        "warm_seconds": _median(hot),
        "throttled_samples": 0,
        "cold_samples": _columns(cold, clocks),
        "warm_samples": _columns(hot, clocks[:1] * len(hot)),
    }


def _columns(seconds, clocks):
    return {"seconds": seconds, "stamp_seconds": seconds, "wall_seconds": seconds, "sm_clock_hz": clocks}


def _median(values):
    """Returns the median. Importing statistics would take most of the time of test_compare_live's fake benchmark."""
    values, half = sorted(values), len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def verdict(status="PASS", reason="", error=0.001):
    return {"status": status, "reason": reason, "error": error, "worst_over_bound": 0.5, "unwritten": 0}


def baseline(seconds, library="cuDNN 9", plan="eng1", clock=1.98e9):
    """Returns a record's baseline. `seconds` as in result()."""
    if not seconds:
        return {"library": None, "reason": "no cuDNN"}
    measured = _measured(seconds, clock)
    return {
        "library": library,
        "best_plan": plan,
        "heuristic_plan": plan,
        "tried_plans": [],
        "workspace_bytes": 0,
        "verdict": verdict(),
        "times": measured,
        "heuristic_times": measured,
    }


def _measured(seconds, clock):
    return seconds if seconds is None or isinstance(seconds, dict) else times(seconds, clock)


def result(version, seconds, problem="n32 c64 bf16", against=100e-6, status="PASS", reason="", clock=1.98e9, **fields):
    """Returns a record's result. `seconds` and `against` are for times(), or its results; None: no time, no
    baseline."""
    made = {
        "layer": "toy",
        "pass": "fprop",
        "version": version,
        "idea": f"idea_{version}",
        "problem": problem,
        "dtype": problem.split()[-1],
        "flops": 2e9,
        "min_read_bytes": 1e6,
        "min_write_bytes": 1e6,
        "workspace_bytes": 0,
        "roofline_seconds": 10e-6,
        "verdict": verdict(status, reason),
        "times": _measured(seconds, clock),
        "baseline": baseline(against, clock=clock),
        "command": f"build/cuda/bench_toy --version {version} --problem '{problem}' --seed 1",
    }
    return {**made, **fields}


def record(
    results,
    created="2026-01-01T00:00:00Z",
    commit="abcdef0123456789",
    dirty=False,
    kind="gpu",
    compiler="nvcc 13",
    **fields,
):
    device = {
        "kind": kind,
        "name": "NVIDIA H200",
        "slug": "h200",
        "uuid": "GPU-1",
        "driver": "13.0",
        "runtime": "13.0",
        "arch": 90,
        "num_sms": 132,
        "l2_bytes": 60e6,
        "max_sm_clock_hz": 1.98e9,
        "dram_bytes_per_s": 4.8e12,
    }
    made = {
        "schema": "ladder.record/2",
        "created": created,
        "command": ["build/cuda/bench_toy"],
        "seed": 1,
        "environment": {
            "device": device,
            "host": "box",
            "commit": commit,
            "dirty": dirty,
            "build": "cuda",
            "compiler": compiler,
            "flags": "-O3",
        },
        "calibration": {
            "spins": [],
            "empty": {"seconds": 3e-6},
            "copy_bytes_per_s": 4.1e12,
            "max_sm_clock_hz": 1.98e9,
            "failure": "",
        },
        "results": results,
    }
    return {**made, **fields}


def write(file, made):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(made))
    return file
