"""What the scripts around unet.py share: files written whole or not at all, random weights and inputs, precision, the parts of
qkv, and errors in one line."""

import argparse
import contextlib
import json
import math
import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy
import torch
from torch import nn

import unet
from worker import Refusal, one_line

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from cli import files
from cli.errors import Failure


def run(main, *arguments):
    """A script's exit status: 1 after an error, printed as one line; argparse itself exits with 2."""
    try:
        return main(*arguments) or 0
    except (Refusal, Failure, OSError, ValueError) as error:
        reason = one_line(Refusal(error) if isinstance(error, Failure) else error)
        print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
        return 1


def parser_of(description, config=True):
    parser = argparse.ArgumentParser(description=description)
    if config:
        parser.add_argument("--config", choices=sorted(unet.CONFIGS), default="unet64")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: cuda where there is one")
    return parser


def device_of(options):
    """The device, made ready: all work of the process goes to one stream of its own, since the default one cannot be captured
    into a graph, and gradients accumulate on the stream of their forward pass."""
    wanted = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise Refusal(f"PyTorch {torch.__version__} sees no CUDA device; --device cpu would do without")
    if wanted == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    return torch.device(wanted)


def versions(device):
    """For a record: who computed."""
    told = {"torch": torch.__version__, "device": str(device)}
    if device.type == "cuda":
        told |= {
            "gpu": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
            "cuda": torch.version.cuda,
        }
    return told


def record_of(schema):
    """The beginning of a record: its schema (results/SCHEMA.md) and the time in UTC."""
    return {"schema": schema, "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


# --- Files


def written(path, write):
    """`write(aside)` writes a file that then takes the name `path`, or is written through: tools/cli/files.py."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with files.whole(path) as file:
        write(Path(file.name))


def save_json(path, what):
    written(path, lambda aside: aside.write_text(json.dumps(what, indent=1) + "\n", encoding="utf-8"))


def save_tensors(path, tensors, metadata=None):
    from safetensors.torch import save_file

    held = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    written(path, lambda aside: save_file(held, str(aside), metadata=metadata))


def load_tensors(path):
    """({name: tensor}, metadata)."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except FileNotFoundError:
        raise Refusal(f"{path}: no such file") from None
    except SafetensorError as error:
        raise Refusal(f"{path}: no safetensors file: {one_line(error)}") from None


def load_weights(model, path):
    """Into the model, in its dtype. Refuses a file with other names or shapes, and says which."""
    try:
        model.load_state_dict(load_tensors(path)[0])
    except RuntimeError as error:
        raise Refusal(f"{path} is not of this configuration: {one_line(error)}") from None


# --- Random weights and inputs; numpy's generator gives the same on every machine.


def divided(value, fan_in):
    """The weights and biases of a convolution or linear layer; `fan_in` is the number of elements of its weight's first row."""
    return value / math.sqrt(fan_in)


@torch.no_grad()
def fill(model, drawn, scaled=divided):
    """Fills every parameter, in state_dict's order, from `drawn(name, shape)`, float64 in [-1, 1]: 1 + value / 4 and value / 4 in
    GroupNorm, scaled(value, fan_in) in convolutions and linear layers, zeroed ones too; rounded to fp32 once."""
    for layer, module in model.named_modules():
        if not isinstance(getattr(module, "weight", None), nn.Parameter):
            continue
        for name, parameter in module.named_parameters():
            value = drawn(f"{layer}.{name}", tuple(parameter.shape))
            if isinstance(module, nn.GroupNorm):
                value = (name == "weight") + value / 4
            else:
                value = scaled(value, module.weight[0].numel())
            parameter.copy_(torch.from_numpy(value.astype(numpy.float32)))
    return model


def randomise(model, seed):
    """Fills the model with uniform values: non-zero ones in every tensor."""
    drawn = numpy.random.default_rng(seed)
    return fill(model, lambda name, shape: drawn.uniform(-1, 1, shape))


def random_batch(drawn, n, side):
    """{"x0": [n, 3, h, w] fp32 of 256 levels, "t": [n] int64, distinct and 0 and 999 among them, "noise": as x0}."""
    if not 2 <= n <= 1000:
        raise Refusal(f"{n} images cannot have distinct t with 0 and 999 among them; 2 to 1000 can")
    middle = 1 + drawn.choice(998, n - 2, replace=False)
    t = drawn.permutation(numpy.concatenate([[0, 999], middle]))
    x0 = drawn.integers(0, 256, (n, 3, side, side)) / 127.5 - 1
    noise = drawn.standard_normal((n, 3, side, side))
    return {
        "x0": torch.from_numpy(x0.astype(numpy.float32)),
        "t": torch.from_numpy(t.astype(numpy.int64)),
        "noise": torch.from_numpy(noise.astype(numpy.float32)),
    }


def images_of(tensor):
    """[n, 3, h, w] fp32 in [-1, 1] as it is, or of uint8, NHWC or NCHW."""
    if tensor.dtype != torch.uint8:
        return tensor.float()
    if tensor.shape[-1] == 3 and tensor.shape[-3] != 3:
        tensor = tensor.movedim(-1, -3)
    return tensor.float() / 127.5 - 1


# --- Precision


def exact_fp32():
    """No TF32 anywhere: cuDNN's convolutions have it by default."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def precision(device, dtype):
    """A context for the forward pass: nothing for fp32, autocast with fp32 weights for bf16. Its cache of cast weights is off:
    each is used once, and a cached one would stay in a captured graph."""
    if dtype == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


# --- The parts of qkv


def qkv_parts(name, shape, head_size):
    """{"q": rows, "k": rows, "v": rows} of a qkv weight or bias (its name, whatever stands before it), in the legacy order
    [heads][q, k, v][d] of the output dimension; {} of any other tensor."""
    if not name.endswith((".qkv.weight", ".qkv.bias")):
        return {}
    rows = numpy.arange(shape[0]).reshape(-1, 3, head_size)
    return {part: rows[:, index].ravel() for index, part in enumerate("qkv")}
