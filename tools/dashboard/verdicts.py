"""Headline of the newest comparison, news since yesterday and alerts, for all kernels that pass one filter.

Each filter's block of HTML is made here, from the same kernels throughout; the page's script only chooses among them.
"""

import math
from datetime import datetime, timedelta

from . import model
from .html_table import Html, escape, kernel_link, name_of

_WORDS = {
    "SLOW": "slower than before",
    "FAST": "faster than before",
    "SAME": "unchanged",
    "AMBIGUOUS": "too noisy to tell",
    "MISSING": "timed before, not now",
    "UNTRUSTED": "with an impossible time",
}
_NOTABLE = ("SLOW", "UNTRUSTED", "MISSING", "FAST")
_NAMED = 12  # alerts of a filter that are named; the others are counted
_STEPS = 6


def blocks(data):
    """{"device|path|dtype": HTML}; an empty path or dtype is all of them."""
    chosen = {}
    for entry in data["series"]:
        for path in ("", entry["path"]):
            for dtype in ("", entry["dtype"]):
                chosen.setdefault((entry["device"], path, dtype), []).append(entry)
    return {"|".join(key): _block(data, key, series) for key, series in chosen.items()}


def _block(data, key, series):
    device, path, _ = key
    live = data["live"].get(device)
    live = live if live and (not path or path in live["paths"]) else None
    compared = [entry for entry in series if entry["verdict"]["status"] in model.VERDICTS]
    counts = (
        live["counts"]
        if live
        else {verdict: sum(entry["verdict"]["status"] == verdict for entry in compared) for verdict in model.VERDICTS}
    )
    day = live["day"] if live else max((model.day(data["records"], entry) for entry in compared), default="")
    lead = ""
    if day:
        what = f"live, {live['b']} beside {live['a']} in turn, {', '.join(live['paths'])}" if live else "records"
        found = ", ".join(f"{counts[verdict]} {words}" for verdict, words in _WORDS.items() if counts.get(verdict))
        # Silence about a kernel that was measured once must not read as praise.
        total = _kernels(sum(counts.values()))
        lead = f"{total} compared ({what}): {found}. Nothing new is known of the others."
    return (
        f"<h1>{escape(headline(day, counts))}</h1><p class=lead>{escape(lead)}</p>"
        + _since_yesterday(data, device, series, counts, day)
        + _alerts(data, series)
    )


def headline(day, counts):
    if not day:
        return "Nothing to compare yet: no kernel has two records of one card."
    if counts.get("SLOW"):
        return f"{_kernels(counts['SLOW'])} became slower on {day}."
    untrusted = counts.get("UNTRUSTED")
    return f"No kernel became slower on {day}{f', {_kernels(untrusted)} cannot be trusted' if untrusted else ''}."


def _since_yesterday(data, device, series, counts, day):
    """Five figures of the 24 hours up to the device's newest record."""
    records = data["records"]
    newest = max(record["created"] for record in records if record["device"] == device)
    since = _a_day_before(newest)
    is_new = [records[entry["record"]]["created"] > since for entry in series]
    fresh = set().union(*(entry["records"] for entry in series))
    slow = counts.get("SLOW", 0) if day >= since[:10] else 0
    first = {}
    for entry in series:
        version = entry["path"], entry["version"]
        first[version] = min(first.get(version, "~"), records[min(entry["records"])]["created"])
    failed = sum(new and entry["status"] in ("FAIL", "UNTRUSTED") for entry, new in zip(series, is_new))
    oldest = min((model.day(records, entry) for entry in series if entry["status"] == "PASS"), default="–")
    tiles = [
        ("", sum(records[record]["created"] > since for record in fresh), "new records"),
        ("", sum(created > since for created in first.values()), "new versions"),
        ("slow", slow, "slower"),
        ("slow", failed, "failed"),
        ("", oldest, "oldest record in use"),
    ]
    items = "".join(
        f'<li class="tile {kind if value else ""}"><b>{value}</b> <span>{words}</span></li>'
        for kind, value, words in tiles
    )
    since = escape(since[:16].replace("T", " "))
    return f"<h2 class=small>Since {since} UTC, a day before the newest record</h2><ul class=strip>{items}</ul>"


def _a_day_before(created):
    try:
        day = datetime.strptime(created[:19], "%Y-%m-%dT%H:%M:%S") - timedelta(days=1)
    except ValueError:
        return created
    return day.strftime("%Y-%m-%dT%H:%M:%SZ")


def _alerts(data, series):
    """Notable verdicts, then steps of the history, each with the commits between which it happened."""
    called = [
        entry for verdict in _NOTABLE for entry in sorted(series, key=_size) if entry["verdict"]["status"] == verdict
    ]
    items = [_called(data, entry) for entry in called[:_NAMED]]
    rest = [entry["verdict"]["status"] for entry in called[_NAMED:]]
    if rest:
        counted = ", ".join(f"{rest.count(verdict)} {verdict}" for verdict in _NOTABLE if verdict in rest)
        items.append(f"and {counted} more, in the table of results")
    steps = sorted(((step, entry) for entry in series for step in entry["steps"]), key=lambda one: -one[0][0])
    for (record, before, after, last), entry in steps[:_STEPS]:
        kind = "slow" if after > before else "fast"
        items.append(f"<b class={kind}>STEP</b> {_link(entry)} {signed(after / before)} {_range(data, last, record)}")
    return f"<ul class=alerts>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""


def _size(entry):
    return -abs(math.log(entry["verdict"].get("ratio") or 1))


def _called(data, entry):
    verdict = entry["verdict"]
    said = signed(verdict["ratio"]) if verdict.get("ratio") else escape(verdict["reason"])
    range_ = _range(data, *entry["pair"]) if len(entry["pair"]) == 2 else ""
    status = verdict["status"]
    return f"<b class={status.lower()}>{status}</b> {_link(entry)} {said} {range_}"


def _link(entry):
    return Html(f'<a href="{escape(kernel_link(entry))}">{escape(name_of(entry))} {escape(entry["problem"])}</a>')


def _range(data, before, after):
    return f"<code>{escape(data['records'][before]['commit'])}..{escape(data['records'][after]['commit'])}</code>"


def signed(ratio):
    return f"{100 * (ratio - 1):+.1f} %".replace("-", "−")


def _kernels(count):
    return "1 kernel" if count == 1 else f"{count} kernels"
