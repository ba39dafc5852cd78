"""Puts the page together: everything that is text or a table as HTML, and the charts' data for page.js."""

import re
from pathlib import Path

from records import current

from . import kernels, ladders, model, pack, profiles, searches, verdicts
from .html_table import Html, escape, figure, filtered, kernel_link, micros, name_of, path_of, table

_HERE = Path(__file__).resolve().parent
_SLOT = re.compile(r"\{\{(\w+)\}\}")

# Columns of rates, with what page.html does not say of each. One that no kernel fills is left out.
_RATES = {
    "TFLOP/s": "",
    "GB/s": "GB/s: every input read and every output written once.",
    "copy, %": "Copy: that rate beside the bandwidth of a large device copy, measured in the same record.",
    "streaming, %": "Streaming: time of a kernel that only moves the same bytes, in the same run, as a share of this one's.",
}


def render(data, plotly, license_text=""):
    """Returns the page's text."""
    of_ladders = ladders.groups(data)
    blocks = verdicts.blocks(data)
    rows = data["standing"]
    rates = [heading for heading in _RATES if any(heading in model.rates(entry) for entry in data["series"])]
    packed = {"records": data["records"], "rows": [kernels.row(entry, data["records"]) for entry in data["series"]]}
    packed["more"] = [_more(*one, data["records"]) for one in zip(data["series"], data["histories"], data["samples"])]
    packed["verdicts"] = blocks
    packed["bars"] = [ladders.bars(*ladder) for ladder in of_ladders.items()]
    newest = data["records"][-1]["device"] if data["records"] else ""
    timed = [_standing(row, data["records"]) for row in rows if row["timed"]]
    heads = ["ladder", "#× library", "#worst to best", "#problems", "#ours, µs", "#library, µs"]
    slots = {
        "css": _read("page.css"),
        "title": escape(_title(data)),
        "dateline": _datelines(data),
        "verdict": blocks.get(f"{newest}||") or "<h1>Nothing has been measured yet.</h1>",
        "standing": table([*heads, "promoted versions", "library", "measured at"], timed, 'class="standing"'),
        "alone": _alone([row for row in rows if not row["timed"]]),
        "heat": ladders.heat(of_ladders),
        "rungs": "\n".join(ladders.rungs(data, *ladder) for ladder in of_ladders.items()),
        "profiles": profiles.shown(data["profiles"]),
        "dated": escape(current.LEGEND) if any(series["dated"] for series in data["series"]) else "",
        "rates": " ".join(_RATES[heading] for heading in rates),
        "results": _results(data, rates),
        "searches": searches.shown(data["searches"]),
        "searched": "" if data["searches"] else "hidden",
        "records": _records(data["records"]),
        "bad": _bad(data["bad"]),
        "empty": "" if data["series"] else _read("empty.html"),
        "state": "full" if data["series"] else "bare",
        "data": pack.text(packed),
        "plotly": pack.text(plotly),
        "license": escape(license_text),
        "script": _read("page.js"),
    }
    return _SLOT.sub(lambda found: slots[found[1]], _read("page.html"))


def _more(series, points, samples, records):
    """The data of a kernel's charts that its line of a download lacks."""
    return {
        **{name: series[name] for name in ("shape", "memoryBound", "library", "steps", "timed")},
        "changes": [change[:3] for change in series["changes"]],
        "history": pack.history(points),
        "samples": [[float(f"{1e6 * seconds:.5g}") for seconds in side] for side in samples],
        "html": kernels.shown(series),
        "notes": kernels.notes(series, points, records),
    }


def _title(data):
    names = sorted({record["name"] for record in data["records"]})
    return "Ladder" + (f": kernels on {', '.join(names)}" if names else "")


def _datelines(data):
    """One line a device: when, which commit, which machine."""
    newest = {record["device"]: record for record in data["records"]}
    return "\n".join(
        f'<p class="dateline" data-device="{escape(device)}">{escape(" · ".join(filter(None, _facts(record))))}</p>'
        for device, record in sorted(newest.items())
    )


def _facts(record):
    measured = f"newest record {record['created'][:16].replace('T', ' ')} UTC"
    seen = f", {_megahertz(record['clockSeen'])} MHz seen" if record["clockSeen"] else ""
    clock = f"SM clock up to {_megahertz(record['clock'])} MHz{seen}" if record["clock"] else ""
    driver = f"driver for CUDA {record['driver']}"
    return record["name"], measured, f"commit {record['commit']}", driver, clock, record["library"]


def _standing(row, records):
    names = {record["device"]: record["name"] for record in records}
    device = f" <span class='dtype unscripted'>{escape(names[row['device']])}</span>" if len(names) > 1 else ""
    problems = [f"{row['timed']} of {row['problems']}"]
    problems += ["without bias"] * row["withoutBias"] + ["of perf"] * (row["promoted"] and not row["ofUnet"])
    return [
        Html(_ladder(row) + device),
        Html(f"<b>{row['ratio']:.2f}</b>") if row["ratio"] else "–",
        f"{row['low']:.2f} to {row['high']:.2f}",
        Html("<br>".join(problems)),
        f"{1e6 * row['seconds']:.0f}",
        f"{1e6 * row['librarySeconds']:.0f}",
        _versions(row),
        " or ".join(row["libraries"]),
        Html(escape(" ".join(row["commits"])) + _sign(row)),
    ], filtered(row)


def _alone(rows):
    """The promoted versions that no library was timed beside."""
    if not rows:
        return ""
    lines = [([_ladder(row), _versions(row)], filtered(row)) for row in rows]
    summary = f"<summary>{len(rows)} more, without a library's time beside them</summary>"
    shown = table(["ladder", "promoted versions"], lines, 'class="standing"')
    return f"<details>{summary}{shown}</details>"


def _ladder(row):
    return Html(f"{path_of(row['path'])} <span class=dtype>{escape(row['dtype'])}</span>")


def _versions(row):
    named = ", ".join(f"{count}\u00a0×\u00a0{label.replace('_', ' ')}" for label, count in row["versions"])
    return Html(escape(named) + ("" if row["promoted"] else " <small>recorded, not promoted</small>"))


def _results(data, rates):
    heads = ["kernel", "problem", "type", "#cold, µs", "#95 %", "#warm, µs", *(f"#{heading}" for heading in rates)]
    heads += ["#× library", "#roof, %", "#error", "check", "to last record", "commit"]
    return table(heads, [_result(entry, data, rates) for entry in data["series"]], 'id="table"')


def _result(series, data, headings):
    times = series["times"] if series["status"] == "PASS" else None
    found = model.rates(series)
    idea = escape(series["idea"].replace("_", " "))
    link = f'<a href="{escape(kernel_link(series))}">{path_of(series["path"])} v{series["version"]:02d}</a>'
    error = series["error"] if series["status"] != "SKIP" else None
    verdict = series["verdict"]
    cells = [
        Html(f"{link} <span class=idea>{idea}</span>"),
        series["shape"],
        series["dtype"],
        micros(times and times["median"]),
        _interval(times),
        micros(times and times["warm"]),
        *(figure(found.get(heading)) for heading in headings),
        figure(model.ratio(series)),
        figure(times and series["roofline"] and 100 * series["roofline"] / times["median"]),
        "" if error is None else f"{error:.1e}",
        Html(f'<span title="{escape(series["reason"])}">{escape(series["status"])}</span>'),
        Html(f'<span title="{escape(verdict["reason"])}">{_against_previous(verdict)}</span>'),
        Html(escape(data["records"][series["record"]]["commit"]) + _sign(series)),
    ]
    words = " ".join([name_of(series), series["idea"], series["problem"], *_names(data, series)])
    return cells, f' data-words="{escape(words)}"'


def _names(data, series):
    """The sets of shapes.txt that hold the problem, as "set:unet", and its names there."""
    for name, problems in data["shapes"].get(series["path"].split("/")[0], {}).items():
        if series["shape"] in problems:
            yield from (f"set:{name}", problems[series["shape"]])


def _sign(entry):
    """The mark of a series or of a row of the standing."""
    return f' <abbr title="{escape(current.LEGEND)}">{current.SIGN}</abbr>' if entry["dated"] else ""


def _interval(times):
    if not times or times["low"] is None or times["high"] is None:
        return ""
    return f"{micros(times['low'])}–{micros(times['high'])}"


def _against_previous(verdict):
    if verdict["status"] == model.FIRST:
        return "first"
    change = verdict.get("ratio")
    return escape(verdict["status"]) + (f" {100 * (change - 1):+.1f} %" if change else "")


def _records(records):
    heads = [
        "measured",
        "commit",
        "device",
        "results",
        "library",
        "driver / CUDA",
        "SM clock, MHz",
        "copy, TB/s",
        "file",
    ]
    rows = []
    for record in reversed(records):
        rows.append(
            [
                record["created"].replace("T", " ").rstrip("Z"),
                record["commit"],
                record["name"],
                record["results"],
                record["library"],
                f"{record['driver']} / {record['runtime']}",
                _megahertz(record["clock"]),
                f"{record['copy'] / 1e12:.2f}" if record["copy"] else "",
                record["file"] + (f": {record['failure']}" if record["failure"] else ""),
            ]
        )
    return table(heads, rows)


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


def _read(name):
    return (_HERE / name).read_text(encoding="utf-8")
