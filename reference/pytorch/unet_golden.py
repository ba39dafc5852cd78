"""Writes tests/golden/unet_tiny.json: loss, prediction and gradients of the tiny configuration in float64, from weights and
inputs that an integer hash makes, so that the trainer can be compared without PyTorch and without a GPU.

    python3 reference/pytorch/unet_golden.py [--out FILE]

The file's own "about" says how its numbers are made, down to the bit; the text is ABOUT below.
"""

import sys
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy
import torch
from torch import nn

import unet
import unet_common as common
import unet_parity

CONFIG = "tiny"
T = (0, 999)
X0_STREAM, NOISE_STREAM, FIRST_PROJECTION = 1000, 1001, 1024
PROJECTIONS = 4
PRED_STRIDE = 7
OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "unet_tiny.json"

ABOUT = [
    "guided-diffusion's U-Net (conv_resample, resblock_updown, use_scale_shift_norm off; legacy qkv order [heads][q, k, v][d]),",
    "one forward and backward pass in float64, by reference/pytorch/unet_golden.py. Elements are counted in PyTorch's order, row",
    "major over the shapes given here: convolutions [O, I, 3, 3] or [O, I, 1, 1], qkv and proj_out [O, I, 1], linear [O, I],",
    "images [n, c, h, w].",
    "hash32(x), of and to unsigned 32-bit integers: x ^= x >> 16; x *= 0x7feb352d; x ^= x >> 15; x *= 0x846ca68b; x ^= x >> 16.",
    "value(stream, element) = (hash32(stream * 2^20 + element) >> 8) / 2^23 - 1: in [-1, 1), exact in fp32.",
    "Parameter number i, in the order of `parameters` (from 0), has stream i. GroupNorm (x.norm, in_layers.0, out_layers.0,",
    "out.0): weight = 1 + value / 4, bias = value / 4. All others, zeroed layers too: scale * value, one fp32 multiplication, with",
    "scale = fp32(1 / sqrt(fan_in)) computed in float64, fan_in the layer's inputs of one output: I, or 9 I of a 3x3",
    "convolution; a bias has its own layer's scale. 1 + value / 4 is rounded to fp32.",
    "x0 = value(1000, element), noise = 2 * value(1001, element), both [n, 3, h, w] fp32. x_t = sqrt(bar[t]) x0 + sqrt(1 - bar[t])",
    "noise with bar the products of 1 - beta, beta linear from 1e-4 to 0.02 over 1000. loss = mean((pred - noise)^2) over all.",
    "`pred`: every 7th element of the prediction from element 0, and the norm of all. Of each parameter's gradient g: its norm,",
    "and projections[j] = sum over elements e of value(1024 + 4 i + j, e) * g[e], j < 4. Of qkv layers the same of the rows of q,",
    "k and v alone (e still counts in the whole tensor); k's bias has no gradient but rounding, so it has no part here.",
    "float64 throughout, the time embedding too: in fp32 its angles near t = 999 are rounded by 3e-5.",
]


def hash32(x):
    """Of a uint32 array, to one."""
    x = x.astype(numpy.uint32)
    x ^= x >> numpy.uint32(16)
    x *= numpy.uint32(0x7FEB352D)
    x ^= x >> numpy.uint32(15)
    x *= numpy.uint32(0x846CA68B)
    return x ^ x >> numpy.uint32(16)


def values(stream, shape):
    """value(stream, element) of a whole tensor, float64."""
    count = int(numpy.prod(shape))
    if count > 1 << 20 or stream >= 1 << 12:
        raise ValueError(f"stream {stream} of {count} elements runs into another")
    hashed = hash32(numpy.uint32(stream << 20) + numpy.arange(count, dtype=numpy.uint32))
    return ((hashed >> numpy.uint32(8)) / 2.0**23 - 1).reshape(shape)


@torch.no_grad()
def hash_weights(model):
    """Into an fp32 model."""
    stream_of = {name: stream for stream, (name, _) in enumerate(model.named_parameters())}
    for layer, module in common.layers_with_parameters(model):
        scale = numpy.float32(1 / numpy.sqrt(numpy.float64(common.fan_in(module))))
        for name, parameter in module.named_parameters():
            value = values(stream_of[f"{layer}.{name}"], tuple(parameter.shape))
            if isinstance(module, nn.GroupNorm):
                held = (name == "weight") + value / 4
            else:
                held = scale * value.astype(numpy.float32)
            parameter.copy_(torch.from_numpy(numpy.asarray(held, dtype=numpy.float32)))


def hash_batch(config):
    shape = (len(T), config.in_channels, config.image_size, config.image_size)
    return {
        "x0": torch.from_numpy(values(X0_STREAM, shape).astype(numpy.float32)),
        "t": torch.tensor(T),
        "noise": torch.from_numpy((2 * values(NOISE_STREAM, shape)).astype(numpy.float32)),
    }


def sketch(gradient, stream, rows=None):
    """Norm and projections of a float64 gradient, or of some of its rows."""
    at = slice(None) if rows is None else rows
    projections = [
        float((values(stream * PROJECTIONS + FIRST_PROJECTION + index, gradient.shape)[at] * gradient[at]).sum())
        for index in range(PROJECTIONS)
    ]
    return {"norm": float(numpy.linalg.norm(gradient[at])), "projections": projections}


def golden():
    """What the file holds."""
    config = unet.CONFIGS[CONFIG]
    model = unet.UNet(config, explicit_attention=True)
    hash_weights(model)
    # A check of the reader's own hash and scales before anything is computed with them.
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
        "about": ABOUT,
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
