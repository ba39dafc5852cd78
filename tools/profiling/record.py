"""A profile as JSON, schema ladder.profile/1 (results/SCHEMA.md): made of ncu's figures and the launch's record."""

from dataclasses import dataclass

from cli import json_file
from cli.errors import Failure
from registry import old_names

from . import advice, metrics

SCHEMA = "ladder.profile/1"
UNITS = {
    **{figure: unit for figure, (unit, _) in metrics.SOURCES.items() if figure != "local_sectors"},
    "spill_bytes": "bytes",
    "conflict_share": "%",
}

_SUMS = ("duration", "spill_bytes", "spill_requests", "bank_conflicts", "shared_wavefronts", "dram_bytes")
_LARGEST = ("registers", "shared_memory")
_OF_ONE = ("occupancy", "theoretical_occupancy", "waves", "conflict_share")  # say nothing of several kernels


def make(launch, kernels, ncu_version, command):
    """The profile of a launch. `launch` is the JSON that `bench --once --record` wrote. Throws Failure."""
    try:
        result = launch["results"][0]
        lower_bound = result["roofline_seconds"] or None
        profile = {
            "schema": SCHEMA,
            "created": launch["created"],
            "command": command,
            **{name: launch[name] for name in ("environment", "seed")},
            **{name: result[name] for name in ("layer", "pass", "version", "idea", "problem", "dtype")},
            "lower_bound_seconds": lower_bound,
            "min_bytes": result["min_read_bytes"] + result["min_write_bytes"],
        }
    except (KeyError, IndexError, TypeError) as error:
        raise Failure(f"the launch's record is broken: {type(error).__name__}: {error}") from None
    alone = len(kernels) == 1
    profile["kernels"] = [_kernel_json(kernel, lower_bound if alone else None) for kernel in kernels]
    profile["total"] = _figures_json(total(kernels), kernels[0].limits if alone else {}, lower_bound)
    profile["ncu"] = ncu_version
    profile["advice"] = advice.advice(kernels, lower_bound)
    return profile


def total(kernels):
    """The figures of the whole launch: sums of times and counts, the largest of what a block asks for, and shares of
    a peak as means over the time."""
    if len(kernels) == 1:
        return dict(kernels[0].figures)
    combined = {}
    for figure in UNITS:
        values = [(kernel.figures.get(figure), kernel.figures.get("duration")) for kernel in kernels]
        values = [(value, duration) for value, duration in values if value is not None]
        if figure in _OF_ONE or len(values) < len(kernels):
            combined[figure] = None
        elif figure in _SUMS:
            combined[figure] = sum(value for value, _ in values)
        elif figure in _LARGEST:
            combined[figure] = max(value for value, _ in values)
        else:
            combined[figure] = _mean(values)
    combined["conflict_share"] = metrics.share(combined["bank_conflicts"], combined["shared_wavefronts"])
    return combined


def _mean(values):
    """Weighted by duration; None if a duration is missing."""
    if any(not duration for _, duration in values):
        return None
    return sum(value * duration for value, duration in values) / sum(duration for _, duration in values)


def _kernel_json(kernel, lower_bound):
    return {
        "name": kernel.name,
        "grid": kernel.grid,
        "block": kernel.block,
        "limiter": kernel.limiter,
        "limits": kernel.limits,
        "figures": _figures_json(kernel.figures, kernel.limits, lower_bound),
        "stalls": [{"reason": reason, "share": part} for reason, part in kernel.stalls],
    }


def _figures_json(figures, limits, lower_bound):
    said = advice.meanings(figures, limits, lower_bound)
    return {
        figure: {"value": figures.get(figure), "unit": unit, "text": said.get(figure, "")}
        for figure, unit in UNITS.items()
    }


@dataclass
class Side:
    """A profile as one side of a comparison."""

    title: str
    device: str
    figures: dict  # {figure: number or None}
    lower_bound: float  # seconds, or None
    stalls: dict  # {reason: share}: of the longest kernel


def heaviest(profile):
    """The kernel of a profile that took the longest."""
    return max(profile["kernels"], key=lambda kernel: kernel["figures"]["duration"]["value"] or 0)


def side(profile):
    longest = heaviest(profile)
    return Side(
        title=f"v{profile['version']:02d} {profile['idea']}, {profile['problem']}",
        device=profile["environment"]["device"]["name"],
        figures={figure: cell["value"] for figure, cell in profile["total"].items()},
        lower_bound=profile["lower_bound_seconds"],
        stalls={stall["reason"]: stall["share"] for stall in longest["stalls"]},
    )


def read(path):
    """A profile from a file. Throws Failure."""
    try:
        profile = old_names.current(json_file.read(path))
        if profile["schema"] != SCHEMA:
            raise Failure(f"{path}: schema {profile['schema']}, this tool reads {SCHEMA}")
        side(profile)
        return profile
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise Failure(f"{path}: not a profile: {json_file.reason(error)}") from None


def name(profile):
    """<date>_<sha>_<layer>_<pass>_vNN_<dtype>_<problem's words>: the file's stem."""
    environment = profile["environment"]
    words = [word for word in profile["problem"].split() if word != profile["dtype"]]
    sha = (environment.get("commit") or "unknown")[:7] + ("_dirty" if environment.get("dirty") else "")
    version = f"{profile['layer']}_{profile['pass']}_v{profile['version']:02d}"
    return "_".join([profile["created"][:10], sha, version, profile["dtype"], "-".join(words)])
