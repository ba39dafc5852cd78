#!/usr/bin/env python3
"""Writes reference values of the schedulers of the package diffusers to two files in tests/golden.

diffusion_constants.json has betas, time steps and scheduler steps in double precision. scheduler_steps.json has every
step of some configurations in fp32, the precision of their use. Needs diffusers (the version below), huggingface_hub,
numpy and any torch, on a CPU with fused multiply-add (AVX2): without it, torch.linspace rounds differently.

    python3 -m venv /tmp/constants && /tmp/constants/bin/pip install torch numpy huggingface_hub diffusers==0.42.1
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

VERSION = "0.42.1"
TIMESTEPS = 1000
X = [0.31, -1.7, 0.004, 2.2]
EPS = [-0.6, 0.9, 1.3, -0.2]
NOISE = [1.1, -0.4, 0.25, -2.0]
# Inputs of scheduler_steps.json, of unit magnitude. Elements: x0 anywhere, x and eps nearly equal, x0 clamped, x and
# eps small.
UNIT = {"x": [0.31, 0.7511, -0.97, 0.004], "pred": [-0.6, 0.7507, 0.9, 0.05], "noise": [1.1, -0.4, 0.25, -0.9]}
KINDS = ("linear", "cosine")
SPACINGS = ("leading", "trailing", "linspace")


def double_betas(kind):
    """Betas of a schedule in double precision, by the schedulers' formulas; the schedulers round them to fp32."""
    if kind == "linear":
        return numpy.linspace(1e-4, 0.02, TIMESTEPS, dtype=numpy.float64)
    bar = lambda t: math.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2  # noqa: E731
    betas = [min(1 - bar((i + 1) / TIMESTEPS) / bar(i / TIMESTEPS), 0.999) for i in range(TIMESTEPS)]
    numpy.testing.assert_allclose(betas, betas_for_alpha_bar(TIMESTEPS).numpy(), rtol=1e-6)
    return numpy.array(betas)


def in_double(scheduler, betas):
    """Puts `betas` and derived values into a scheduler in double precision: it has cast `trained_betas` to fp32."""
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
    """{index: x after that step} of the first, middle and last steps of a scheduler."""
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


# Scheduler configurations: the published one of Diffusion Policy, then variants with one option changed, or several
# that do not interact.
POLICY = {"num_train_timesteps": 100, "beta_schedule": "squaredcos_cap_v2"}
SCALED = {"beta_schedule": "scaled_linear", "beta_start": 0.00085, "beta_end": 0.012}
LINEAR = {"num_train_timesteps": 100, "beta_end": 0.1}
TRAINED = {"num_train_timesteps": 16, "trained_betas": [round(0.01 + 0.003 * i * i, 6) for i in range(16)]}
DDPM = (  # configuration, steps
    (POLICY, 100),
    (POLICY | {"prediction_type": "v_prediction", "variance_type": "fixed_small_log"}, 100),
    (POLICY | {"prediction_type": "sample", "variance_type": "fixed_large", "clip_sample_range": 0.5}, 100),
    (POLICY | {"clip_sample": False, "variance_type": "fixed_large"}, 100),
    (POLICY | {"timestep_spacing": "trailing", "variance_type": "fixed_small_log"}, 48),
    (POLICY | {"timestep_spacing": "linspace"}, 16),
    (POLICY | {"steps_offset": 1}, 10),
    (LINEAR | {"variance_type": "fixed_small_log"}, 100),
    (LINEAR | {"prediction_type": "v_prediction", "clip_sample": False, "steps_offset": 2}, 24),
    (SCALED | {"num_train_timesteps": 100, "clip_sample_range": 2.0, "variance_type": "fixed_large"}, 100),
    (TRAINED, 16),
    (TRAINED | {"prediction_type": "sample", "clip_sample": False}, 8),
    ({}, 1000),
)
DDIM = (  # configuration, steps, eta, use_clipped_model_output (recompute eps from the clamped x0)
    (POLICY, 100, 0.0, False),
    (POLICY, 8, 0.0, False),
    (POLICY, 10, 0.37, False),
    (POLICY, 16, 1.0, False),
    (POLICY | {"timestep_spacing": "trailing"}, 8, 0.0, True),
    (POLICY | {"timestep_spacing": "trailing", "set_alpha_to_one": False}, 10, 1.0, False),
    (POLICY | {"timestep_spacing": "linspace", "clip_sample_range": 0.5}, 16, 0.5, True),
    (POLICY | {"prediction_type": "v_prediction", "set_alpha_to_one": False}, 100, 0.8, False),
    (POLICY | {"prediction_type": "sample"}, 100, 0.0, False),
    (POLICY | {"prediction_type": "sample", "clip_sample_range": 0.5, "steps_offset": 3}, 16, 1.0, True),
    (POLICY | {"clip_sample": False}, 100, 0.25, False),
    (LINEAR | {"timestep_spacing": "trailing"}, 100, 1.0, False),
    (SCALED | {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1}, 50, 0.0, False),
    (
        SCALED | {"prediction_type": "v_prediction", "clip_sample": False, "timestep_spacing": "trailing"},
        100,
        1.0,
        False,
    ),
    (TRAINED | {"prediction_type": "v_prediction"}, 8, 0.1, True),
    ({}, 100, 0.0, False),
)


def fp32_steps(scheduler, steps, **more):
    """{"timesteps", "x"}: x after each single step, always from the same input, flattened to [steps * 4]."""
    scheduler.set_timesteps(steps)
    x, pred = (torch.tensor([UNIT[name]]) for name in ("x", "pred"))
    after = [scheduler.step(pred, t.item(), x, **more).prev_sample[0] for t in scheduler.timesteps]
    values = [float(str(value)) for value in torch.cat(after).numpy()]  # the shortest digits that identify an fp32
    return {"timesteps": scheduler.timesteps.tolist(), "x": values}


def scheduler_cases():
    noise = torch.tensor([UNIT["noise"]])
    scheduling_ddpm.randn_tensor = lambda *_, **__: noise
    for number, (config, steps) in enumerate(DDPM):
        scheduler = DDPMScheduler(**config)
        whole = json.loads(scheduler.to_json_string()) if number == 0 else {"_class_name": "DDPMScheduler", **config}
        yield {"config": whole, **fp32_steps(scheduler, steps)}
    for config, steps, eta, clipped in DDIM:
        more = {"eta": eta, "use_clipped_model_output": clipped, "variance_noise": noise}
        made = fp32_steps(DDIMScheduler(**config), steps, **more)
        yield {"config": {"_class_name": "DDIMScheduler", **config}, "eta": eta, "clipped_eps": clipped, **made}


def timestep_sums():
    """Checksums sum(i * timestep_i), i from 1, for 1 to 100 steps of 100. Ignores the extra time step -1 that diffusers
    appends to some schedules."""
    for spacing in SPACINGS:
        scheduler = DDPMScheduler(num_train_timesteps=100, timestep_spacing=spacing)
        sums = []
        for steps in range(1, 101):
            scheduler.set_timesteps(steps)
            sums.append(sum((i + 1) * t for i, t in enumerate(scheduler.timesteps.tolist()[:steps])))
        yield {"timestep_spacing": spacing, "sums": sums}


def write(path, constants):
    """Writes the JSON file with one case per line."""
    entries = []
    for name, held in constants.items():
        listed = isinstance(held, list) and isinstance(held[0], dict)
        text = "[\n" + ",\n".join(json.dumps(case) for case in held) + "\n]" if listed else json.dumps(held)
        entries.append(f"{json.dumps(name)}: {text}")
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = Path(__file__).resolve().parents[2] / "tests" / "golden"
    parser.add_argument("--out", type=Path, default=folder, help="folder of the two files")
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
    write(options.out / "diffusion_constants.json", constants)
    steps = {"diffusers": VERSION, **UNIT, "timesteps": list(timestep_sums()), "cases": list(scheduler_cases())}
    write(options.out / "scheduler_steps.json", steps)


if __name__ == "__main__":
    main()
