"""State of a diffusers scheduler in JSON's types: its configuration and the time steps chosen by set_timesteps()."""

import math
from collections.abc import Mapping, Sequence

_WANTED = "diffusers' DDPMScheduler or DDIMScheduler, or a dict of the configuration of one"


def fields_of(scheduler):
    """Returns the fields of the scheduler's scheduler_config.json. Throws TypeError."""
    if isinstance(scheduler, Mapping):
        return plain(scheduler)
    config = getattr(scheduler, "config", None)
    if not isinstance(config, Mapping):
        raise TypeError(f"policy: scheduler is of type {type(scheduler).__name__}, and {_WANTED} is wanted")
    return {"_class_name": type(scheduler).__name__, **plain(config)}


def timesteps_of(scheduler):
    """Returns the time steps that set_timesteps() has chosen, or None."""
    chosen = getattr(scheduler, "custom_timesteps", False) or getattr(scheduler, "num_inference_steps", None)
    timesteps = getattr(scheduler, "timesteps", None)
    return [int(t) for t in timesteps] if chosen and timesteps is not None else None


def plain(value):
    """Converts a value to JSON's types: a tensor or an array to a list, infinity and NaN to a string."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    if value is None or isinstance(value, (bool, int, str)) or isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)
