"""Benchmarks of the package against PyTorch, on one GPU and in one run.

    python3 python/bench.py                          every table
    python3 python/bench.py norm host --json FILE    some of them, and a record

norm    GroupNorm + SiLU of the U-Net's seven shapes, bf16, 32 images, forward and backward: warm, in a CUDA graph
bench   the same calls against the kernel alone, as ./ladder bench times it (needs the source tree)
host    microseconds of CPU time for one call, with gradients and without
unet    a training step of guided-diffusion's U-Net before swap() and after it, in a CUDA graph (needs the source tree)
unet_compiled    the same with torch.compile
"""

import argparse
import functools
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch.nn import functional

sys.path.append(sys.path.pop(0))  # the package that pip installed takes precedence over the one next to this file
import ladder_torch
from ladder_torch.measure import microseconds, microseconds_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tools"))
from cli import files  # noqa: E402

SCHEMA = "ladder.torch/1"  # results/SCHEMA.md
SHAPES = [
    (64, 64),
    (64, 128),
    (64, 192),
    (32, 128),
    (32, 256),
    (16, 192),
    (8, 256),
]  # side, channels: [perf] of groupnorm
GROUPS, IMAGES = 32, 32


def drawn(side, channels, channels_last):
    x = torch.randn(IMAGES, channels, side, side, device="cuda", dtype=torch.bfloat16)
    return x.to(memory_format=torch.channels_last) if channels_last else x


def parameters(channels, dtype=torch.float32):
    return [torch.randn(channels, device="cuda", dtype=dtype).requires_grad_() for _ in range(2)]


def ours(x, weight, bias):
    return ladder_torch.group_norm_act(x, GROUPS, weight, bias, activation="silu")


def theirs(x, weight, bias):
    return functional.silu(functional.group_norm(x, GROUPS, weight, bias))


def passes(function, x, parameters):
    """Returns {"forward", "backward"}: microseconds of the function, and of its gradients alone."""
    inputs = [x.requires_grad_(), *parameters]
    with torch.no_grad():
        times = {"forward": microseconds(lambda: function(*inputs))}
    y = function(*inputs)
    dy = torch.randn_like(y)
    times["backward"] = microseconds(lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True))
    return times


def norm():
    rows = []
    for side, channels in SHAPES:
        row = {"problem": f"n{IMAGES} h{side} w{side} c{channels} g{GROUPS} silu bf16", "microseconds": {}}
        for name, channels_last, function, dtype in (
            ("ladder_torch, fp32 parameters", True, ours, torch.float32),
            ("ladder_torch", True, ours, torch.bfloat16),
            ("eager, channels_last", True, theirs, torch.bfloat16),
            ("eager, NCHW", False, theirs, torch.bfloat16),
            ("compile, channels_last", True, torch.compile(theirs, dynamic=False), torch.bfloat16),
            ("compile, NCHW", False, torch.compile(theirs, dynamic=False), torch.bfloat16),
        ):
            torch.compiler.reset()
            row["microseconds"][name] = passes(
                function, drawn(side, channels, channels_last), parameters(channels, dtype)
            )
        rows.append(row)
        print(f"{row['problem']}: {row['microseconds']}", file=sys.stderr, flush=True)  # it takes a while
    for each in ("forward", "backward"):
        print(f"\nGroupNorm + SiLU, {each}, us, warm, in a CUDA graph")
        names = list(rows[0]["microseconds"])
        table(
            [["problem", *names]]
            + [[row["problem"], *(f"{row['microseconds'][name][each]:.2f}" for name in names)] for row in rows]
        )
        ratios = [
            times["ladder_torch"][each] / min(times[name][each] for name in times if name.startswith("compile"))
            for times in (row["microseconds"] for row in rows)
        ]
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"of torch.compile's better layout, geometric mean: {mean:.2f}")
    return rows


def bench():
    """Times the operator in a CUDA graph, and the same version, warm, in Ladder's own benchmark."""
    rows = []
    for side, channels in SHAPES:
        x, (weight, bias) = drawn(side, channels, True), parameters(channels)
        with torch.no_grad():
            operator = microseconds(functools.partial(ours, x, weight, bias))
        problem = f"n{IMAGES} h{side} w{side} c{channels} g{GROUPS} silu bf16"
        version = next(
            each["version"]
            for each in reversed(ladder_torch.explain())
            if each["pass"] == "groupnorm/forward" and each["problem"] == problem
        )
        kernel = kernel_alone("groupnorm/forward", version, problem)
        rows.append({"problem": problem, "version": version, "operator": operator, "kernel": kernel})
    print("\nThe operator in a graph beside its kernel in ./ladder bench, us, warm")
    table(
        [["problem", "version", "operator", "kernel", "ratio"]]
        + [
            [row["problem"], row["version"], f"{row['operator']:.2f}", f"{row['kernel']:.2f}",
             f"{row['operator'] / row['kernel']:.2f}"]
            for row in rows
        ]
    )  # fmt: skip
    return rows


def kernel_alone(path, version, problem):
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.json"
        command = [ROOT / "ladder", "bench", path, "--version", version.split("_")[0], "--problem", problem]
        done = subprocess.run(
            [*command, "--baseline", "none", "--record", record], capture_output=True, text=True, cwd=ROOT
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip().splitlines()[-1]}")
        (result,) = json.loads(record.read_text())["results"]
        return 1e6 * result["times"]["warm_seconds"]


def host():
    """Median CPU time of a call, measured without waiting for the GPU."""
    x, (weight, bias) = drawn(8, 64, True), parameters(64, torch.bfloat16)
    rows = []
    for gradients in (False, True):
        row = {"gradients": gradients, "microseconds": {}}
        for name, function in (("ladder_torch", ours), ("PyTorch eager", theirs)):
            with torch.set_grad_enabled(gradients):
                inputs = [x.detach().requires_grad_(gradients), weight, bias]
                dy = torch.randn_like(x)

                call = functools.partial(function, *inputs)
                if gradients:
                    call = functools.partial(both_ways, function, inputs, dy)
                row["microseconds"][name] = of_the_host(call)
        rows.append(row)
    print("\nThe CPU's us for a call of GroupNorm + SiLU, n32 h8 w8 c64")
    table(
        [["", "ladder_torch", "PyTorch eager", "ratio"]]
        + [
            ["forward and backward" if row["gradients"] else "forward without gradients",
             *(f"{value:.1f}" for value in row["microseconds"].values()),
             f"{row['microseconds']['ladder_torch'] / row['microseconds']['PyTorch eager']:.2f}"]
            for row in rows
        ]
    )  # fmt: skip
    return rows


def both_ways(function, inputs, dy):
    return torch.autograd.grad(function(*inputs), inputs, dy)


def of_the_host(call, calls=50, rounds=9):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append(1e6 * (time.perf_counter() - begin) / calls)
    return statistics.median(times)


def unet(compiled=False):
    """Times a training step before and after swap(); returns a row for each."""
    sys.path.insert(0, str(ROOT / "reference" / "pytorch"))
    import unet as models
    from unet_step import Graph, Step

    torch.backends.cudnn.benchmark = True
    rows = []
    for swapped in (False, True):
        torch.manual_seed(0)
        torch.compiler.reset()
        model = models.UNet(models.CONFIGS["unet64"]).cuda().to(memory_format=torch.channels_last)
        images = torch.randint(0, 256, (IMAGES, 3, 64, 64), device="cuda") / 127.5 - 1
        images = images.to(memory_format=torch.channels_last)
        report = ladder_torch.swap(model) if swapped else []
        step = Step(model, dtype="bf16", clip=1.0, ema_rate=0.9999, compiled=compiled)

        def whole(step=step, images=images):
            return step(images, torch.randint(0, 1000, (IMAGES,), device="cuda"), torch.randn_like(images))

        call = Graph(whole)
        losses = [call()[0].item() for _ in range(8)]
        if not all(map(math.isfinite, losses)):
            raise RuntimeError(f"the loss is {losses}: no time is worth recording")
        rows.append(
            {
                "swapped": swapped,
                "modules_swapped": sum(row["swapped"] for row in report),
                "milliseconds": statistics.median(microseconds_of(call, 40)) / 1e3,
                "loss": losses[-1],
            }
        )
    before, after = (row["milliseconds"] for row in rows)
    how = "torch.compile" if compiled else "eager"
    print("\nA training step of guided-diffusion's U-Net, n32 64x64 bf16, in a CUDA graph, ms")
    table([["", "PyTorch", "after swap()", "ratio"], [how, f"{before:.2f}", f"{after:.2f}", f"{after / before:.2f}"]])
    return rows


TABLES = {
    "norm": norm,
    "bench": bench,
    "host": host,
    "unet": unet,
    "unet_compiled": functools.partial(unet, compiled=True),
}


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(row[1:], widths[1:]))]))


def commit():
    """Returns the commit of the source tree, or "" outside a git repository."""
    git = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(TABLES)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a record")
    options = parser.parse_args()
    unknown = [name for name in options.tables if name not in TABLES]
    if unknown:
        parser.error(f"no table '{unknown[0]}'; there are {', '.join(TABLES)}")
    wrong = ladder_torch.status()["cuda"]
    if wrong or not torch.cuda.is_available():
        print(f"bench.py: it needs a GPU: {wrong or 'PyTorch sees none'}", file=sys.stderr)
        return 1
    # The default stream cannot be captured, and gradients run on the stream of their forward pass.
    torch.cuda.set_stream(torch.cuda.Stream())
    record = {
        "schema": SCHEMA,
        "commit": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": {
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "python": sys.version.split()[0],
        },
    }
    print(f"{record['environment']['gpu']}, PyTorch {torch.__version__}")
    for name in options.tables or TABLES:
        record[name] = TABLES[name]()
        if options.json:  # after each table, so that finished measurements survive a failure
            files.replace(options.json, json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
