"""Writes tests/golden/policy_tiny.json: predictions and trajectories of the tiny policy in float64.

An integer hash makes the weights, so that `./ladder denoise` can be compared without PyTorch and without a GPU.

    python3 reference/pytorch/policy_golden.py [--out FILE]
    python3 reference/pytorch/policy_golden.py --inputs FOLDER    the policy and inputs as files of ./ladder denoise

The file's "about", which this script keeps, specifies how its numbers are made, down to the bit.
"""

import json
import sys
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy
import torch

import policy_network as policy
import unet_common as common

BATCH, DDIM_STEPS = 3, 5
OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "policy_tiny.json"


def inputs():
    """Returns [observation [n, G], initial [n, horizon, d], noise [steps, n, horizon, d]], fp32 multiples of 1/256."""
    held, drawn = policy.tiny(), numpy.random.default_rng(1)
    sample = (BATCH, held.horizon, policy.TINY["input_dim"])
    shapes = (BATCH, policy.TINY["global_cond_dim"]), sample, (policy.TINY_SCHEDULER["num_train_timesteps"], *sample)
    return [torch.from_numpy(numpy.round(drawn.standard_normal(shape) * 256) / 256).float() for shape in shapes]


def golden():
    """Returns the content of the JSON file."""
    held = policy.tiny()
    parameters = [
        {"name": name, "shape": list(tensor.shape), "first_values": tensor.flatten()[:2].tolist()}
        for name, tensor in held.module.state_dict().items()
    ]
    observation, initial, noise = inputs()
    module, double = held.module.double(), [tensor.double() for tensor in (observation, initial, noise)]
    runs = {}
    for kind, steps in (("ddpm", len(noise)), ("ddim", DDIM_STEPS)):
        scheduler = policy.Scheduler(held.scheduler, kind, steps, torch.float64)
        predictions, trajectory = scheduler.trajectory(module, *double)
        runs[kind] = {"t": scheduler.t, "prediction": predictions.tolist(), "trajectory": trajectory.tolist()}
    return {
        "about": json.loads(OUT.read_text(encoding="utf-8"))["about"],
        "config": {**policy.TINY, "n_groups": 8, "horizon": held.horizon, "scheduler": held.scheduler},
        "parameters": parameters,
        "observation": observation.tolist(),
        "initial": initial.tolist(),
        "noise": noise.tolist(),
        **runs,
    }


def text(told):
    """Returns JSON with one line for each field of the file, each parameter and each step."""
    line = json.dumps

    def lines(value):
        if isinstance(value, dict) and "t" in value:
            return "{\n" + ",\n".join(f"{line(name)}: {lines(held)}" for name, held in value.items()) + "\n}"
        if isinstance(value, list) and isinstance(value[0], (dict, list, str)):
            return "[\n" + ",\n".join(map(line, value)) + "\n]"
        return line(value)

    return "{\n" + ",\n".join(f"{line(name)}: {lines(value)}" for name, value in told.items()) + "\n}\n"


def write_inputs(folder):
    folder, held, (observation, initial, noise) = Path(folder), policy.tiny(), inputs()
    told = policy.metadata(8, held.horizon, held.scheduler)
    common.save_tensors(folder / "policy.safetensors", held.module.state_dict(), told)
    common.save_tensors(folder / "noise.safetensors", {"initial": initial, "steps": noise})
    numpy.save(folder / "observation.npy", observation.numpy())


def main(arguments=None):
    parser = common.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=OUT, help="default: tests/golden/policy_tiny.json")
    parser.add_argument("--inputs", metavar="FOLDER", help="write policy, observation and noise there instead")
    options = parser.parse_args(arguments)
    if options.inputs:
        return common.run(write_inputs, options.inputs)
    return common.run(
        lambda: common.written(options.out, lambda aside: aside.write_text(text(golden()), encoding="utf-8"))
    )


if __name__ == "__main__":
    sys.exit(main())
