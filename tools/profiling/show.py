"""Text of a profile: the important figures with their meanings. Text of two profiles side by side."""

import math

from cli.columns import aligned

from . import advice, record

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
    ("l2_hit", "L2 hit rate"),
    ("l1_hit", "L1 hit rate"),
    ("dram_bytes", "DRAM traffic"),
]
_TOP_STALLS = 3
_MARKED = 6  # largest changes that a comparison marks
# Rows that follow from another row, so a comparison does not mark them.
_CONSEQUENCES = ("... over the lower bound", "... of its wavefronts", "waves")
NOT_A_TIME = "a duration under ncu is no benchmark time: each kernel runs alone, many times over, its caches flushed"


def profile(data, files=(), raw=()):
    """Text of a profile. With several kernels: a table of them, and figures of the longest, or of all with `raw`.

    `raw`: [(kernel's name, {metric: (text, unit)})] to list too.
    """
    device = data["environment"]["device"]["name"]
    lines = [
        f"{data['layer']}/{data['pass']} v{data['version']:02d} {data['idea']}, {data['problem']}",
        f"{device}, commit {_commit(data['environment'])}, Nsight Compute {data['ncu'] or 'of unknown version'}, "
        f"clocks untouched{_clock(data)}",
        f"({NOT_A_TIME})",
    ]
    kernels = data["kernels"]
    if len(kernels) == 1:
        lines += _kernel(kernels[0], data)
    else:
        lines += ["", f"{len(kernels)} kernels"] + _table(kernels)
        lines += ["", "all of them: sums of times and counts, the largest of a block's wants, else means over the time"]
        lines += _figures(data["total"], data, "total")
        chosen = kernels if raw else [record.heaviest(data)]
        for kernel in chosen:
            lines += _kernel(kernel, data)
    lines += ["", "What this says"] + [f"  - {line}" for line in data["advice"]]
    for kernel, cells in raw:
        lines += ["", f"every metric of {kernel}"]
        lines += [f"  {metric:<90} {text} {unit}".rstrip() for metric, (text, unit) in cells.items()]
    if files:
        lines += [""] + [f"kept: {file}" for file in files]
    return "\n".join(lines)


def _kernel(kernel, data):
    title = f"{kernel['name']}  grid {_extent(kernel['grid'])}  block {_extent(kernel['block'])}"
    whole = "total" if len(data["kernels"]) == 1 else "part"
    return ["", title] + _figures(kernel["figures"], data, whole) + _stalls(kernel["stalls"])


def _figures(figures, data, of):
    """Rows of figures; `of` is "total" or "part" of the launch. Omits the FMA pipe if the tensor pipe is busier."""
    cells = {figure: cell["value"] for figure, cell in figures.items()}
    lines = []
    for figure, title in _ROWS:
        if figure == "fma" and (cells["tensor"] or 0) > max(5, cells["fma"] or 0):
            continue
        number, unit, text = cells[figure], figures[figure]["unit"], figures[figure]["text"]
        if number is None and of == "total" and len(data["kernels"]) > 1:
            continue
        if figure == "dram_bytes" and number is not None and of == "total" and data.get("min_bytes"):
            ratio = number / data["min_bytes"]
            text = f"{ratio:.2f} x the least possible" + (": the rest stays in L2" if ratio < 1 else "")
        lines.append(f"  {title:<24} {value(number, unit):>14}   {text}".rstrip())
    return lines


def _table(kernels):
    """Table with a row per kernel name, over all its runs."""
    names = list(dict.fromkeys(kernel["name"] for kernel in kernels))
    whole = sum(kernel["figures"]["duration"]["value"] or 0 for kernel in kernels)
    rows = [("kernel", "runs", "time", "share", "SM", "DRAM", "L2", "tensor", "FMA", "occupancy", "top stall")]
    for name in names:
        runs = [kernel for kernel in kernels if kernel["name"] == name]
        longest = max(runs, key=lambda kernel: kernel["figures"]["duration"]["value"] or 0)
        time = sum(kernel["figures"]["duration"]["value"] or 0 for kernel in runs)
        percents = (
            value(longest["figures"][figure]["value"], "%")
            for figure in ("sm", "dram", "l2", "tensor", "fma", "occupancy")
        )
        stall = longest["stalls"][0]["reason"] if longest["stalls"] else "-"
        share = value(100 * time / whole if whole else None, "%")
        rows.append((name.split("<")[0], str(len(runs)), value(time, "s"), share, *percents, stall))
    return ["  " + line for line in aligned(rows, right=range(1, 10))]


def _stalls(stalls):
    if not stalls:
        return [f"  {'top stalls':<24} {'-':>14}"]
    return [
        f"  {'stall ' + str(at + 1):<24} {100 * stall['share']:>12.1f} %   "
        f"{stall['reason']}: a warp {advice.stall_meaning(stall['reason'])}"
        for at, stall in enumerate(stalls[:_TOP_STALLS])
    ]


def value(number, unit):
    """Text of a number with its unit; "-" for None, not measured."""
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
    """Text of two sides (record.Side) in columns, with the largest changes marked."""
    rows = [(title, units[figure], a.figures.get(figure), b.figures.get(figure)) for figure, title in _ROWS]
    bounds = [
        side.figures["duration"] / side.lower_bound if side.lower_bound and side.figures.get("duration") else None
        for side in (a, b)
    ]
    rows.insert(1, ("... over the lower bound", "x", *bounds))
    rows.insert(
        1 + next(at for at, row in enumerate(rows) if row[0] == "bank conflicts"),
        ("... of its wavefronts", "%", *(side.figures.get("conflict_share") for side in (a, b))),
    )
    reasons = sorted(
        set(a.stalls) | set(b.stalls),
        key=lambda reason: (-max(a.stalls.get(reason, 0), b.stalls.get(reason, 0)), reason),
    )
    for reason in reasons[: _TOP_STALLS + 2]:
        rows.append((f"stall: {reason}", "%", *(_percent(side.stalls, reason) for side in (a, b))))
    marked = sorted((row for row in rows if _weight(row) >= 0.5), key=_weight, reverse=True)[:_MARKED]

    lines = [f"A: {a.title}", f"B: {b.title}"]
    if a.device != b.device:
        lines.append(f"A is of {a.device}, B of {b.device}: times do not compare")
    lines += [f"({NOT_A_TIME})", "", f"  {'':<26} {'A':>14} {'B':>14}   change"]
    for row in rows:
        title, unit, first, second = row
        cells = [
            f"{number:.2f} x" if unit == "x" and number is not None else value(number, unit)
            for number in (first, second)
        ]
        mark = "   <--" if row in marked else ""
        lines.append(f"  {title:<26} {cells[0]:>14} {cells[1]:>14}   {change(first, second, unit)}{mark}".rstrip())
    return "\n".join(lines)


def _percent(stalls, reason):
    """Percent of a stall reason; 0 if only others were seen, None without any stalls."""
    return 100 * stalls.get(reason, 0.0) if stalls else None


def change(first, second, unit):
    """Text of a change: percentage points for percentages, else a factor."""
    if first is None or second is None:
        return "-"
    if unit == "%":
        return f"{second - first:+.1f} points" if abs(second - first) >= 0.05 else "="
    if first == second:
        return "="
    return f"x {second / first:.2f}" if first > 0 and second > 0 else ("from none" if first == 0 else "to none")


def _weight(row):
    """Size of a change, to rank it: in doublings, or in steps of 10 percentage points."""
    title, unit, first, second = row
    if first is None or second is None or first == second or title in _CONSEQUENCES:
        return 0
    if unit == "%":
        return abs(second - first) / 10
    return abs(math.log2(second / first)) if first > 0 and second > 0 else 4
