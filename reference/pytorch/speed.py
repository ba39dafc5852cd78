"""The harness of unet_speed.py and policy_speed.py: their flags, a process for each variant, the record, and times of calls.

Times are those of single calls, between CUDA events. torch.utils.benchmark tells means of several calls by the host's clock only.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import unet_common as common


def parser_of(description, *, only, budget, limit, max_autotune, variants=None, config=True):
    """The flags of both scripts; `only`, `max_autotune` and `variants` are a help, a help and the choices of --variant."""
    parser = common.parser_of(description, config)
    parser.add_argument("--json", help="record to write")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help=only)
    parser.add_argument("--max-autotune", action="store_true", help=max_autotune)
    parser.add_argument("--budget", type=float, default=budget, help=f"seconds for all variants (default {budget})")
    parser.add_argument("--limit", type=float, default=limit, help=f"seconds for one (default {limit})")
    parser.add_argument(
        "--variant", choices=variants, help="run this one here, without a process of its own: to see where it fails"
    )
    return parser


def every(script, words, options, names, record, line_of):
    """Each variant in a process of its own, started with `words`; the record is rewritten after each. `line_of(name, told)` is a
    line to print, or None. Exit status 1 if one failed."""
    device, started, variants = common.device_of(options), time.perf_counter(), {}
    for name in names:
        before = time.perf_counter()
        left = options.budget - (before - started)
        told = {"error": f"not run: the {options.budget:.0f} seconds of --budget are spent"}
        if left > 5:
            told = in_process(script, name, min(left, options.limit), words, device)
        variants[name] = told
        record = {**record, "variants": variants, "versions": told.pop("versions", record.get("versions"))}
        told["seconds"] = time.perf_counter() - before
        if options.json:
            common.save_json(options.json, record)
        if line := line_of(name, told):
            print(line, flush=True)
    return 1 if any("error" in told for told in variants.values()) else 0


def in_process(script, variant, limit, arguments, device):
    """The record of a variant, run by a process of its own with these arguments; with "error", the reason, if it did not come
    to its end."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        own = ["--device", device.type, "--variant", variant, "--json", str(answer)]
        command = [sys.executable, str(Path(script).resolve()), *arguments, *own]
        streams = {"stdout": sys.stderr, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
        try:
            ended = subprocess.run(command, timeout=limit, check=False, **streams)
        except subprocess.TimeoutExpired:
            wrong = {"error": f"not done after {limit:.0f} seconds"}
        else:
            lines = [line for line in ended.stderr.splitlines() if line.strip()]
            reason = lines[-1][:500] if lines else f"exit status {ended.returncode}"
            wrong = {"error": reason, "stderr": lines[-30:]} if ended.returncode or not answer.exists() else {}
        return {**(json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {}), **wrong}


def refuse_compile_on_cpu(device, compiled):
    if compiled and device.type == "cpu":
        raise common.Refusal("torch.compile is timed on a GPU only: it needs --device cuda")


def waited(device):
    """Seconds of the host's clock, after all that the device was given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def timed(call, count, device):
    """Milliseconds of each of `count` calls, enqueued one after the other without waiting."""
    if device.type == "cpu":
        times = [time.perf_counter()]
        for _ in range(count):
            call()
            times.append(time.perf_counter())
        return [1e3 * (after - before) for before, after in zip(times, times[1:])]
    events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    torch.cuda.synchronize()
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    return [before.elapsed_time(after) for before, after in zip(events, events[1:])]


def summary(milliseconds):
    low, median, high = statistics.quantiles(milliseconds, n=4)
    quartiles, mean = [low, high], statistics.fmean(milliseconds)
    return {"ms": median, "ms_quartiles": quartiles, "ms_mean": mean, "measured_steps": len(milliseconds)}
