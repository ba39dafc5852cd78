"""Writes tests/golden/unet_tiny.json: loss, prediction and gradients of the tiny configuration in float64.

An integer hash makes weights and inputs, so that the trainer can be compared without PyTorch and without a GPU.

    python3 reference/pytorch/unet_golden.py [--out FILE]

The file's "about", which this script keeps, specifies how its numbers are made, down to the bit.
"""

import json
import sys
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy
import torch

import unet
import unet_common as common
import unet_parity

CONFIG = "tiny"
T = (0, 999)
X0_STREAM, NOISE_STREAM, FIRST_PROJECTION = 1000, 1001, 1024
PROJECTIONS = 4
PRED_STRIDE = 7
OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "unet_tiny.json"


def hash32(x):
    """Returns the hash of each element of a uint32 array."""
    x = x.astype(numpy.uint32)
    x ^= x >> numpy.uint32(16)
    x *= numpy.uint32(0x7FEB352D)
    x ^= x >> numpy.uint32(15)
    x *= numpy.uint32(0x846CA68B)
    return x ^ x >> numpy.uint32(16)


def values(stream, shape):
    """Returns value(stream, element) for all elements of a tensor, float64."""
    count = int(numpy.prod(shape))
    if count > 1 << 20 or stream >= 1 << 12:
        raise ValueError(f"stream {stream} of {count} elements runs into another")
    hashed = hash32(numpy.uint32(stream << 20) + numpy.arange(count, dtype=numpy.uint32))
    return ((hashed >> numpy.uint32(8)) / 2.0**23 - 1).reshape(shape)


def hash_weights(model):
    """Fill an fp32 model. The scale is rounded to fp32 before the multiplication."""
    stream_of = {name: stream for stream, (name, _) in enumerate(model.named_parameters())}

    def scaled(value, fan_in):
        return numpy.float32(1 / numpy.sqrt(numpy.float64(fan_in))) * value.astype(numpy.float32)

    return common.fill(model, lambda name, shape: values(stream_of[name], shape), scaled)


def hash_batch(config):
    shape = (len(T), config.in_channels, config.image_size, config.image_size)
    return {
        "x0": torch.from_numpy(values(X0_STREAM, shape).astype(numpy.float32)),
        "t": torch.tensor(T),
        "noise": torch.from_numpy((2 * values(NOISE_STREAM, shape)).astype(numpy.float32)),
    }


def sketch(gradient, stream, rows=None):
    """Returns the norm and the projections of a float64 gradient, or of some of its rows."""
    at = slice(None) if rows is None else rows
    projections = [
        float((values(stream * PROJECTIONS + FIRST_PROJECTION + index, gradient.shape)[at] * gradient[at]).sum())
        for index in range(PROJECTIONS)
    ]
    return {"norm": float(numpy.linalg.norm(gradient[at])), "projections": projections}


def golden():
    """Returns the content of the JSON file."""
    config = unet.CONFIGS[CONFIG]
    model = hash_weights(unet.UNet(config, explicit_attention=True))
    # First values of each parameter, so that a reader can check its own hash and scales before it computes with them.
    first = {
        name: [float(value) for value in parameter.detach().flatten()[:2]]
        for name, parameter in model.named_parameters()
    }
    outputs = unet_parity.passes(model.double(), hash_batch(config), torch.device("cpu"), "double")
    pred = outputs["pred"].numpy().ravel()
    parameters = []
    for stream, (name, parameter) in enumerate(model.named_parameters()):
        gradient = outputs[f"grad.{name}"].numpy()
        parts = common.qkv_parts(name, gradient.shape, config.head_size)
        slices = {
            part: sketch(gradient, stream, rows)
            for part, rows in parts.items()
            if not (part == "k" and name.endswith(".bias"))
        }
        parameters.append(
            {
                "name": name,
                "shape": list(parameter.shape),
                "first_values": first[name],
                **sketch(gradient, stream),
                **({"parts": slices} if slices else {}),
            }
        )
    return {
        "about": json.loads(OUT.read_text(encoding="utf-8"))["about"],
        "config": config.metadata(),
        "t": list(T),
        "loss": outputs["loss"].item(),
        "pred": {
            "stride": PRED_STRIDE,
            "norm": float(numpy.linalg.norm(pred)),
            "elements": [float(value) for value in pred[::PRED_STRIDE]],
        },
        "parameters": parameters,
    }


def main(arguments=None):
    parser = common.argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=OUT, help="default: tests/golden/unet_tiny.json")
    options = parser.parse_args(arguments)
    return common.run(lambda: common.save_json(options.out, golden()))


if __name__ == "__main__":
    sys.exit(main())
