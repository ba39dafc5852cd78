"""Synthetic records for the dashboard's tests: true to the schema, of any size, with the same figures every time."""

import functools
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import made_records
from compare.records import compare
from dashboard import library, main, model, page, sources
from records import record_files

IDEAS = {1: "naive", 2: "tiled", 3: "wgmma"}
PROBLEMS = ("n32 h64 w64 c64 k64 bf16", "n32 h8 w8 c256 k256 bf16", "n32 h8 w8 c256 k256 fp32")
KERNELS = [
    {
        "file": f"dev/toy/fprop/v{version:02d}_{idea}.cu",
        "kernel": f"toy_fprop_v{version:02d}_kernel",
        "arch": "sm_90a",
        "registers": 60 + version,
        "static_smem_bytes": 1024 * version,
        "spill_store_bytes": 0,
        "spill_load_bytes": 0,
    }
    for version, idea in IDEAS.items()
]

# A memory-bound layer, {problem: bytes read and written}, with a PyTorch baseline and the libraries that PyTorch calls.
NORM = "groupnorm/forward"
NORM_IDEAS = {1: "naive", 2: "one_pass"}
NORM_BYTES = {
    "n32 h64 w64 c64 g32 silu bf16": 33.6e6,
    "n32 h16 w16 c192 g32 bf16": 6.3e6,
    "n32 h8 w8 c256 g32 silu bf16": 2.1e6,
}
PYTORCH = "PyTorch 2.11.0, cuDNN 9.19.0"

PROFILE = {
    "schema": "ladder.profile/1",
    "created": "2026-01-09T12:00:00Z",
    "command": ["./ladder", "profile"],
    "environment": {"commit": "1234567890", "dirty": False},
    "layer": "toy",
    "pass": "fprop",
    "version": 3,
    "idea": "wgmma",
    "problem": "n32 h8 w8 c256 k256 bf16",
    "dtype": "bf16",
    "lower_bound_seconds": 9e-6,
    "ncu": "2025.3",
    "advice": ["more stages"],
    "total": {
        "duration": {"value": 16.25e-6, "unit": "s", "text": "1.81 x the lower bound"},
        "tensor": {"value": 63.2, "unit": "%", "text": "the tensor pipe: near the roof"},
        "shared_memory": {"value": 101376, "unit": "bytes/block", "text": ""},
        "waves": {"value": None, "unit": "waves", "text": ""},
    },
    "kernels": [
        {
            "name": "toy_fprop_v03_kernel",
            "grid": [132, 1, 1],
            "block": [384, 1, 1],
            "figures": {"duration": {"value": 16.25e-6, "unit": "s", "text": ""}},
            "stalls": [{"reason": "long scoreboard", "share": 0.42}],
        }
    ],
}


class Tree:
    """A project of a toy ladder in a folder of its own."""

    def __init__(self, tmp_path, capsys):
        self.root, self.capsys = tmp_path, capsys

    def grown(self, count=6):
        return tree(self.root, count)

    def built(self):
        return model.build(self.root, *sources.read(self.root), compare)

    def series(self, version, problem, data=None):
        data = data or self.built()
        return next(one for one in data["series"] if (one["version"], one["problem"]) == (version, problem))

    def run_tool(self, *arguments):
        status = main.main(["--root", str(self.root), *arguments])
        return status, self.capsys.readouterr().err

    def text(self):
        assert self.run_tool()[0] == 0
        return (self.root / "results" / "index.html").read_text()


def times(seconds, rng, noise=0.003, samples=20):
    cold = [seconds * (1 + rng.gauss(0, noise)) for _ in range(samples)]
    made = made_records.times(cold, warm=[0.9 * seconds * (1 + rng.gauss(0, noise)) for _ in range(5)])
    order = sorted(made["cold_samples"]["seconds"])
    made["cold_seconds"].update(low=order[samples // 4], high=order[-1 - samples // 4])
    return made


def result(version, problem, seconds, rng, path="toy/fprop", baseline=20e-6, status="PASS", reason="", **more):
    layer, pass_name = path.split("/")
    timed = status in ("PASS", "UNTRUSTED")
    against = made_records.baseline(times(baseline, rng) if baseline and timed else None, "cuDNN 9.19.0")
    against.update(heuristic_plan="eng2", heuristic_times=None)
    fields = {
        "layer": layer,
        "pass": pass_name,
        "idea": IDEAS.get(version, f"idea_{version}"),
        "baseline": against,
        "verdict": made_records.verdict(status, reason, 1.2e-3),
        "flops": 9.6e9,
        "min_read_bytes": 2.0e7,
        "min_write_bytes": 1.7e7,
        "roofline_seconds": 9e-6,
        "digest": "ab12",
        "seconds_spent": 1.0,
        "command": f"build/cuda/bench_{layer} --version {version} --problem '{problem}'",
    }
    return made_records.result(
        version, times(seconds, rng) if timed else None, problem, None, status, reason, **{**fields, **more}
    )


def moving(version, problem, rate, rng, size=None, streaming=3.5e12, **more):
    """Returns result() of a memory-bound kernel. `rate`: its bytes/s; `streaming`: the streaming kernel's."""
    size = size or NORM_BYTES[problem]
    made = result(
        version,
        problem,
        size / rate,
        rng,
        path=NORM,
        baseline=size / 2e12,
        idea=NORM_IDEAS[version],
        flops=size,
        min_read_bytes=size / 2,
        min_write_bytes=size / 2,
        roofline_seconds=size / 4.8e12,
    )
    if made["baseline"]["library"]:
        made["baseline"].update(library=PYTORCH, best_plan="torch.compile channels_last")
    if streaming:
        seconds = round(size / streaming, 10)
        made["streaming"] = {"seconds": seconds, "samples": [seconds] * 3}
    return {**made, **more}


def record(created, commit, results, driver="13.0"):
    made = made_records.record(results, created, commit, kernels=KERNELS)
    made["environment"]["device"]["driver"] = driver
    return made


def write(root, name, raw, device="h200"):
    folder = Path(root) / "results" / device
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(record_files.text_of(raw), encoding="utf-8")
    return file


def tree(root, count=6):
    """Write a toy ladder with `count` records, one a day. v02's first shape becomes 30 % slower half-way, the driver
    changes soon after that, and v03's second shape is 8 % slower in the newest record."""
    root = Path(root)
    ladder = root / "dev" / "toy" / "fprop"
    ladder.mkdir(parents=True)
    (root / "results").mkdir()
    (root / "dev" / "toy" / "shapes.txt").write_text("[unet]\ntop: n32 h64 w64 c64 k64\nlow: n32 h8 w8 c256 k256\n")
    for version, idea in IDEAS.items():
        (ladder / f"v{version:02d}_{idea}.cu").write_text(
            f"// Idea:   the {idea} one,\n//         on two lines.\n"
            f"// Parent: {f'v{version - 1:02d}' if version > 1 else 'none'}.\n"
            f"// Why:    it should help.\n// Needs:  nothing.\n\n#include <x>\n"
        )
    for day in range(count):
        write(root, f"2026-01-{day + 1:02d}_{day:07x}.json", of_day(day, count))
    return root


def with_norm(root, **more):
    """Add a memory-bound ladder to a tree(): v01 has a quarter of a copy's bandwidth, v02 three quarters."""
    root, rng = Path(root), random.Random(1)
    ladder = root / "dev" / NORM
    ladder.mkdir(parents=True)
    (ladder.parent / "shapes.txt").write_text(
        "[unet]\nbottom: n32 h8 w8 c256 g32 silu\nmiddle: n32 h16 w16 c192 g32\ntop: n32 h64 w64 c64 g32 silu\n"
    )
    for version, idea in NORM_IDEAS.items():
        (ladder / f"v{version:02d}_{idea}.cu").write_text(f"// Idea: the {idea} one.\n// Parent: none.\n")
    results = [
        moving(version, problem, rate, rng, **more)
        for version, rate in ((1, 1.025e12), (2, 3.075e12))
        for problem in NORM_BYTES
    ]
    write(root, "2026-02-01_norm.json", record("2026-02-01T00:00:00Z", "c" * 40, results))
    return root


def of_day(day, count):
    rng = random.Random(day)
    results = []
    for version in IDEAS:
        for problem in PROBLEMS:
            if version == 3 and problem.endswith("fp32"):
                results.append(result(version, problem, 0, rng, status="SKIP", reason="fp32 has no tensor cores"))
                continue
            seconds = {1: 100e-6, 2: 40e-6, 3: 15e-6}[version]
            if version == 2 and problem == PROBLEMS[0] and day >= count // 2:
                seconds *= 1.3
            if version == 3 and problem == PROBLEMS[1] and day == count - 1:
                seconds *= 1.08
            results.append(result(version, problem, seconds, rng))
    driver = "13.0" if day <= count // 2 + 1 else "13.1"
    return record(f"2026-01-{day + 1:02d}T12:00:00Z", f"{day:07x}" + "0" * 33, results, driver=driver)


def large(folder, num_series, num_records):
    """Returns records in memory, with noise, outliers and steps, at the page's promised size. `folder` is scratch."""
    rng = random.Random(1)
    template = record_files.load(write(folder, "template.json", of_day(0, 1)))
    levels = [10 ** rng.uniform(-5.5, -3) for _ in range(num_series)]
    records = []
    for day in range(num_records):
        created = f"2024-01-01T{day // 3600:02d}:{day // 60 % 60:02d}:{day % 60:02d}Z"
        raw = record(created, f"{rng.getrandbits(160):040x}", [], driver="13.0" if day < num_records // 2 else "13.1")
        made = replace(
            template,
            file=Path(f"h200/{day}.json"),
            created=created,
            commit=raw["environment"]["commit"],
            environment=raw["environment"],
            results=[],
        )
        for at in range(num_series):
            if rng.random() < 1 / 2000:
                levels[at] *= rng.choice((0.8, 1.25))
            made.results.append(_large_result(made, template.results[0], at, levels[at], rng, day >= num_records - 2))
        records.append(made)
    return records


@functools.cache
def large_page():
    """Returns the page of 500 series by 500 records. Cached: it takes ten seconds; two test files use it."""
    with tempfile.TemporaryDirectory() as folder:
        data = model.build(folder, large(folder, 500, 500), [], [], {}, compare)
    assert sum(len(points) for points in data["histories"]) == 250_000
    return page.render(data, *library.source())


def _large_result(made, template, at, level, rng, newest):
    median = level * (1 + rng.gauss(0, 0.005)) * (1.5 if rng.random() < 0.002 else 1)
    spread = abs(rng.gauss(0, 0.003)) * median
    # The page shows the samples of a series' newest two records only.
    samples = [median * (1 + rng.gauss(0, 0.005)) for _ in range(20)] if newest else [median]
    timed = replace(
        template.times,
        seconds=samples,
        clocks=[1.98e9] * len(samples),
        median=median,
        low=median - spread,
        high=median + 2 * spread,
        warm=[],
        warm_median=0.9 * median,
    )
    against = replace(timed, median=level * (1 + rng.gauss(0, 0.005)))
    version, shape = at % 10 + 1, at // 10
    dtype = ("fp32", "tf32", "bf16", "fp16")[shape % 4]
    problem = f"n32 h{8 + shape} w64 c{64 + shape} k64 {dtype}"
    return replace(
        template,
        record=made,
        path=f"layer{at % 8}/fprop",
        version=version,
        idea=f"idea_number_{version}",
        problem=problem,
        dtype=dtype,
        error=1.7e-3 + 1e-6 * at,
        flops=1e9 + at,
        min_bytes=1e7 + at,
        times=timed,
        baseline_times=against,
        command=f"build/cuda/bench_layer{at % 8} --version {version} --problem '{problem}' --seed 1 --samples 20",
    )
