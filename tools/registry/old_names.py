"""What was made before 2026-11-23 calls some things by other names: records, comparisons and profiles, which readers pass
through current() to know one set of names only, and the bench programs of older commits."""

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
    """`value` as json.loads() gave it, old names replaced by today's, however deep they lie."""
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
    """What a bench program whose --help is `help_text` calls the flag `name`; None where it has no such flag."""
    there = re.findall(r"--[a-z][a-z-]*", help_text)
    return next((each for each in (name, _FLAGS.get(name)) if each in there), None)


def library_of(plan, libraries):
    """Whose plan it is, where a record does not say: `libraries` is all that it says, "PyTorch 2.11.0, cuDNN 9.19.0".

    PyTorch's plans begin with its name, those of cuDNN with an engine's number.
    """
    names = [library.split(" ")[0] for library in libraries.split(", ") if library]
    first = "cuDNN" if re.match(r"eng\d", plan) else plan.split(" ")[0]
    return first if first in names else (names or [""])[0]
