"""The ladder tables and pictures of the READMEs, made from the newest records of results/.

    tools/readme/ladder_table.py            rewrites what stands between the markers, and the pictures
    tools/readme/ladder_table.py --check    changes nothing; exits 1 if a README or picture is not that of the newest records

A marker names a pass and what to show of it:

    <!-- ladder:begin conv3x3/fprop summary -->     a line a version and dtype, over the U-Net's shapes
    <!-- ladder:begin conv3x3/fprop shapes -->      a line a shape, a column a version, for each dtype
    <!-- ladder:begin conv3x3/fprop picture -->     results/<device>/ladder_<layer>_<pass>.svg
    <!-- ladder:end -->

What else README.md shows is made by front_page.py; what train/README.md shows by train_budget.py and loss_curves.py. This
runs them all.

A record that cannot be read is one line naming the file, exit 1, and nothing is rewritten.
"""

import math
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cli import files, options
from readme import front_page, loss_curves, train_budget
from readme.generated import description, is_shown
from records.record_files import BadRecord, geometric_mean, problems_of_set, read, without_dtype
from registry.listing import DTYPES

_BLOCK = re.compile(r"(<!-- ladder:begin (\S+)/(\S+) (\S+) -->\n)(.*?)(<!-- ladder:end -->)", re.DOTALL)
_SET = "unet"
_NOTHING = "*No record yet: `./ladder record {layer}/{pass_name}` on a GPU makes one.*\n"


def main(arguments):
    chosen = parse(arguments)
    try:
        rows = read(chosen.root / "results")
        texts, pictures = render(chosen.root, rows)
    except BadRecord as error:
        print(f"ladder table: {error}", file=sys.stderr)
        return 1
    status = check(chosen.root, texts, pictures) if chosen.check else write(texts, pictures)
    of_training = ["--root", str(chosen.root), *(["--check"] if chosen.check else [])]
    return max(status, train_budget.main(of_training), loss_curves.main(of_training))


def parse(arguments):
    parser = options.Parser("table", description="The tables and pictures of the READMEs, from the newest records.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if one is not that of the newest records"
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the tree to work on")
    return parser.parse_args(arguments)


def render(root, rows):
    """({README: its new text}, {picture: the series it shows})."""
    texts, pictures = {}, {}
    for readme in [root / "README.md", *sorted(root.glob("dev/**/README.md"))]:
        if not readme.exists():
            continue

        def fill(match, readme=readme):
            begin, layer, pass_name, kind, _, end = match.groups()
            if kind not in _KINDS:
                raise BadRecord(f"{readme}: marker '{kind}': one of {', '.join(_KINDS)}")
            chosen = [row for row in rows if row.path == f"{layer}/{pass_name}"]
            shapes = problems_of_set(root, layer, _SET)
            chosen = [row for row in chosen if without_dtype(row) in shapes]
            if not chosen:
                return begin + _NOTHING.format(layer=layer, pass_name=pass_name) + end
            body = ""
            for device in sorted({row.device for row in chosen}):
                of_device = [row for row in chosen if row.device == device]
                picture = root / "results" / device / f"ladder_{layer}_{pass_name}.svg"
                pictures[picture] = (f"{layer}/{pass_name} on {of_device[0].device_name}", series(of_device))
                body += _KINDS[kind](of_device, shapes, os.path.relpath(picture, readme.parent))
            return begin + body + end

        text = readme.read_text(encoding="utf-8")
        texts[readme] = _BLOCK.sub(fill, text)
    if (root / "README.md") in texts:
        names = {row.device: row.device_name for row in rows}
        texts[root / "README.md"] = front_page.filled(root, texts[root / "README.md"], names)
    return texts, pictures


def summary(rows, shapes, _):
    """A line a version and dtype, best plan of the baseline below each dtype's versions."""
    if all(row.memory_bound for row in rows):
        return _memory_summary(rows, shapes)
    lines = [
        _heading(rows, shapes),
        "",
        "| version | dtype | time, us | TFLOP/s | x baseline | worst to best | of roofline | checks |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for dtype in _dtypes(rows):
        of_dtype = [row for row in rows if row.dtype == dtype]
        for version in sorted({row.version for row in of_dtype}):
            lines.append(_summary_line([row for row in of_dtype if row.version == version]))
        against = {without_dtype(row): row for row in of_dtype if row.baseline_cold > 0}.values()
        if against:
            cold = geometric_mean(row.baseline_cold for row in against)
            rate = sum(row.flops for row in against) / sum(row.baseline_cold for row in against)
            name = next(iter(against)).baseline
            lines.append(f"| *{name}, best plan* | {dtype} | {_us(cold)} | {rate / 1e12:.1f} | 1 | | | |")
    lines += [
        "",
        "Time: geometric mean of the cold-cache medians. x baseline: geometric mean of the baseline's time / the "
        "version's time, both measured in the same run; above 1 the version is faster.",
        "",
    ]
    return "\n".join(lines)


def _heading(rows, shapes):
    done = len({without_dtype(row) for row in rows})
    of = f"{done} of the {len(shapes)}" if done < len(shapes) else f"{done}"
    return f"**{rows[0].device_name}**, {of} shapes of the U-Net at batch 32, {_sources(rows)}."


def _summary_line(rows):
    timed = [row for row in rows if row.status == "PASS" and row.cold > 0]
    checks = _checks(rows)
    name = f"v{rows[0].version:02d} {rows[0].idea.replace('_', ' ')}"
    if not timed:
        return f"| {name} | {rows[0].dtype} | | | | | | {checks} |"
    rate = sum(row.flops for row in timed) / sum(row.cold for row in timed)
    ratios = [row.baseline_cold / row.cold for row in timed if row.baseline_cold > 0]
    ratio = f"{geometric_mean(ratios):.2f}" if ratios else "-"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-"
    roofline = geometric_mean(row.roofline / row.cold for row in timed if row.roofline > 0)
    share = f"{100 * roofline:.0f} %" if roofline > 0 else "-"
    return (
        f"| {name} | {rows[0].dtype} | {_us(geometric_mean(row.cold for row in timed))} | {rate / 1e12:.1f} | {ratio} "
        f"| {spread} | {share} | {checks} |"
    )


def _checks(rows):
    counts = {}
    for row in rows:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))


def _kind(plan):
    """The kind of plans that a memory-bound layer's tables tell apart: a library's, or, where its plans' names begin with
    its own, those whose names go on alike."""
    words = plan.name.split()
    return " ".join(words[:2]) if words[:1] == [plan.library] else plan.library


def _kinds(rows):
    """Those that were timed, by name."""
    return sorted({_kind(plan) for row in rows for plan in row.plans if plan.seconds > 0})


def _memory_summary(rows, shapes):
    """As summary(), in bytes: arithmetic hides behind the memory's traffic, so its rate says nothing."""
    lines = [
        _heading(rows, shapes),
        "",
        "| version | dtype | time, us | GB/s | of a copy | of a streaming kernel | x best baseline | worst to best | x untuned "
        "| checks |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for dtype in _dtypes(rows):
        of_dtype = [row for row in rows if row.dtype == dtype]
        for version in sorted({row.version for row in of_dtype}):
            lines.append(_memory_line([row for row in of_dtype if row.version == version]))
        for kind in _kinds(of_dtype):
            times = {without_dtype(row): (row, _of_kind(row, kind)) for row in of_dtype if _of_kind(row, kind) > 0}
            if times:
                cold = geometric_mean(seconds for _, seconds in times.values())
                rate, share, moved = _streaming(times.values())
                count = "" if len(times) == len(shapes) else f"{len(times)} shapes"
                lines.append(f"| *{kind}* | {dtype} | {_us(cold)} | {rate} | {share} | {moved} | | | | {count} |")
    lines += [
        "",
        "Time: geometric mean of the cold-cache medians. GB/s: every input and every output once, in the sum of the "
        "times; of a copy: the same by what the run's own device copy moved; of a streaming kernel: the share of "
        "the times that a kernel needs which only moves those bytes. x: geometric mean of the baseline's time / the "
        "version's time in the same run, above 1 the version is faster; best is the fastest plan of all libraries, "
        "untuned what a library does where nobody has looked for a better plan.",
        *_absent(rows),
        "",
    ]
    return "\n".join(lines)


def _memory_line(rows):
    timed = [row for row in rows if row.status == "PASS" and row.cold > 0]
    name = f"v{rows[0].version:02d} {rows[0].idea.replace('_', ' ')}"
    if not timed:
        return f"| {name} | {rows[0].dtype} | | | | | | | | {_checks(rows)} |"
    rate, share, moved = _streaming([(row, row.cold) for row in timed])
    best = [row.baseline_cold / row.cold for row in timed if row.baseline_cold > 0]
    untuned = [row.heuristic_cold / row.cold for row in timed if row.heuristic_cold > 0]
    spread = f"{min(best):.2f} to {max(best):.2f}" if best else "-"
    return (
        f"| {name} | {rows[0].dtype} | {_us(geometric_mean(row.cold for row in timed))} | {rate} | {share} | {moved} "
        f"| {_x(best)} | {spread} | {_x(untuned)} | {_checks(rows)} |"
    )


def _x(ratios):
    return f"{geometric_mean(ratios):.2f}" if ratios else "-"


def _streaming(timed):
    """GB/s, the share of a copy and that of a streaming kernel, as cells, of [(row, seconds)]."""
    timed = list(timed)
    rate = sum(row.min_bytes for row, _ in timed) / sum(seconds for _, seconds in timed)
    copies = [row.copy_rate for row, _ in timed if row.copy_rate > 0]
    moves = [(row.streaming, seconds) for row, seconds in timed if row.streaming > 0]
    moved = f"{100 * sum(move for move, _ in moves) / sum(seconds for _, seconds in moves):.0f} %" if moves else "-"
    return f"{rate / 1e9:.0f}", f"{100 * rate / geometric_mean(copies):.0f} %" if copies else "-", moved


def _of_kind(row, kind):
    """Seconds of the fastest plan of that kind, or nan."""
    return min((plan.seconds for plan in row.plans if _kind(plan) == kind and plan.seconds > 0), default=math.nan)


def _absent(rows):
    """Why libraries are missing, a line each."""
    return [f"\nMissing: {reason}." for reason in sorted({row.baseline_reason for row in rows if row.baseline_reason})]


def shape_table(rows, shapes, _):
    """For each dtype: a line a shape, microseconds of every version, the baseline's, and the best ratio."""
    memory_bound = all(row.memory_bound for row in rows)
    heads, cells_of = _memory_columns(_kinds(rows)) if memory_bound else (["baseline"], _baseline_cell)
    lines = []
    for dtype in _dtypes(rows):
        of_dtype = [row for row in rows if row.dtype == dtype]
        versions = sorted({row.version for row in of_dtype})
        columns = [*(f"v{version:02d}" for version in versions), *heads, "best x"]
        lines += [
            f"**{dtype}** on {rows[0].device_name}, cold-cache median in us",
            "",
            "| shape | problem | " + " | ".join(columns) + " |",
            "| --- | --- |" + " ---: |" * len(columns),
        ]
        for problem, label in shapes.items():
            here = {row.version: row for row in of_dtype if without_dtype(row) == problem}
            if not here:
                continue
            timed = [row for row in here.values() if row.status == "PASS" and row.cold > 0]
            ratios = [row.baseline_cold / row.cold for row in timed if row.baseline_cold > 0]
            cells = [
                *(_cell(here.get(version)) for version in versions),
                *cells_of(here.values(), timed),
                f"{max(ratios):.2f}" if ratios else "-",
            ]
            lines.append(f"| {label} | `{problem}` | " + " | ".join(cells) + " |")
        lines.append("")
    lines += _absent(rows) if memory_bound else []
    return "\n".join(lines).rstrip("\n") + "\n\n"


def _baseline_cell(here, _):
    return [next((_us(row.baseline_cold) for row in here if row.baseline_cold > 0), "-")]


def _memory_columns(kinds):
    """Headings, and what stands below them: the rate of the fastest version, and the kinds of plans apart."""

    def cells(here, timed):
        fastest = min(timed, key=lambda row: row.cold, default=None)
        streaming = _streaming([(fastest, fastest.cold)]) if fastest else ("-", "-", "-")
        return [
            *streaming,
            *(next((_us(_of_kind(row, kind)) for row in here if _of_kind(row, kind) > 0), "-") for kind in kinds),
        ]

    return ["best GB/s", "of a copy", "of a streaming kernel", *kinds], cells


def _cell(row):
    if row is None:
        return ""
    return _us(row.cold) if row.status == "PASS" and row.cold > 0 else row.status


def picture_link(rows, _, path):
    if not series(rows):
        return "*No baseline was measured, so there is no picture.*\n\n"
    return f"![{rows[0].path} on {rows[0].device_name}: time of each version against the baseline]({path})\n\n"


_KINDS = {"summary": summary, "shapes": shape_table, "picture": picture_link}


def series(rows):
    """{dtype: [(version, idea, time / baseline's time)]} of the versions that were timed beside a baseline."""
    out = {}
    for dtype in _dtypes(rows):
        points = []
        for version in sorted({row.version for row in rows if row.dtype == dtype}):
            timed = [
                row
                for row in rows
                if row.dtype == dtype
                and row.version == version
                and row.status == "PASS"
                and row.cold > 0
                and row.baseline_cold > 0
            ]
            if timed:
                points.append((version, timed[0].idea, geometric_mean(row.cold / row.baseline_cold for row in timed)))
        if points:
            out[dtype] = points
    return out


def write(texts, pictures):
    for path, (title, data) in pictures.items():
        if data and not is_shown(path, title, data):
            files.replace(path, draw(title, data))
    for path, text in texts.items():
        if text != _text(path):
            files.replace(path, text)
    return 0


def check(root, texts, pictures):
    stale = [path for path, text in texts.items() if text != _text(path)]
    stale += [path for path, (title, data) in pictures.items() if data and not is_shown(path, title, data)]
    for path in stale:
        print(
            f"ladder table: {path.relative_to(root)} is not that of the newest records; run ./ladder table",
            file=sys.stderr,
        )
    return 1 if stale else 0


def draw(title, data):
    """The picture as SVG text: a point a version, height the time in units of the baseline's, on a log axis."""
    import io

    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "ladder"  # the same figures give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"
    ideas = {version: idea for points in data.values() for version, idea, _ in points}
    ticks = {version: at for at, version in enumerate(sorted(ideas))}
    figure, axes = plt.subplots(figsize=(1.5 + 1.05 * max(len(ticks), 4), 4.4))
    for marker, (dtype, points) in zip("osD^v", data.items()):
        axes.plot(
            [ticks[version] for version, _, _ in points], [ratio for _, _, ratio in points], marker=marker, label=dtype
        )
        version, _, ratio = points[-1]
        axes.annotate(f"{ratio:.2f}", (ticks[version], ratio), textcoords="offset points", xytext=(6, 4), fontsize=8)
    axes.axhline(1, color="black", linewidth=1, linestyle="--")
    axes.annotate("baseline's best plan", (0, 1), textcoords="offset points", xytext=(0, -11), fontsize=8)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylabel("time / baseline's time (lower is faster)")
    axes.set_xticks(
        list(ticks.values()), [f"v{version:02d}\n" + ideas[version].replace("_", "\n") for version in ticks], fontsize=8
    )
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Description": description(title, data)})
    plt.close(figure)
    return out.getvalue()


def _dtypes(rows):
    return sorted({row.dtype for row in rows}, key=lambda dtype: (*DTYPES, dtype).index(dtype))


def _sources(rows):
    commits = sorted({row.commit[:10] + ("+" if row.dirty else "") for row in rows})
    return f"records of commit{'s' if len(commits) > 1 else ''} " + ", ".join(commits)


def _us(seconds):
    microseconds = 1e6 * seconds
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.1f}"


def _text(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(options.run(main))
