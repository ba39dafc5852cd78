"""A record's cold times as a picture: `plot.py RECORD` in the terminal, `plot.py RECORD FILE.svg` as a file.

The horizontal axis is the size that varies or, where several do, the problems in the order of their least traffic.
`./ladder bench --plot` runs this with the private Python, which has plotext and matplotlib.
"""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from cli import files, options
from cli.errors import Failure
from readme import generated
from records import record_files, sheet


@dataclass(frozen=True)
class Picture:
    title: str
    axis: str  # what is across: "n", or "problem"
    ticks: list  # the values of n, or numbers of the problems
    labels: list  # the problems, where they are across; else none
    series: dict  # {"v07_wmma bf16": [(where across, microseconds)]}, the baselines' last


def picture(record):
    """The Picture of a record of one pass. Throws Failure where nothing was timed."""
    timed = [result for result in record.results if result.times]
    if not timed:
        raise Failure("nothing was timed, so there is nothing to plot")
    shapes = list(dict.fromkeys(each.shape for each in sorted(timed, key=lambda each: each.min_bytes)))
    sizes = {shape: sheet.sizes_of(shape) for shape in shapes}
    letters = dict.fromkeys(letter for of_shape in sizes.values() for letter in of_shape)
    varying = [letter for letter in letters if len({of_shape.get(letter) for of_shape in sizes.values()}) > 1]
    one = varying[0] if len(varying) == 1 and len(shapes) > 1 else None
    across = {shape: sizes[shape][one] if one else at for at, shape in enumerate(shapes, 1)}
    several = len({result.dtype for result in timed}) > 1
    ours, baselines = {}, {}
    for result in timed:
        dtype = f" {result.dtype}" if several else ""
        name = f"v{result.version:02d}_{result.idea}{dtype}"
        ours.setdefault(name, {})[across[result.shape]] = 1e6 * result.cold
        if result.baseline_times:
            best = baselines.setdefault(f"{result.best_library or 'library'}{dtype}", {})
            best[across[result.shape]] = 1e6 * result.baseline_cold
    fixed = "" if not one else "".join(f" {word}" for word in shapes[0].split() if not word.startswith(one))
    return Picture(
        f"{timed[0].path}{fixed} on {record.device_name}",
        one or "problem",
        sorted(across.values()),
        [] if one else shapes,
        {name: sorted(points.items()) for name, points in {**ours, **baselines}.items()},
    )


def in_terminal(drawn):
    """Lines of text, as wide as the terminal; problems that have no number have one here, and a line below."""
    import plotext

    plotext.clear_figure()
    columns, rows = shutil.get_terminal_size((100, 40))
    plotext.plotsize(min(columns, 140), min(rows - 2, 34))
    for marker, (name, points) in zip("ox+*#@%&0123456789abcdefgh" * 4, drawn.series.items()):
        across, times = zip(*points)
        plotext.plot(across, times, label=name, marker=marker)
    plotext.yscale("log")
    plotext.xticks(drawn.ticks, map(str, drawn.ticks))
    if not drawn.labels:
        plotext.xscale("log")
    plotext.title(drawn.title)
    plotext.xlabel(drawn.axis)
    plotext.ylabel("us, cold")
    listed = [f"{at:4} {label}" for at, label in zip(drawn.ticks, drawn.labels)]
    return "\n".join([plotext.uncolorize(plotext.build()).rstrip(), *listed])


def as_svg(drawn):
    """The text of an SVG file."""
    figure, axes = generated.pyplot().subplots(figsize=(8, 5))
    for marker, (name, points) in zip("osD^v<>Ph*X" * 9, drawn.series.items()):
        axes.plot(*zip(*points), marker=marker, markersize=4, label=name)
    if drawn.labels:
        axes.set_xticks(drawn.ticks, drawn.labels, rotation=45, ha="right", fontsize=7)
    else:
        axes.set_xscale("log")
        axes.set_xticks(drawn.ticks, map(str, drawn.ticks))
        axes.minorticks_off()
    axes.set_yscale("log")
    axes.set_xlabel(drawn.axis)
    axes.set_ylabel("us, cold")
    axes.grid(axis="y", which="major", alpha=0.3)
    return generated.svg(figure, drawn.title, drawn.series)


def main(arguments):
    record, *file = arguments
    drawn = picture(record_files.load(Path(record)))
    if file:
        files.replace(Path(file[0]), as_svg(drawn))
    else:
        print(in_terminal(drawn))
    return 0


if __name__ == "__main__":
    sys.exit(options.run(main))
