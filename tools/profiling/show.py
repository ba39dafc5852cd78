"""A profile as text: the figures that matter with what each says, and two profiles side by side."""

import math

from . import advice

_ROWS = [
    ("duration", "duration"),
    ("sm", "SM"),
    ("dram", "DRAM"),
    ("l2", "L2"),
    ("l1", "L1 and shared memory"),
    ("tensor", "tensor pipe"),
    ("fma", "FMA pipe"),
    ("issue", "issue slots"),
    ("occupancy", "occupancy, achieved"),
    ("theoretical_occupancy", "occupancy, theoretical"),
    ("registers", "registers a thread"),
    ("shared_memory", "shared memory a block"),
    ("waves", "waves"),
    ("spill_bytes", "spills"),
    ("bank_conflicts", "bank conflicts"),
    ("conflict_share", "... of its wavefronts"),
    ("l2_hit", "L2 hit rate"),
    ("l1_hit", "L1 hit rate"),
    ("dram_bytes", "DRAM traffic"),
]
_TOP_STALLS = 3
_MARKED = 3  # changes that a comparison points at
NOT_A_TIME = "a duration under ncu is no benchmark time: each kernel runs alone, many times over, its caches flushed"


def profile(data, files=(), raw=()):
    """The text of a profile. `raw` is [(kernel, {metric: (text, unit)})] to be listed as well."""
    device = data["environment"]["device"]["name"]
    lines = [f"{data['layer']}/{data['pass']} v{data['version']:02d} {data['idea']}, {data['problem']}",
             f"{device}, commit {_commit(data['environment'])}, Nsight Compute {data['ncu'] or 'of unknown version'}, "
             f"clocks untouched{_clock(data)}", f"({NOT_A_TIME})"]
    kernels = data["kernels"]
    for at, kernel in enumerate(kernels):
        count = f"kernel {at + 1} of {len(kernels)}: " if len(kernels) > 1 else ""
        lines += ["", f"{count}{kernel['name']}  grid {_extent(kernel['grid'])}  block {_extent(kernel['block'])}"]
        lines += _figures(kernel["figures"], data)
        lines += _stalls(kernel["stalls"])
    if len(kernels) > 1:
        lines += ["", f"all {len(kernels)} kernels: sums of times and counts, means over the time of the rest"]
        lines += _figures(data["total"], data)
    lines += ["", "What this says"] + [f"  - {line}" for line in data["advice"]]
    for kernel, cells in raw:
        lines += ["", f"every metric of {kernel}"]
        lines += [f"  {metric:<90} {text} {unit}".rstrip() for metric, (text, unit) in cells.items()]
    if files:
        lines += [""] + [f"kept: {file}" for file in files]
    return "\n".join(lines)


def _figures(figures, data):
    """Rows of figures. A pipe that is idle is left out where the other one works."""
    tensor = figures["tensor"]["value"] or 0
    lines = []
    for figure, title in _ROWS:
        if figure not in figures or (figure == "fma" and tensor > 1):
            continue
        cell = figures[figure]
        text = cell["text"]
        if figure == "dram_bytes" and cell["value"] is not None and data.get("min_bytes"):
            text = f"{cell['value'] / data['min_bytes']:.2f} x the least possible"
        lines.append(f"  {title:<24} {value(cell['value'], cell['unit']):>14}   {text}".rstrip())
    return lines


def _stalls(stalls):
    if not stalls:
        return [f"  {'top stalls':<24} {'-':>14}"]
    return [f"  {'stall ' + str(at + 1):<24} {100 * stall['share']:>12.1f} %   "
            f"{stall['reason']}: a warp {advice.stall_meaning(stall['reason'])}"
            for at, stall in enumerate(stalls[:_TOP_STALLS])]


def value(number, unit):
    """With its unit; "-" for what was not measured."""
    if number is None:
        return "-"
    if unit == "s":
        return f"{1e6 * number:.2f} us"
    if unit == "%":
        return f"{number:.1f} %"
    if unit == "Hz":
        return f"{1e-9 * number:.2f} GHz"
    if unit.startswith("bytes"):
        for factor, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if abs(number) >= factor:
                return f"{number / factor:.1f} {name}"
        return f"{number:.0f} B"
    return f"{number:,.2f}" if unit == "waves" else f"{number:,.0f}"


def _extent(triple):
    return "x".join(map(str, triple)) or "?"


def _commit(environment):
    return (environment.get("commit") or "unknown")[:7] + ("+" if environment.get("dirty") else "")


def _clock(data):
    clock = data["total"]["sm_clock"]["value"]
    return f" (SM at {1e-9 * clock:.2f} GHz)" if clock else ""


def difference(a, b, units):
    """Two sides (record.Side) in columns, the largest changes marked."""
    rows = [(title, units[figure], a.figures.get(figure), b.figures.get(figure)) for figure, title in _ROWS]
    floors = [side.figures["duration"] / side.floor if side.floor and side.figures.get("duration") else None
              for side in (a, b)]
    rows.insert(1, ("... over the floor", "x", *floors))
    reasons = sorted(set(a.stalls) | set(b.stalls),
                     key=lambda reason: (-max(a.stalls.get(reason, 0), b.stalls.get(reason, 0)), reason))
    for reason in reasons[: _TOP_STALLS + 2]:
        rows.append((f"stall: {reason}", "%", *(_percent(side.stalls, reason) for side in (a, b))))
    marked = sorted((row for row in rows if _weight(row) >= 0.25), key=_weight, reverse=True)[:_MARKED]

    lines = [f"A: {a.title}", f"B: {b.title}"]
    if a.device != b.device:
        lines.append(f"A is of {a.device}, B of {b.device}: times do not compare")
    lines += [f"({NOT_A_TIME})", "", f"  {'':<26} {'A':>14} {'B':>14}   change"]
    for row in rows:
        title, unit, first, second = row
        cells = [f"{number:.2f} x" if unit == "x" and number is not None else value(number, unit)
                 for number in (first, second)]
        mark = "   <--" if row in marked else ""
        lines.append(f"  {title:<26} {cells[0]:>14} {cells[1]:>14}   {change(first, second, unit)}{mark}".rstrip())
    return "\n".join(lines)


def _percent(stalls, reason):
    """A reason that was not seen is 0 where others were."""
    return 100 * stalls.get(reason, 0.0) if stalls else None


def change(first, second, unit):
    """Points for percentages, a factor for the rest."""
    if first is None or second is None:
        return "-"
    if unit == "%":
        return f"{second - first:+.1f} points" if abs(second - first) >= 0.05 else "="
    if first == second:
        return "="
    return f"x {second / first:.2f}" if first > 0 and second > 0 else ("from none" if first == 0 else "to none")


def _weight(row):
    """How much a change stands out: doublings, or steps of 25 points."""
    _, unit, first, second = row
    if first is None or second is None or first == second:
        return 0
    if unit == "%":
        return abs(second - first) / 25
    return abs(math.log2(second / first)) if first > 0 and second > 0 else 4
