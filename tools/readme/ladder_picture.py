"""The picture of a ladder: each version's time in units of the baseline's."""

from readme import generated
from readme.ladder_groups import differ
from records.record_files import geometric_mean

_FEW = ", fewer shapes"


def pictures(groups):
    """{file's name: (title, series)}, one a pass, of the groups of one device."""
    found = {}
    for path in sorted({group.path for group in groups}):
        of_pass = [group for group in groups if group.path == path]
        title = f"{path} on {of_pass[0].rows[0].record.device_name}"
        found[f"ladder_{path.replace('/', '_')}.svg"] = (title, series(of_pass))
    return found


def series(groups):
    """{group: [(version, idea, time / baseline's time)]} of the versions that were timed beside a baseline.

    Versions with all of a group's common shapes are one series, the others, each over its own shapes, another.
    """
    several = differ(groups, "set_name")
    out = {}
    for group in groups:
        name = group.dtype + (f" {group.set_name}" if several else "")
        for version in group.versions:
            rows = group.in_common(version)
            key = name if rows else name + _FEW
            timed = [row for row in rows or group.timed(version) if row.baseline_cold > 0]
            if timed:
                ratio = geometric_mean(row.cold / row.baseline_cold for row in timed)
                out.setdefault(key, []).append((version, timed[0].idea, ratio))
    return out


def draw(title, data):
    """The picture as SVG text: a point a version, height the time in units of the baseline's, on a log axis."""
    ideas = {version: idea for points in data.values() for version, idea, _ in points}
    ticks = {version: at for at, version in enumerate(sorted(ideas))}
    figure, axes = generated.pyplot().subplots(figsize=(1.5 + 1.05 * max(len(ticks), 4), 4.4))
    for marker, (name, points) in zip("osD^v<>P", data.items()):
        line = "none" if name.endswith(_FEW) else "-"  # points of different shapes are no line
        axes.plot(
            [ticks[version] for version, _, _ in points],
            [ratio for _, _, ratio in points],
            marker=marker,
            linestyle=line,
            label=name,
        )
        version, _, ratio = points[-1]
        axes.annotate(f"{ratio:.2f}", (ticks[version], ratio), textcoords="offset points", xytext=(6, 4), fontsize=8)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.annotate("baseline's best plan", (0, 1), textcoords="offset points", xytext=(0, -11), fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("time / baseline's time (lower is faster)")
    axes.set_xticks(
        list(ticks.values()), [f"v{version:02d}\n" + ideas[version].replace("_", "\n") for version in ticks], fontsize=8
    )
    axes.grid(axis="y", which="major", alpha=0.3)
    return generated.svg(figure, title, data)
