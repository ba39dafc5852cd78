"""Markdown tables of a ladder: one line per version (summary), one line per shape (shape_table)."""

import math

from readme.ladder_groups import differ, rows_of
from records import current
from records.record_files import geometric_mean

_FIRST = ["version", "time, us"]
_ARITHMETIC = ["TFLOP/s", "of roofline", "x baseline"]
_MEMORY = ["GB/s", "of a copy", "of a streaming kernel", "x best baseline", "x untuned"]
_LAST = ["worst to best", "x before"]
_OWN_SHAPES = "own shapes"
_OWN = ", own"


def summary(groups):
    """Table with one line per version in each group, and the baseline's best plan below them.

    Columns left of "own shapes" are over the group's common shapes, those right of it over the version's own shapes. If
    both are the same for every version, the table has one set of columns.
    """
    rows = rows_of(groups)
    memory_bound = all(row.memory_bound for row in rows)
    lines = []
    for group in groups:
        if len(groups) > 1:
            lines.append({"version": f"{_name(group, groups)}, {_shapes(group)}"})
        lines += [_version_line(group, version, memory_bound) for version in group.versions]
        lines += _kind_lines(group) if memory_bound else _baseline_line(group)
    alike = all(_is_whole(group, version) for group in groups for version in group.versions)
    columns = _columns(lines, memory_bound, alike)
    return "\n".join(
        [
            _heading(groups, rows),
            "",
            _joined(name.removesuffix(_OWN) if alike else name for name in columns),
            _joined("---" if name == "version" else "---:" for name in columns),
            *(_joined(_filled(line, columns)) for line in lines),
            *absent(rows),
            *dated(rows),
            "",
            "",
        ]
    )


def _name(group, groups):
    """Label that distinguishes a group from the others: pass, dtype and set, as far as they differ."""
    passes, dtypes, sets = (differ(groups, name) for name in ("path", "dtype", "set_name"))
    words = [group.path] if passes else []
    words += [group.dtype] if dtypes or not words else []
    return f"**{' '.join(words)}**" + (f" `{group.set_name}`" if sets else "")


def _columns(lines, memory_bound, alike):
    """Names of the columns with at least one cell."""
    rates = _MEMORY if memory_bound else _ARITHMETIC
    own = [] if alike else [_OWN_SHAPES, _ratio_name(memory_bound) + _OWN]
    names = [*_FIRST, *rates, *own, *(name + _OWN for name in _LAST)]
    return [name for name in names if any(line.get(name) for line in lines)]


def _is_whole(group, version):
    """Returns True if the version has times for all problems measured in the group, and all of these are common."""
    return len(group.common) == group.num_measured == len(group.timed(version)) == len(group.of(version))


def _ratio_name(memory_bound):
    return "x best baseline" if memory_bound else "x baseline"


def _filled(line, columns):
    """A line's cells without trailing empty ones; Markdown pads them."""
    cells = [line.get(name, "") for name in columns]
    while not cells[-1]:
        cells.pop()
    return cells


def _joined(cells):
    return "| " + " | ".join(cells) + " |"


def _heading(groups, rows):
    shapes = _shapes(groups[0])
    which = "the U-Net's shapes at batch 32" if len(groups) > 1 else f"{shapes} of the U-Net at batch 32"
    which = which if groups[0].is_of_unet else f"the shapes of `{groups[0].set_name}`"
    which += "" if differ(groups, "dtype") else f" in {groups[0].dtype}"
    return f"**{rows[0].record.device_name}**, {which}, {_sources(rows)}."


def _shapes(group):
    done, all_of_them = group.num_measured, len(group.problems)
    words = "1 shape" if done == 1 else f"{done} shapes"
    text = f"{done} of the {all_of_them} shapes" if done < all_of_them else words
    return text + (f" (times: {len(group.common)})" if len(group.common) < done else "")


def _sources(rows):
    commits = sorted({row.record.short for row in rows})
    return f"records of commit{'s' if len(commits) > 1 else ''} " + ", ".join(commits)


def _version_line(group, version, memory_bound):
    rows, timed, common = group.of(version), group.timed(version), group.in_common(version)
    sign = f" {current.SIGN}" if any(row.is_dated for row in timed) else ""
    line = {"version": f"v{version:02d} {rows[0].idea.replace('_', ' ')}{sign}", _OWN_SHAPES: _checks(rows)}
    name = _ratio_name(memory_bound)
    if common:
        line |= _rates([(row, row.cold) for row in common], memory_bound)
        line[name] = _x(_ratios(common))
        if memory_bound:
            line["x untuned"] = _x([row.heuristic_cold / row.cold for row in common if row.heuristic_cold > 0])
        else:
            share = geometric_mean(row.roofline / row.cold for row in common if row.roofline > 0)
            line["of roofline"] = f"{100 * share:.0f} %" if share > 0 else ""
    ratios = _ratios(timed)
    line[name + _OWN] = _x(ratios)
    line["worst to best" + _OWN] = f"{_figure(min(ratios))} to {_figure(max(ratios))}" if len(ratios) > 1 else ""
    line["x before" + _OWN] = _figure(group.step(version))
    return line


def _ratios(rows):
    return [row.baseline_cold / row.cold for row in rows if row.baseline_cold > 0]


def _figure(ratio):
    """Text of a ratio, with about three digits; "" for nan or 0."""
    if not ratio > 0:
        return ""
    digits = 3 if ratio < 0.0095 else 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f}"


def _checks(rows):
    """Number of results that passed, "n of m" if not all did, then the counts of each other status except SKIP."""
    passed = sum(row.status == "PASS" for row in rows)
    bad = sorted({row.status for row in rows} - {"PASS", "SKIP"})
    counts = [f"{sum(row.status == status for row in rows)} {status}" for status in bad]
    return ", ".join([f"{passed} of {len(rows)}" if passed < len(rows) else f"{passed}", *counts])


def _rates(timed, memory_bound):
    """{column: cell} of time and rate, for `timed`, [(row, seconds)]."""
    cells = {"time, us": us(geometric_mean(seconds for _, seconds in timed))}
    if memory_bound:
        return cells | dict(zip(("GB/s", "of a copy", "of a streaming kernel"), streaming(timed)))
    rate = sum(row.flops for row, _ in timed) / sum(seconds for _, seconds in timed)
    return cells | {"TFLOP/s": f"{rate / 1e12:.1f}"}


def _baseline_line(group):
    against = {row.shape: row for row in group.rows if row.baseline_cold > 0}
    if not group.common or not group.common <= set(against):
        return []
    common = [(against[problem], against[problem].baseline_cold) for problem in sorted(group.common)]
    return [{"version": f"*{common[0][0].baseline}, best plan*", **_rates(common, False)}]


def _kind(plan):
    """Kind of a plan in the tables of memory-bound layers: the library; or the first two words of the plan's name if
    that begins with the library's name."""
    words = plan.name.split()
    return " ".join(words[:2]) if words[:1] == [plan.library] else plan.library


def _kinds(rows):
    """Kinds of the plans that have a time, sorted."""
    return sorted({_kind(plan) for row in rows for plan in row.plans if plan.seconds > 0})


def _kind_lines(group):
    lines = []
    for kind in _kinds(group.rows):
        times = {row.shape: (row, _of_kind(row, kind)) for row in group.rows if _of_kind(row, kind) > 0}
        if group.common and group.common <= set(times):
            lines.append({"version": f"*{kind}*", **_rates([times[problem] for problem in sorted(group.common)], True)})
    return lines


def _x(ratios):
    return _figure(geometric_mean(ratios))


def streaming(timed):
    """Cells (GB/s, percent of a copy's rate, percent of a streaming kernel's rate) for `timed`, [(row, seconds)]."""
    rate = sum(row.min_bytes for row, _ in timed) / sum(seconds for _, seconds in timed)
    copies = [row.copy_rate for row, _ in timed if row.copy_rate > 0]
    moves = [(row.streaming, seconds) for row, seconds in timed if row.streaming > 0]
    moved = f"{100 * sum(move for move, _ in moves) / sum(seconds for _, seconds in moves):.0f} %" if moves else "-"
    return f"{rate / 1e9:.0f}", f"{100 * rate / geometric_mean(copies):.0f} %" if copies else "-", moved


def _of_kind(row, kind):
    """Seconds of the row's fastest plan of that kind, or nan."""
    return min((plan.seconds for plan in row.plans if _kind(plan) == kind and plan.seconds > 0), default=math.nan)


def absent(rows):
    """Lines with the most frequent reason of `rows` for a missing baseline or a missing library; [] without reasons."""
    reasons = [row.baseline_reason for row in rows if row.baseline_reason]
    what = "Missing" if any(row.baseline_cold > 0 for row in rows) else "No baseline"
    return ["", f"{what}: {max(sorted(set(reasons)), key=reasons.count)}."] if reasons else []


def dated(rows):
    """Lines with the legend of current.SIGN; [] if no time has the sign."""
    return ["", current.LEGEND] if any(_is_timed(row) and row.is_dated for row in rows) else []


def shape_table(groups):
    """Table per group with one line per shape: microseconds of each version and of the baseline, and the best ratio."""
    rows = rows_of(groups)
    memory_bound = all(row.memory_bound for row in rows)
    heads, cells_of = _memory_columns(_kinds(rows)) if memory_bound else (["baseline"], _baseline_cell)
    lines = []
    for group in groups:
        columns = [*(f"v{version:02d}" for version in group.versions), *heads, "best x"]
        lines += [
            f"{_name(group, groups)} on {rows[0].record.device_name}, cold-cache median in us",
            "",
            "| shape | problem | " + " | ".join(columns) + " |",
            "| --- | --- |" + " ---: |" * len(columns),
        ]
        for problem, label in group.problems.items():
            here = {row.version: row for row in group.rows if row.shape == problem}
            if not here:
                continue
            timed = [row for row in here.values() if _is_timed(row)]
            ratios = [row.baseline_cold / row.cold for row in timed if row.baseline_cold > 0]
            cells = [
                *(_cell(here.get(version)) for version in group.versions),
                *cells_of(here.values(), timed),
                f"{max(ratios):.2f}" if ratios else "-",
            ]
            lines.append(f"| {label} | `{problem}` | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n" + "\n".join([*absent(rows), *dated(rows), ""]) + "\n"


def _baseline_cell(here, _):
    return [next((us(row.baseline_cold) for row in here if row.baseline_cold > 0), "-")]


def _memory_columns(kinds):
    """(headings, function for the cells): rates of the fastest version, then microseconds per kind of plan."""

    def cells(here, timed):
        fastest = min(timed, key=lambda row: row.cold, default=None)
        rates = streaming([(fastest, fastest.cold)]) if fastest else ("-", "-", "-")
        return [
            *rates,
            *(next((us(_of_kind(row, kind)) for row in here if _of_kind(row, kind) > 0), "-") for kind in kinds),
        ]

    return ["best GB/s", "of a copy", "of a streaming kernel", *kinds], cells


def _cell(row):
    if row is None:
        return ""
    return us(row.cold) + current.SIGN * row.is_dated if _is_timed(row) else row.status


def _is_timed(row):
    return row.status == "PASS" and row.cold > 0


def us(seconds):
    microseconds = 1e6 * seconds
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.1f}"
