#!/usr/bin/env python3
"""Writes tests/golden/diffusion_constants.json: betas, time steps and steps of the package diffusers' schedulers, in double
precision. Needs diffusers (the version below), huggingface_hub, numpy and any torch, on a CPU:

    python3 -m venv /tmp/constants && /tmp/constants/bin/pip install torch numpy huggingface_hub diffusers==0.35.1
    /tmp/constants/bin/python tools/dev/make_diffusion_constants.py
"""

import argparse
import json
import math
from functools import partial
from itertools import product
from pathlib import Path

import diffusers
import numpy
import torch
from diffusers.schedulers import scheduling_ddpm
from diffusers.schedulers.scheduling_ddim import DDIMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMScheduler, betas_for_alpha_bar

VERSION = "0.35.1"
TIMESTEPS = 1000
X = [0.31, -1.7, 0.004, 2.2]
EPS = [-0.6, 0.9, 1.3, -0.2]
NOISE = [1.1, -0.4, 0.25, -2.0]
KINDS = ("linear", "cosine")
SPACINGS = ("leading", "trailing", "linspace")


def double_betas(kind):
    """As the schedulers define them: theirs are rounded to fp32."""
    if kind == "linear":
        return numpy.linspace(1e-4, 0.02, TIMESTEPS, dtype=numpy.float64)
    bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2  # noqa: E731
    betas = [min(1 - bar((i + 1) / TIMESTEPS) / bar(i / TIMESTEPS), 0.999) for i in range(TIMESTEPS)]
    numpy.testing.assert_allclose(betas, betas_for_alpha_bar(TIMESTEPS).numpy(), rtol=1e-6)
    return numpy.array(betas)


def in_double(scheduler, betas):
    """`trained_betas` are cast to fp32 on their way in: put back what was given."""
    numpy.testing.assert_allclose(scheduler.betas.numpy(), betas, rtol=1e-6)
    scheduler.betas = torch.tensor(betas, dtype=torch.float64)
    scheduler.alphas = 1.0 - scheduler.betas
    scheduler.alphas_cumprod = torch.cumprod(scheduler.alphas, dim=0)
    scheduler.one = torch.tensor(1.0, dtype=torch.float64)
    if hasattr(scheduler, "final_alpha_cumprod"):
        scheduler.final_alpha_cumprod = torch.tensor(1.0, dtype=torch.float64)
    return scheduler


def tensor(values):
    return torch.tensor([values], dtype=torch.float64)  # a batch of one


def stepped(kind, make, steps, **more):
    """{index: x after that step} of some of the steps of make(betas)."""
    betas = double_betas(kind)
    scheduler = in_double(make(num_train_timesteps=TIMESTEPS, trained_betas=betas), betas)
    scheduler.set_timesteps(steps)
    return {
        index: scheduler.step(tensor(EPS), scheduler.timesteps[index].item(), tensor(X), **more).prev_sample[0].tolist()
        for index in sorted({0, steps // 2, steps - 2, steps - 1})
    }


def ddpm_cases():
    scheduling_ddpm.randn_tensor = lambda *_, **__: tensor(NOISE)
    variances = ("fixed_small", "fixed_large")
    for kind, spacing, steps, variance, clip in product(KINDS, SPACINGS, (10, 50, 1000), variances, (True, False)):
        make = partial(DDPMScheduler, variance_type=variance, clip_sample=clip, timestep_spacing=spacing)
        case = {"betas": kind, "spacing": spacing, "steps": steps, "variance": variance, "clip": clip}
        for index, x in stepped(kind, make, steps).items():
            yield {**case, "index": index, "x": x}


def ddim_cases():
    ways = ((0.0, True, False), (0.0, True, True), (0.5, True, False), (1.0, False, False))
    for kind, spacing, steps, (eta, clip, clipped) in product(KINDS, SPACINGS, (10, 250), ways):
        make = partial(DDIMScheduler, clip_sample=clip, timestep_spacing=spacing)
        case = {"betas": kind, "spacing": spacing, "steps": steps, "eta": eta, "clip": clip, "clipped_eps": clipped}
        more = {"eta": eta, "use_clipped_model_output": clipped, "variance_noise": tensor(NOISE)}
        for index, x in stepped(kind, make, steps, **more).items():
            yield {**case, "index": index, "x": x}


def timestep_lists():
    for spacing, steps in product(SPACINGS, (1, 7, 10, 50, 250, 999, 1000)):
        scheduler = DDIMScheduler(num_train_timesteps=TIMESTEPS, timestep_spacing=spacing)
        scheduler.set_timesteps(steps)
        listed = scheduler.timesteps.tolist()
        shown = listed if steps <= 50 else listed[:5] + listed[-5:]
        yield {"spacing": spacing, "steps": steps, "timesteps": shown, "sum": sum(listed)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=folder / "diffusion_constants.json")
    options = parser.parse_args()
    if diffusers.__version__ != VERSION:
        raise SystemExit(f"diffusers is {diffusers.__version__}; the constants are {VERSION}'s")
    shown = [0, 1, 2, 10, 100, 500, 900, 998, 999]
    schedules = {}
    for kind in KINDS:
        betas = double_betas(kind)
        alphas = numpy.cumprod(1.0 - betas)[shown]
        schedules[kind] = {"t": shown, "betas": betas[shown].tolist(), "alphas_cumprod": alphas.tolist()}
    constants = {
        "diffusers": VERSION,
        "x": X,
        "eps": EPS,
        "noise": NOISE,
        "schedules": schedules,
        "timesteps": list(timestep_lists()),
        "ddpm": list(ddpm_cases()),
        "ddim": list(ddim_cases()),
    }
    # A case a line.
    entries = []
    for name, held in constants.items():
        listed = isinstance(held, list) and isinstance(held[0], dict)
        text = "[\n" + ",\n".join(json.dumps(case) for case in held) + "\n]" if listed else json.dumps(held)
        entries.append(f"{json.dumps(name)}: {text}")
    options.out.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
