"""Writes the file that ./ladder denoise reads from a training's checkpoint.

A Diffusion Policy checkpoint gives the network's averaged (EMA) weights, if there are any, the normalizer's scales and
offsets of `obs` and `action`, and the settings that shapes do not tell: groups, horizon, scheduler and
num_inference_steps. A file of named tensors alone works too. LeRobot's model.safetensors gives its tensors, unchanged,
and the settings of config.json beside it; ./ladder denoise reads LeRobot's folder as it is and un-normalises its
actions, which the written file does not.

The file is read as ./ladder denoise reads it before it takes its place: what that refuses is refused here.

A .ckpt is a pickle, and a pickle can run any program when it is read: tensors and plain values are read only. A
configuration stored as omegaconf objects needs them built, which --trust-pickle allows (pip install omegaconf dill).
"""

import argparse
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from . import library, scheduler_state, unet1d

_KEY = "ladder.policy/1"  # of the file's metadata
_SETTINGS = ("groups", "horizon", "scheduler", "steps")
_NORMALIZER = tuple(f"normalizer.params_dict.{field}." for field in ("obs", "action"))
_PARTS = unet1d.PARTS | {"local_cond_encoder"}  # of the network; local conditioning is refused by name


class _Refusal(Exception):
    """A file or a setting that is refused, in one line."""


def _one_line(error):
    return " ".join(str(error).split()) or type(error).__name__


def _read_checkpoint(path, trust):
    try:
        if not trust:
            return torch.load(path, map_location="cpu", weights_only=True)
        try:
            import dill as pickled
        except ImportError:
            pickled = pickle
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=pickled)
    except ModuleNotFoundError as error:
        raise _Refusal(f"{path} needs the package {error.name}: pip install {error.name.split('.')[0]}") from None
    except pickle.UnpicklingError as error:
        if trust or "unsupported global" not in str(error).lower():
            raise _Refusal(f"{path}: no checkpoint of PyTorch: {_one_line(error)[:300]}") from None
        raise _Refusal(
            f"{path} holds Python objects, not only tensors and plain values, and reading those can run any program: "
            "add --trust-pickle if you trust whoever made the file"
        ) from None
    except (RuntimeError, EOFError, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise _Refusal(f"{path}: no checkpoint that can be read: {_one_line(error)[:300]}") from None


def _weights_of(checkpoint, path):
    """Returns ({name: tensor}, which weights they are) of a workspace's checkpoint or a state_dict."""
    if not isinstance(checkpoint, Mapping):
        raise _Refusal(f"{path}: a checkpoint is a dictionary; this is a {type(checkpoint).__name__}")
    held, which = checkpoint, "the only weights that there are"
    if "state_dicts" in checkpoint:
        parts = checkpoint["state_dicts"]
        which = next((part for part in ("ema_model", "model") if isinstance(parts, Mapping) and part in parts), None)
        if which is None:
            raise _Refusal(f"{path}: its state_dicts have neither ema_model nor model")
        held = parts[which]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in held.values()):
        raise _Refusal(f"{path}: no named tensors: neither `state_dicts` nor a state_dict")
    network = {name: tensor for name, tensor in held.items() if not _PARTS.isdisjoint(name.split("."))}
    normalizer = {name: tensor for name, tensor in held.items() if name.startswith(_NORMALIZER)}
    return {name: tensor.float() for name, tensor in ({**network, **normalizer} if network else held).items()}, which


def _at(config, *keys):
    """Returns config[key][key].., or None if a key is missing."""
    for key in keys:
        config = config.get(key) if isinstance(config, Mapping) else None
    return config


def _first(*values):
    return next((value for value in values if value is not None), None)


def _settings_of(config):
    """Returns the settings of a training's configuration, None for a missing one."""
    scheduler = _at(config, "policy", "noise_scheduler")
    if isinstance(scheduler, Mapping):
        scheduler = dict(scheduler)
        target = str(scheduler.pop("_target_", ""))
        scheduler = {**({"_class_name": target.rpartition(".")[2]} if target else {}), **scheduler}
    return {
        "groups": _first(_at(config, "policy", "n_groups"), _at(config, "policy", "model", "n_groups")),
        "horizon": _first(_at(config, "policy", "horizon"), _at(config, "horizon")),
        "scheduler": scheduler,
        "steps": _at(config, "policy", "num_inference_steps"),
    }


def _json_of(text, whence):
    try:
        told = json.loads(text)
    except ValueError as error:
        raise _Refusal(f"{whence}: no JSON: {_one_line(error)}") from None
    if not isinstance(told, dict):
        raise _Refusal(f"{whence}: no JSON object")
    return told


def _ask(path, groups=None, horizon=None):
    """Returns what ./ladder denoise reads of a file or a folder, by the package's library (csrc/policy.h)."""
    missing = []
    for half in (library.CUDA, library.EMULATOR):
        try:
            half.load()
        except RuntimeError as error:
            missing.append(_one_line(error))
            continue
        try:
            return half.ask(policy={"read": str(path), "groups": groups, "horizon": horizon})
        except ValueError as error:
            raise _Refusal(error) from None
    raise _Refusal(f"nothing here can check the file, so none is written: {'; '.join(missing)}")


def _read(path, options):
    """Returns (tensors of the file to write, its settings, which weights they are)."""
    if path.suffix != ".safetensors":
        checkpoint = _read_checkpoint(path, options.trust_pickle)
        tensors, which = _weights_of(checkpoint, path)
        return tensors, _settings_of(checkpoint.get("cfg")), which
    try:
        with safe_open(str(path), framework="pt") as file:
            tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}
    except SafetensorError as error:
        raise _Refusal(f"{path}: no safetensors file: {_one_line(error)}") from None
    if _KEY in metadata:
        settings = _json_of(metadata[_KEY], f"{path}: its metadata's {_KEY}")
    elif path.name == "model.safetensors" and (path.parent / "config.json").is_file():
        settings = _ask(path.parent, options.groups, options.horizon)
    else:
        settings = {}
    return tensors, settings, "tensors as they are"


def _export(options):
    path, out = options.checkpoint, options.out
    if path.is_dir():
        path /= "model.safetensors"
    if not path.is_file():
        raise _Refusal(f"{path}: no such file")
    tensors, settings, which = _read(path, options)
    given = {"groups": options.groups, "horizon": options.horizon}
    settings = {**settings, **{key: value for key, value in given.items() if value}}
    if options.scheduler_config:
        file = options.scheduler_config
        settings |= {"scheduler": _json_of(file.read_text(encoding="utf-8"), file), "steps": None}
    written = {key: settings[key] for key in _SETTINGS if settings.get(key) is not None}
    metadata = json.dumps(scheduler_state.plain(written))
    if not out.parent.is_dir():
        raise _Refusal(f"{out.parent}: no such folder")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        aside = Path(folder) / out.name
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, aside, {_KEY: metadata})
        try:
            told = _ask(aside)
        except _Refusal as refusal:
            says = str(refusal).replace(str(aside), str(path))
            raise _Refusal(says if str(path) in says else f"{path}: {says}") from None
        os.replace(aside, out)
    normalized = [name[:-1].rpartition(".")[2] for name in _NORMALIZER if f"{name}scale" in tensors]
    print(f"{out}: {which}; {told['about']}; normalizer of {' and '.join(normalized) or 'nothing'}")
    print(*told["notes"], sep="\n", end="\n" if told["notes"] else "")


def _whole_number(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: 1 or more is right")
    return value


def main(arguments=None):
    """Runs the program. Returns its exit status: 1 after an error, printed as one line. Wrong usage exits with 2."""
    parser = argparse.ArgumentParser(
        prog="python -m ladder_torch.export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", type=Path, help=".ckpt, .pt or .safetensors, or a folder of LeRobot")
    parser.add_argument("out", type=Path, help="safetensors file to write")
    parser.add_argument("--trust-pickle", action="store_true", help="let the file build Python objects")
    parser.add_argument("--groups", type=_whole_number, metavar="N", help="of GroupNorm")
    parser.add_argument("--horizon", type=_whole_number, metavar="N", help="actions of an answer")
    parser.add_argument(
        "--scheduler-config",
        type=Path,
        metavar="FILE",
        help="diffusers' scheduler_config.json; num_inference_steps is left out",
    )
    parser.epilog = "A flag adds a setting that the checkpoint lacks, or replaces it."
    options = parser.parse_args(arguments)
    try:
        _export(options)
    except (_Refusal, SafetensorError, OSError, UnicodeDecodeError) as error:
        print(f"{parser.prog}: {_one_line(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
