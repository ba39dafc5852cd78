"""The profiler's figures of each ladder, version beside version."""

from .html_table import Html, escape, figure, filtered, micros, size, table

_NAMES = {
    "duration": "duration under the profiler",
    "tensor": "tensor pipe",
    "fma": "FMA pipe",
    "issue": "issue slots",
    "registers": "registers a thread",
    "shared_memory": "shared memory a block",
    "conflict_share": "bank conflicts, share of wavefronts",
}
_MOST = 4  # profiles beside each other, the newest of a version each


def shown(profiles):
    """HTML of a table for each pass and type."""
    groups = {}
    for profile in sorted(profiles, key=lambda one: (one["version"], one["created"])):
        groups.setdefault((profile["device"], profile["path"], profile["dtype"]), {})[
            profile["version"], profile["problem"]
        ] = profile
    return "\n".join(_group([*of.values()][-_MOST:]) for _, of in sorted(groups.items()))


def _group(profiles):
    heads = ["", *(f"#v{one['version']:02d} {one['idea'].replace('_', ' ')}" for one in profiles)]
    heads += ["#change"] * (len(profiles) > 1) + ["what the last one says"]
    blank = [""] * (len(heads) - len(profiles) - 1)
    rows = [["problem", *(one["problem"] for one in profiles), *blank]]
    rows.append(["lower bound", *(f"{micros(one['lower_bound'])} µs" for one in profiles), *blank])
    for name in dict.fromkeys(name for one in profiles for name in one["total"]):
        found = [one["total"].get(name) or {"value": None, "unit": "", "text": ""} for one in profiles]
        first, last = found[0]["value"], found[-1]["value"]
        change = f"× {figure(last / first)}" if first and last is not None else ""
        if any(one["value"] is not None for one in found):
            label = _NAMES.get(name, name.replace("_", " "))
            rows.append([label, *map(_figure, found), *[change] * (len(profiles) > 1), found[-1]["text"]])
    rows.append(["most frequent stalls", *map(_stalls, profiles), *blank])
    rows.append(["kernels", *map(_kernels, profiles), *blank])
    rows.append(["report", *(_report(one) for one in profiles), *blank])
    advice = "".join(
        f"<h3>v{one['version']:02d}'s profile suggests</h3><ul class=lead>{''.join(f'<li>{escape(line)}</li>' for line in one['advice'])}</ul>"
        for one in profiles
        if one["advice"]
    )
    title = f"<h3>{escape(profiles[0]['path'])} {escape(profiles[0]['dtype'])}</h3>"
    return f'<div class="of-profile"{filtered(profiles[0])}>{title}<div class=scroll>{table(heads, rows)}</div>{advice}</div>'


def _figure(found):
    value, unit = found["value"], found["unit"]
    if value is None:
        return "–"
    if unit.startswith("bytes"):
        return size(value)
    scaled = {"s": (1e6, " µs"), "%": (1, " %"), "Hz": (1e-6, " MHz")}.get(unit, (1, ""))
    return f"{value:,}" if scaled[1] == "" and isinstance(value, int) else figure(value * scaled[0]) + scaled[1]


def _stalls(profile):
    longest = max(profile["kernels"], key=lambda kernel: kernel["duration"] or 0, default={"stalls": []})
    lines = [
        f"{stall['reason'].replace('_', ' ')} {100 * (stall['share'] or 0):.0f} %" for stall in longest["stalls"][:3]
    ]
    return Html("<br>".join(map(escape, lines)))


def _kernels(profile):
    return Html(
        "".join(
            f"<code>{escape(kernel['name'])}</code><br><small>{micros(kernel['duration'])} µs, grid {escape(kernel['grid'])}, "
            f"block {escape(kernel['block'])}</small><br>"
            for kernel in profile["kernels"]
        )
    )


def _report(profile):
    if not profile["report"]:
        return Html(f'<span title="{escape(profile["file"])}">figures only</span>')
    return Html(f'<a href="{escape(profile["report"])}">for Nsight Compute</a>')
