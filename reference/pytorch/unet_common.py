"""Helpers of the scripts around unet.py: files written whole or not at all, random weights and inputs, precision, the
parts of qkv, and errors in one line."""

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
    """Run main and return the script's exit status: 1 after an error, printed as one line. argparse exits with 2."""
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
    """Returns the device, made ready: all work of the process goes to one non-default stream. The default stream cannot
    be captured into a graph, and gradients accumulate on the stream of their forward pass."""
    wanted = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise Refusal(f"PyTorch {torch.__version__} sees no CUDA device; --device cpu would do without")
    if wanted == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream())
    return torch.device(wanted)


def versions(device):
    """Returns the record's versions: PyTorch, and on a GPU its name, cuDNN and CUDA."""
    told = {"torch": torch.__version__, "device": str(device)}
    if device.type == "cuda":
        told |= {
            "gpu": torch.cuda.get_device_name(),
            "cudnn": torch.backends.cudnn.version(),
            "cuda": torch.version.cuda,
        }
    return told


def record_of(schema):
    """Returns the first fields of a record: its schema (results/SCHEMA.md) and the time in UTC."""
    return {"schema": schema, "created": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}


# --- Files


def written(path, write):
    """Call write(aside) and rename the file `aside` to `path`, or write through: tools/cli/files.py."""
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
    """Returns ({name: tensor}, metadata) of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except FileNotFoundError:
        raise Refusal(f"{path}: no such file") from None
    except SafetensorError as error:
        raise Refusal(f"{path}: no safetensors file: {one_line(error)}") from None


def load_weights(model, path):
    """Load a safetensors file into the model, in its dtype. Raises Refusal that names wrong tensors or shapes."""
    try:
        model.load_state_dict(load_tensors(path)[0])
    except RuntimeError as error:
        raise Refusal(f"{path} is not of this configuration: {one_line(error)}") from None


# --- Random weights and inputs; numpy's generator gives the same on every machine.


def divided(value, fan_in):
    """Scale weights and biases of a convolution or linear layer by 1 / sqrt(fan_in); fan_in: size of weight[0]."""
    return value / math.sqrt(fan_in)


@torch.no_grad()
def fill(model, drawn, scaled=divided):
    """Fill every parameter, in state_dict's order, from drawn(name, shape), float64 in [-1, 1], rounded to fp32 once.
    GroupNorm gets 1 + value / 4 (weight) and value / 4 (bias). Convolutions and linear layers get scaled(value,
    fan_in), also the zero-initialised ones."""
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
    """Fill every tensor of the model with uniform random values, zero-initialised ones too."""
    drawn = numpy.random.default_rng(seed)
    return fill(model, lambda name, shape: drawn.uniform(-1, 1, shape))


def random_batch(drawn, n, side):
    """Returns {"x0": [n, 3, h, w] fp32 with 256 levels, "t": [n] int64, distinct, with 0 and 999, "noise": like x0}."""
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
    """Convert images to [n, 3, h, w] fp32 in [-1, 1]. uint8 (NHWC or NCHW) is scaled; others are in range."""
    if tensor.dtype != torch.uint8:
        return tensor.float()
    if tensor.shape[-1] == 3 and tensor.shape[-3] != 3:
        tensor = tensor.movedim(-1, -3)
    return tensor.float() / 127.5 - 1


# --- Precision


def exact_fp32():
    """Turn TF32 off in convolutions and matrix products. cuDNN's convolutions use it by default."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


def precision(device, dtype):
    """Returns a context for the forward pass: empty for fp32, autocast with fp32 weights for bf16. Autocast's cache of
    cast weights is off: each weight is used once, and a cached weight would stay in a captured graph."""
    if dtype == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)


# --- The parts of qkv


def qkv_parts(name, shape, head_size):
    """Returns {"q": rows, "k": rows, "v": rows} of a tensor whose name ends in .qkv.weight or .qkv.bias, else {}. The
    output dimension has the legacy order [heads][q, k, v][d]."""
    if not name.endswith((".qkv.weight", ".qkv.bias")):
        return {}
    rows = numpy.arange(shape[0]).reshape(-1, 3, head_size)
    return {part: rows[:, index].ravel() for index, part in enumerate("qkv")}
