"""Turns a trained policy into the file that `./ladder denoise` reads.

    policy_export.py policy.ckpt policy.safetensors [--trust-pickle]
    policy_export.py model.safetensors policy.safetensors    LeRobot: tensors unchanged, settings from its config.json

`./ladder denoise` reads a folder of LeRobot's save_pretrained as it is, and un-normalises its actions; this script leaves
LeRobot's statistics alone.

From a Diffusion Policy checkpoint the script takes the averaged (EMA) weights of the network if there are any, the
normalizer's scales and offsets of `obs` and `action`, and the settings that shapes do not tell: groups, horizon and
scheduler. A file of named tensors alone works too. Flags add settings that a file lacks, or replace them.

A .ckpt is a pickle, and a pickle can run any program when it is read. This script reads tensors and plain values only.
A configuration stored as omegaconf objects needs them built: --trust-pickle allows it (and pip install omegaconf dill).
"""

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy_and_torch  # noqa: F401

import torch

import policy_network as policy
import unet_common as common
from worker import Refusal, one_line

# diffusers' name of each scheduler setting in LeRobot's configuration.
_LEROBOT_SCHEDULER = {"noise_scheduler_type": "_class_name", **{f: f for f in policy.DEFAULT_SCHEDULER if f[0] != "_"}}
_SCHEDULERS = ("DDPMScheduler", "DDIMScheduler")


def read_checkpoint(path, trust):
    if not path.is_file():
        raise Refusal(f"{path}: no such file")
    try:
        if not trust:
            return torch.load(path, map_location="cpu", weights_only=True)
        try:
            import dill as pickled
        except ImportError:
            pickled = pickle
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=pickled)
    except ModuleNotFoundError as error:
        raise Refusal(f"{path} needs the package {error.name}: pip install {error.name.split('.')[0]}") from None
    except pickle.UnpicklingError as error:
        if trust or "unsupported global" not in str(error).lower():
            raise Refusal(f"{path}: no checkpoint of PyTorch: {one_line(error)}") from None
        raise Refusal(
            f"{path} holds Python objects, not only tensors and plain values, and reading those can run any program: "
            "add --trust-pickle if you trust whoever made the file"
        ) from None
    except (RuntimeError, EOFError, AttributeError, ImportError, KeyError, TypeError, ValueError) as error:
        raise Refusal(f"{path}: no checkpoint that can be read: {one_line(error)}") from None


def weights_of(checkpoint, path):
    """Returns ({name: tensor}, which weights they are) of a workspace's checkpoint or a state_dict."""
    if not isinstance(checkpoint, Mapping):
        raise Refusal(f"{path}: a checkpoint is a dictionary; this is a {type(checkpoint).__name__}")
    held, which = checkpoint, "the only weights that there are"
    if "state_dicts" in checkpoint:
        parts = checkpoint["state_dicts"]
        which = next((part for part in ("ema_model", "model") if isinstance(parts, Mapping) and part in parts), None)
        if which is None:
            raise Refusal(f"{path}: its state_dicts have neither ema_model nor model")
        held = parts[which]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, torch.Tensor) for tensor in held.values()):
        raise Refusal(f"{path}: no named tensors: neither `state_dicts` nor a state_dict")
    return dict(held), which


def at(config, *keys):
    """Returns config[key][key].., or None if a key is missing."""
    for key in keys:
        if not isinstance(config, Mapping) or config.get(key) is None:
            return None
        config = config[key]
    return config


def plain(value):
    """Convert omegaconf's containers to dict and list, which JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): plain(held) for key, held in value.items()}
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    return [plain(held) for held in value]


def told_by_config(config):
    """Returns {groups, horizon, scheduler, steps} of a training's configuration; None or {} for a missing setting."""
    scheduler = plain(at(config, "policy", "noise_scheduler") or {})
    target = scheduler.pop("_target_", "")
    if target:
        scheduler = {"_class_name": target.rpartition(".")[2], **scheduler}
    groups = at(config, "policy", "n_groups") or at(config, "policy", "model", "n_groups")
    horizon = at(config, "policy", "horizon") or at(config, "horizon")
    steps = at(config, "policy", "num_inference_steps")
    return {"groups": groups, "horizon": horizon, "scheduler": scheduler, "steps": steps}


def told_by_lerobot(config):
    scheduler = {theirs: config[ours] for ours, theirs in _LEROBOT_SCHEDULER.items() if ours in config}
    if "_class_name" in scheduler:
        scheduler["_class_name"] += "Scheduler"
    told = {"groups": "n_groups", "horizon": "horizon", "steps": "num_inference_steps"}
    return {"scheduler": scheduler, **{ours: config.get(theirs) for ours, theirs in told.items()}}


def json_of(path):
    try:
        told = common.json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Refusal(f"{path}: no JSON: {one_line(error)}") from None
    if not isinstance(told, dict):
        raise Refusal(f"{path}: no JSON object")
    return told


def read(path, trust):
    """Returns (tensors of the file to write, settings {groups, horizon, scheduler, steps}, which weights they are)."""
    if path.suffix == ".safetensors":
        tensors, metadata = common.load_tensors(path)
        beside = path.with_name("config.json")
        told = json_of(beside) if beside.exists() else {}
        told = common.json.loads(metadata.get(policy.METADATA_KEY, "{}")) or told_by_lerobot(told)
        return tensors, told, "tensors as they are"
    checkpoint = read_checkpoint(path, trust)
    held, which = weights_of(checkpoint, path)
    normalizer = {name: held[name] for name in policy.NORMALIZER_NAMES if name in held}
    tensors = {**policy.network_tensors(held, path), **normalizer}
    return {name: tensor.float() for name, tensor in tensors.items()}, told_by_config(checkpoint.get("cfg")), which


def work(options):
    path = Path(options.checkpoint)
    tensors, told, which = read(path, options.trust_pickle)
    sizes = policy.sizes_of(policy.network_tensors(tensors, path), path)
    scheduler = json_of(options.scheduler_config) if options.scheduler_config else told.get("scheduler")
    groups, horizon = options.groups or told.get("groups"), options.horizon or told.get("horizon")
    assumed = [name for name, held in (("groups", groups), ("horizon", horizon), ("scheduler", scheduler)) if not held]
    groups, horizon, scheduler = groups or 8, horizon or 16, scheduler or policy.DEFAULT_SCHEDULER
    kind = scheduler.get("_class_name", _SCHEDULERS[0])
    if kind not in _SCHEDULERS:
        raise Refusal(f"{path}: its scheduler is {kind}, and {' or '.join(_SCHEDULERS)} is wanted")
    metadata = policy.metadata(groups, horizon, scheduler, told.get("steps"))
    policy.policy_of(tensors, metadata, path)  # raises Refusal if tensors and settings do not fit
    common.save_tensors(options.out, tensors, metadata)
    dims = ",".join(map(str, sizes["down_dims"]))
    normalized = [of for of in ("obs", "action") if f"{policy.NORMALIZER}{of}.scale" in tensors]
    print(
        f"{options.out}: {which}; d{sizes['input_dim']} dims{dims} e{sizes['diffusion_step_embed_dim']} "
        f"g{sizes['global_cond_dim']} taps{sizes['kernel_size']} groups{groups}, horizon {horizon}, "
        f"{scheduler.get('_class_name', 'scheduler')} {scheduler.get('num_train_timesteps', 1000)}; "
        f"normalizer of {' and '.join(normalized) or 'nothing'}"
    )
    if "action" not in normalized:
        print("actions stay in the network's units, as a rule normalised")
    if told.get("steps"):
        print(f"num_inference_steps {told['steps']}: the steps of ./ladder denoise without --steps")
    if assumed:
        print(f"not said by {path}, so assumed: {', '.join(assumed)}")


def main(arguments=None):
    parser = common.argparse.ArgumentParser(
        description=__doc__, formatter_class=common.argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint", help=".ckpt, .pt or .safetensors")
    parser.add_argument("out", help="safetensors file to write")
    parser.add_argument("--trust-pickle", action="store_true", help="let the file build Python objects")
    parser.add_argument("--groups", type=int, help="of GroupNorm")
    parser.add_argument("--horizon", type=int, help="actions of an answer")
    parser.add_argument("--scheduler-config", metavar="FILE", help="diffusers' scheduler_config.json")
    return common.run(work, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
