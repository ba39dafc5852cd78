"""Puts the page together: the model as packed data for the scripts, and as plain HTML for whoever has none.

Every word that comes from a record goes through escape() here and through textContent in the scripts.
"""

import html
import re
from pathlib import Path

from records import current

from . import library, model, pack, searches

_HERE = Path(__file__).resolve().parent
_SCRIPTS = "unpack words state plots strip heat rungs kernel roofline bandwidth accuracy profiles results main".split()
_SLOT = re.compile(r"\{\{(\w+)\}\}")

# What a rate is told in, and what page.html does not say of it: of a pass that waits for arithmetic the first, of one
# that waits for memory the others. A column that no kernel fills is left out.
_RATES = {
    "TFLOP/s": "",
    "GB/s": "GB/s: every input read and every output written once.",
    "copy, %": "Copy: that rate beside the bandwidth of a large device copy, measured in the same record.",
    "streaming, %": "Streaming: time of a kernel that only moves the same bytes, in the same run, as a share of this one's.",
}

# Sign and words of each verdict, as a tile and in a sentence.
_VERDICT_WORDS = {
    "SLOW": ("▲", "slower than before"),
    "FAST": ("▼", "faster than before"),
    "SAME": ("=", "unchanged"),
    "AMBIGUOUS": ("≈", "too noisy to tell"),
    "MISSING": ("–", "timed before, not now"),
    "UNTRUSTED": ("!", "with an impossible time"),
}


def render(data, chart_js):
    """Returns the page's text."""
    apart = ("histories", "samples", "standing", "searches")
    packed = {key: value for key, value in data.items() if key not in apart}
    packed["points"] = [len(points) for points in data["histories"]]
    packed["sampleCounts"] = [[len(seconds) for seconds, _ in of_series] for of_series in data["samples"]]
    columns = [column for of_series in data["samples"] for column in of_series]
    samples = [value for seconds, _ in columns for value in seconds]
    samples += [value for _, clocks in columns for value in clocks]
    headings = _rate_headings(data["series"], data["records"])
    slots = {
        "css": _read("page.css"),
        "title": escape(_title(data)),
        "dateline": _dateline(data),
        "headline": escape(headline(data)),
        "compared": escape(_compared(data)),
        "strip": _strip(data["series"]),
        "standing": "\n".join(_standing(row, data["records"]) for row in data["standing"] if row["timed"]),
        "alone": _alone([row for row in data["standing"] if not row["timed"]]),
        "rateHeads": "".join(f'<th scope="col" class="n rate">{heading}</th>' for heading in headings),
        "dated": escape(current.LEGEND) if any(series["dated"] for series in data["series"]) else "",
        "rates": " ".join(_RATES[heading] for heading in headings),
        "rows": "\n".join(_row(series, data["records"], headings) for series in data["series"]),
        "searches": searches.shown(data["searches"]),
        "searched": "" if data["searches"] else "hidden",
        "records": "\n".join(_record(record) for record in reversed(data["records"])),
        "bad": _bad(data["bad"]),
        "empty": "" if data["series"] else _read("empty.html"),
        "state": "full" if data["series"] else "bare",
        "data": pack.text(packed),
        "histories": pack.columns(data["histories"]),
        "samples": pack.floats(samples),
        "library": chart_js,
        "license": escape(library.LICENSE),
        "scripts": "\n".join(_read(f"{name}.js") for name in _SCRIPTS),
    }
    return _SLOT.sub(lambda found: slots[found[1]], _read("page.html"))


def headline(data):
    """The page's first sentence: of the newest comparison alone. strip.js says it of what the filters leave."""
    day, counts, _ = _newest_comparison(data)
    if not data["series"]:
        return "Nothing has been measured yet."
    if not day:
        return "Nothing to compare yet: no kernel has two records of one card."
    if counts["SLOW"]:
        return f"{_kernels(counts['SLOW'])} became slower on {day}."
    suffix = f", {_kernels(counts['UNTRUSTED'])} cannot be trusted" if counts["UNTRUSTED"] else ""
    return f"No kernel became slower on {day}{suffix}."


def _newest_comparison(data):
    """(day, {verdict: kernels}, what was compared) over all devices; ("", {}, "") where nothing was."""
    records = data["records"]
    days = [
        records[entry["record"]]["created"][:10]
        for entry in data["series"]
        if entry["verdict"]["status"] in model.VERDICTS
    ]
    if days:
        return max(days), _counts(data["series"]), "records"
    live = max(data["live"].values(), key=lambda one: one["day"], default=None)
    if not live:
        return "", {}, ""
    return live["day"], live["counts"], f"live, {live['b']} beside {live['a']} in turn, {', '.join(live['paths'])}"


def _compared(data):
    """Silence about a kernel that was measured once must not read as praise."""
    _, counts, what = _newest_comparison(data)
    if not what:
        return ""
    found = [f"{counts[verdict]} {words}" for verdict, (_, words) in _VERDICT_WORDS.items() if counts.get(verdict)]
    return (
        f"{_kernels(sum(counts.values()))} compared ({what}): {', '.join(found)}. Nothing new is known of the others."
    )


def escape(value):
    return html.escape(str(value), quote=True)


def ratio(series):
    """The baseline's time over the version's, or None."""
    if series["status"] != "PASS" or not series["times"] or not series["baselineTimes"]:
        return None
    return series["baselineTimes"]["median"] / series["times"]["median"]


def rates(series, record):
    """{one of _RATES: its figure} of a kernel's newest result; {} without a time."""
    if series["status"] != "PASS" or not series["times"]:
        return {}
    seconds = series["times"]["median"]
    if not series["memoryBound"]:
        return {"TFLOP/s": series["flops"] / seconds * 1e-12} if series["flops"] else {}
    rate = series["bytes"] / seconds
    found = {"GB/s": rate * 1e-9}
    if record["copy"]:
        found["copy, %"] = 100 * rate / record["copy"]
    if series["streaming"]:
        found["streaming, %"] = 100 * series["streaming"] / seconds
    return found


def _rate_headings(series, records):
    filled = {heading for entry in series for heading in rates(entry, records[entry["record"]])}
    return [heading for heading in _RATES if heading in filled]


def _title(data):
    names = sorted({record["name"] for record in data["records"]})
    return "Ladder" + (f": kernels on {', '.join(names)}" if names else "")


def _dateline(data):
    """One line a device: when, which commit, which machine."""
    lines = []
    for device in sorted({record["device"] for record in data["records"]}):
        newest = [record for record in data["records"] if record["device"] == device][-1]
        facts = [
            newest["name"],
            f"newest record {_day(newest['created'])}",
            f"commit {newest['commit']}",
            f"driver for CUDA {newest['driver']}",
            _clock(newest),
            newest["library"],
        ]
        lines.append(
            f'<p class="dateline" data-device="{escape(device)}">'
            + " · ".join(escape(fact) for fact in facts if fact)
            + "</p>"
        )
    return "\n".join(lines)


def _clock(record):
    if not record["clock"]:
        return ""
    seen = f", {record['clockSeen'] / 1e6:.0f} MHz seen" if record["clockSeen"] else ""
    return f"SM clock up to {record['clock'] / 1e6:.0f} MHz{seen}"


def _strip(series):
    """Nothing where only zeros would stand."""
    counts = _counts(series)
    if not any(counts.values()):
        return ""
    tiles = []
    for verdict in model.VERDICTS:
        sign, words = _VERDICT_WORDS[verdict]
        tiles.append(
            f'<li><a class="tile {verdict.lower()}" data-verdict="{verdict}" href="#results">'
            f'<span class="sign" aria-hidden="true">{sign}</span> <b>{counts[verdict]}</b> '
            f'<span class="name">{verdict}</span> <span class="words">{words}</span></a></li>'
        )
    return '<ul class="strip">\n' + "\n".join(tiles) + "\n</ul>"


def _counts(series):
    return {verdict: sum(entry["verdict"]["status"] == verdict for entry in series) for verdict in model.VERDICTS}


def _standing(row, records):
    names = {record["device"]: record["name"] for record in records}
    device = f" <span class=dtype>{escape(names[row['device']])}</span>" if len(names) > 1 else ""
    figures = [
        f"<b>{row['ratio']:.2f}</b>" if row["ratio"] else "–",
        f"{row['low']:.2f} to {row['high']:.2f}",
        f"{row['timed']} of {row['problems']}" + "".join(f"<br>{word}" for word in _which(row)),
        f"{1e6 * row['seconds']:.0f}",
        f"{1e6 * row['librarySeconds']:.0f}",
    ]
    words = [escape(" or ".join(row["libraries"])), escape(" ".join(row["commits"])) + _sign(row)]
    return (
        f"<tr {_filtered(row)}><th scope=row>{_ladder(row)}{device}</th>"
        + "".join(f"<td class=n>{figure}</td>" for figure in figures)
        + f"<td class=versions>{_versions(row)}</td>"
        + "".join(f"<td>{word}</td>" for word in words)
        + "</tr>"
    )


def _which(row):
    """Words of problems that are not the U-Net's as they are."""
    if row["withoutBias"]:
        yield "without bias"
    if row["promoted"] and not row["ofUnet"]:
        yield "of perf"


def _alone(rows):
    """The promoted versions that no library was timed beside."""
    if not rows:
        return ""
    lines = "\n".join(
        f"<tr {_filtered(row)}><th scope=row>{_ladder(row)}</th><td>{_versions(row)}</td></tr>" for row in rows
    )
    return (
        f"<details><summary>{len(rows)} more, without a library's time beside them</summary>"
        f'<table class="standing"><tbody>\n{lines}\n</tbody></table></details>'
    )


def _filtered(row):
    return " ".join(f'data-{key}="{escape(row[key])}"' for key in ("device", "path", "dtype"))


def _ladder(row):
    return f"{_path(row['path'])} <span class=dtype>{escape(row['dtype'])}</span>"


def _path(path):
    """A line may end after a slash and an underscore."""
    return re.sub("([/_])", r"\1<wbr>", escape(path))


def _versions(row):
    named = ", ".join(f"{count}\u00a0×\u00a0{label.replace('_', ' ')}" for label, count in row["versions"])
    return escape(named) + ("" if row["promoted"] else " <small>recorded, not promoted</small>")


def _row(series, records, headings):
    times = series["times"] if series["status"] == "PASS" else None
    found = rates(series, records[series["record"]])
    cells = [
        f"<th scope=row>{_path(series['path'])} v{series['version']:02d} "
        f"<span class=idea>{escape(series['idea'].replace('_', ' '))}</span></th>",
        f"<td class=problem>{escape(series['shape'])}</td>",
        f"<td>{escape(series['dtype'])}</td>",
        _figure(times and times["median"] * 1e6),
        f"<td class=n>{_interval(times)}</td>",
        _figure(times and times["warm"] and times["warm"] * 1e6),
        *(_figure(found.get(heading)) for heading in headings),
        _figure(ratio(series)),
        _figure(times and series["roofline"] and 100 * series["roofline"] / times["median"]),
        f"<td class=n>{_tiny(series['error'] if series['status'] != 'SKIP' else None)}</td>",
        f'<td title="{escape(series["reason"])}">{escape(series["status"])}</td>',
        f'<td class=change title="{escape(series["verdict"]["reason"])}">{_against_previous(series["verdict"])}</td>',
        f"<td>{escape(records[series['record']]['commit'])}{_sign(series)}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _sign(entry):
    """The mark of a series or of a row of the standing."""
    return f' <abbr title="{escape(current.LEGEND)}">{current.SIGN}</abbr>' if entry["dated"] else ""


def _figure(value):
    return f"<td class=n>{figure(value)}</td>"


def figure(value):
    """Two or three digits that say something, nothing where there is nothing."""
    if value is None:
        return ""
    if 0 < value < 0.1:
        return f"{value:.2g}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _interval(times):
    if not times or times["low"] is None or times["high"] is None:
        return ""
    return f"{figure(times['low'] * 1e6)}–{figure(times['high'] * 1e6)}"


def _tiny(value):
    return "" if value is None else f"{value:.1e}"


def _against_previous(verdict):
    if verdict["status"] == model.FIRST:
        return "first"
    change = verdict.get("ratio")
    return escape(verdict["status"]) + (f" {100 * (change - 1):+.1f} %" if change else "")


def _record(record):
    measured = record["created"].replace("T", " ").rstrip("Z")
    cells = [
        record["commit"],
        record["name"],
        record["results"],
        record["library"],
        f"{record['driver']} / {record['runtime']}",
        _megahertz(record["clock"]),
        f"{record['copy'] / 1e12:.2f}" if record["copy"] else "",
        record["file"],
    ]
    failure = f"<tr class=failure><td colspan=9>{escape(record['failure'])}</td></tr>" if record["failure"] else ""
    tds = "".join(f"<td>{escape('' if cell is None else cell)}</td>" for cell in cells)
    return f"<tr><th scope=row>{escape(measured)}</th>{tds}</tr>{failure}"


def _bad(bad):
    if not bad:
        return ""
    items = "\n".join(f"<li><code>{escape(entry['file'])}</code> {escape(entry['reason'])}</li>" for entry in bad)
    count = "1 record is" if len(bad) == 1 else f"{len(bad)} records are"
    return (
        f'<aside class="bad" id="bad" role="note"><h2>{count} not shown</h2><p>They contradict themselves or '
        f"cannot be read, so nothing of them is drawn or counted.</p><ul>{items}</ul></aside>"
    )


def _megahertz(hertz):
    return f"{hertz / 1e6:.0f}" if hertz else ""


def _day(created):
    return created[:16].replace("T", " ") + " UTC"


def _kernels(count):
    return "1 kernel" if count == 1 else f"{count} kernels"


def _read(name):
    return (_HERE / name).read_text(encoding="utf-8")
