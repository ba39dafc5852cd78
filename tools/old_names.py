"""Records, comparisons and profiles made before 2026-11-23 call some things by other names. Readers pass what they parsed
through current() and then know one set of names only."""

_KEYS = {
    "opponent": "baseline",
    "traffic": "streaming",
    "floor_seconds": "lower_bound_seconds",
    "handicap": "inject_slowdown",
}
_IDEAS = {"staying_clusters": "persistent_clusters"}


def current(value):
    """`value` as json.loads() gave it, old names replaced by today's, however deep they lie."""
    if isinstance(value, list):
        return [current(item) if isinstance(item, (dict, list)) else item for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {_KEYS.get(key, key): current(item) if isinstance(item, (dict, list)) else item for key, item in value.items()}
    if renamed.get("idea") in _IDEAS:
        renamed["idea"] = _IDEAS[renamed["idea"]]
    return renamed
