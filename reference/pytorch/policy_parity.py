"""Compares the answers of `./ladder denoise` and PyTorch with float64, on equal weights, observations and noise.

    policy_parity.py policy.safetensors --json OUT.json
    policy_parity.py --size small --json OUT.json       made-up weights of a published size: tiny, small or large

Two distances for each precision and seed: the largest difference of an action after all steps, one observation an
answer; and the largest difference of the network's prediction at some t, recovered from an answer of one DDIM step
without clipping. The record has the median and the worst over the seeds. Exits with 1 if Ladder's median is more than
twice PyTorch's, or its worst more than three times.
"""

import copy
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy
import torch

import policy_network as policy
import unet_common as common
from policy_speed import ACTION_DIM, OBSERVATION, SIZES
from unet_compare import MEDIAN_RATIO, WORST_RATIO
from worker import Refusal

PROGRAM = f"{Path(__file__).resolve().parents[2] / 'ladder'} denoise"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Fractions of the scheduler's training steps. At smaller t, x is nearly free of noise and tells little about the
# prediction.
PREDICTED_AT = (0.3, 0.6, 0.9)
SCHEMA = "ladder.policy-parity/1"  # results/SCHEMA.md


class Case:
    """Observations, initial samples and noise of some seeds, and the scheduler's settings."""

    def __init__(self, held, config, kind, steps, seeds):
        self.held, self.config, self.kind, self.steps = held, {**policy.DEFAULT_SCHEDULER, **config}, kind, steps
        drawn = [numpy.random.default_rng(seed) for seed in seeds]
        sizes = policy.sizes_of(held.module.state_dict(), "the network")

        def normal(*shape):
            return torch.from_numpy(numpy.stack([rng.standard_normal(shape) for rng in drawn]).astype(numpy.float32))

        sample = held.horizon, sizes["input_dim"]
        self.observation = normal(sizes["global_cond_dim"])
        self.initial, self.noise = normal(*sample), normal(steps, *sample).movedim(1, 0).contiguous()

    @torch.no_grad()
    def by_pytorch(self, module, device, at=slice(None)):
        """Returns PyTorch's samples [n, horizon, d] of the seeds `at` as float64. x is fp32 or the module's float64."""
        held = torch.promote_types(next(module.parameters()).dtype, torch.float32)
        scheduler = policy.Scheduler(self.config, self.kind, self.steps, held, device)
        observation = self.held.normalized(self.observation[at].to(held))
        inputs = [tensor.to(device, held) for tensor in (observation, self.initial[at], self.noise[:, at])]
        return scheduler.trajectory(module, *inputs)[1][-1].double().cpu()

    def by_ladder(self, command, dtype, folder, at=slice(None)):
        """Returns the samples of `./ladder denoise`, [n, horizon, d], of the seeds `at` as float64."""
        noise = {"initial": self.initial[at], "steps": self.noise[:, at]}
        common.save_tensors(folder / "noise.safetensors", noise)
        numpy.save(folder / "observation.npy", self.observation[at].numpy())
        common.save_json(folder / "scheduler.json", self.config)
        words = ["--observation", folder / "observation.npy", "--noise", folder / "noise.safetensors"]
        words += ["--scheduler-config", folder / "scheduler.json", "--scheduler", self.kind, "--steps", self.steps]
        words += ["--dtype", dtype, "--out", folder / "actions.npy"]
        done = subprocess.run(
            [*command, *map(str, words)], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.strip()]
            raise Refusal(f"exit status {done.returncode} of {command[0]}: {lines[-1] if lines else 'without a word'}")
        actions = torch.from_numpy(numpy.load(folder / "actions.npy")).double()
        if actions.shape != self.initial[at].shape:
            raise Refusal(f"{command[0]} answered {list(actions.shape)}, not {list(self.initial[at].shape)}")
        return self.held.samples(actions)


def apart(told, exact):
    """Returns the largest difference of each seed. NaN counts as infinite."""
    return (told - exact).abs().nan_to_num(nan=float("inf")).amax(dim=(1, 2)).tolist()


def compared(ours, theirs):
    """Returns the record's entry for two lists of distances to float64, one distance a seed."""

    def told(values):
        return {"median": statistics.median(values), "worst": max(values), "all": values}

    ours, theirs = told(ours), told(theirs)
    ratios = {
        what: ours[what] / theirs[what] if theirs[what] else float(ours[what] > 0) for what in ("median", "worst")
    }
    good = ratios["median"] <= MEDIAN_RATIO and ratios["worst"] <= WORST_RATIO
    return {
        "ladder": ours,
        "pytorch": theirs,
        "ratio_median": ratios["median"],
        "ratio_worst": ratios["worst"],
        "good": good,
    }


def prediction_case(held, config, t, seeds):
    """One DDIM step from t to the end: x0 = (x - sqrt(1 - bar) pred) / sqrt(bar)."""
    return Case(held, {**config, "steps_offset": t, "clip_sample": False, "set_alpha_to_one": True}, "ddim", 1, seeds)


def predictions(case, samples):
    noise_in_x, signal = policy.Scheduler(case.config, "ddim", 1).rows[0, :2].double()
    return (case.initial.double() - signal * samples) / noise_in_x


def work(options):
    device = common.device_of(options)
    common.exact_fp32()
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, device, Path(folder))


def compare(options, device, folder):
    path = Path(options.policy or folder / "policy.safetensors")
    if options.size:
        sizes = {"input_dim": ACTION_DIM, "global_cond_dim": OBSERVATION, **SIZES[options.size]}
        module = policy.hash_weights(policy.ConditionalUnet1D(**sizes))
        common.save_tensors(path, module.state_dict(), policy.metadata(8, 16, policy.DEFAULT_SCHEDULER))
    held, seeds = policy.load(path), range(options.seeds)
    config = {**policy.DEFAULT_SCHEDULER, **held.scheduler}
    kind = options.scheduler or ("ddim" if config["_class_name"].startswith("DDIM") else "ddpm")
    answers = Case(held, config, kind, options.steps or config["num_train_timesteps"], seeds)
    at = {
        t: prediction_case(held, config, t, seeds)
        for t in (int(p * config["num_train_timesteps"]) for p in PREDICTED_AT)
    }
    command = [*shlex.split(options.program), str(path)]

    exact = copy.deepcopy(held.module).to(device, torch.float64)
    exact_answers = answers.by_pytorch(exact, device)
    exact_predictions = {t: predictions(case, case.by_pytorch(exact, device)) for t, case in at.items()}
    record = {
        **common.record_of(SCHEMA),
        "policy": options.size or path.name,
        "scheduler": config,
        "steps": f"{kind} {answers.steps}",
        "seeds": len(seeds),
        "versions": common.versions(device),
        "dtypes": {},
    }
    for dtype in options.dtypes:
        module = copy.deepcopy(held.module).to(device, DTYPES[dtype])
        each = [slice(seed, seed + 1) for seed in seeds]
        ours = torch.cat([answers.by_ladder(command, dtype, folder, at_one) for at_one in each])
        theirs = torch.cat([answers.by_pytorch(module, device, at_one) for at_one in each])
        told = {"actions": compared(apart(ours, exact_answers), apart(theirs, exact_answers))}
        for t, case in at.items():
            sides = case.by_ladder(command, dtype, folder), case.by_pytorch(module, device)
            told[f"prediction at {t}"] = compared(*(apart(predictions(case, x), exact_predictions[t]) for x in sides))
        record["dtypes"][dtype] = told
        common.save_json(options.json, record)
        for what, sides in told.items():
            print(line_of(dtype, what, sides), flush=True)
    return 0 if all(sides["good"] for told in record["dtypes"].values() for sides in told.values()) else 1


def line_of(dtype, what, sides):
    ours, theirs = sides["ladder"], sides["pytorch"]
    return (
        f"{dtype} {what:<18} median {ours['median']:.2e}, PyTorch's {theirs['median']:.2e} ({sides['ratio_median']:.2f} of "
        f"{MEDIAN_RATIO} allowed); worst {ours['worst']:.2e}, {theirs['worst']:.2e} ({sides['ratio_worst']:.2f} of "
        f"{WORST_RATIO}){'' if sides['good'] else '  NOT within the limit'}"
    )


def main(arguments=None):
    parser = common.parser_of(__doc__.splitlines()[0], config=False)
    parser.add_argument("policy", nargs="?", help="safetensors file")
    parser.add_argument("--size", choices=sorted(SIZES), help="made-up weights of a size in the place of a file")
    parser.add_argument("--json", required=True, help="record to write")
    parser.add_argument("--dtypes", nargs="+", choices=sorted(DTYPES), default=list(DTYPES))
    parser.add_argument("--seeds", type=int, default=20, help="of observations and noise (default 20)")
    parser.add_argument("--scheduler", choices=("ddpm", "ddim"), help="default: the file's")
    parser.add_argument("--steps", type=int, help="default: as many as it was trained with")
    parser.add_argument("--program", default=PROGRAM, metavar="COMMAND", help="default: ./ladder denoise")
    options = parser.parse_args(arguments)
    if bool(options.policy) == bool(options.size):
        parser.error("a policy's file or --size, one of them")
    if options.seeds < 1:
        parser.error("--seeds from 1")
    return common.run(work, options)


if __name__ == "__main__":
    sys.exit(main())
