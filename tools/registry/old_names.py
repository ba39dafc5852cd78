"""Translation of names used before 2026-11-23. Readers of records, comparisons and profiles call current(), so that
they know today's names only; flag() serves bench programs of older commits."""

import re

_KEYS = {
    "opponent": "baseline",
    "traffic": "streaming",
    "floor_seconds": "lower_bound_seconds",
    "handicap": "inject_slowdown",
}
_FLAGS = {"--inject-slowdown": "--handicap", "--baseline": "--opponent"}
_IDEAS = {"staying_clusters": "persistent_clusters"}


def current(value):
    """`value`, from json.loads(), with old names replaced by today's at any depth."""
    if isinstance(value, list):
        return [current(item) if isinstance(item, (dict, list)) else item for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {
        _KEYS.get(key, key): current(item) if isinstance(item, (dict, list)) else item for key, item in value.items()
    }
    if renamed.get("idea") in _IDEAS:
        renamed["idea"] = _IDEAS[renamed["idea"]]
    return renamed


def flag(name, help_text):
    """Name of the flag `name` in a bench program whose --help is `help_text`; None without such a flag."""
    there = re.findall(r"--[a-z][a-z-]*", help_text)
    return next((each for each in (name, _FLAGS.get(name)) if each in there), None)


def library_of(plan, libraries):
    """Library of a plan whose record does not name it; `libraries` is the record's list, "PyTorch 2.11.0, cuDNN
    9.19.0".

    Names of PyTorch's plans begin with "PyTorch", those of cuDNN's with an engine's number.
    """
    names = [library.split(" ")[0] for library in libraries.split(", ") if library]
    first = "cuDNN" if re.match(r"eng\d", plan) else plan.split(" ")[0]
    return first if first in names else (names or [""])[0]
