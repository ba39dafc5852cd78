"""The ladder of each pass and type: every version beside the library, and what each step bought."""

from .html_table import Html, escape, figure, filtered, geomean, kernel_link, micros, path_of, size, table
from .model import is_passed, rate_unit, ratio, work


def groups(data):
    """{(device, path, dtype): {version: its series}}, in the order of versions."""
    found = {}
    for entry in data["series"]:
        found.setdefault((entry["device"], entry["path"], entry["dtype"]), {}).setdefault(entry["version"], []).append(
            entry
        )
    return {key: dict(sorted(versions.items())) for key, versions in sorted(found.items())}


def heat(ladders):
    """A row a ladder, a column a version; blue beats the library."""
    columns = sorted({version for versions in ladders.values() for version in versions})
    rows = [
        (
            [Html(f"{path_of(path)} <span class=dtype>{escape(dtype)}</span>")]
            + [_cell(versions, version) for version in columns],
            filtered({"device": device, "path": path, "dtype": dtype}),
        )
        for (device, path, dtype), versions in ladders.items()
    ]
    return table(["", *(f"v{version:02d}" for version in columns)], rows, 'class="heat"')


def _cell(versions, version):
    series = versions.get(version)
    if not series:
        return ""
    shapes = len({entry["shape"] for of in versions.values() for entry in of})
    ratios = [value for value in map(ratio, series) if value]
    failed = [entry for entry in series if entry["status"] in ("FAIL", "UNTRUSTED")]
    one = (failed or [entry for entry in series if ratio(entry)] or series)[0]
    mean, limit = geomean(ratios), geomean([limit_share(entry) for entry in series if is_passed(entry)])
    if not mean and not failed and not limit:
        return Html("<span>–</span>")
    said, words = figure(mean), f"{figure(mean)} times the library's speed ({one['library']})"
    if not mean and limit:
        said, words = f"{100 * limit:.0f} % of {_limit(one)}", f"{100 * limit:.0f} % of the {_limit(one)}, no library"
    if failed:
        said, words = f"{said} ✕", f"{words}, {len(failed)} failed"
    few = f"{len(ratios)} of {shapes}" if ratios and len(ratios) < shapes else ""
    if few:
        words += f", over {few} shapes"
    tint = f"{100 * min(1, abs(mean - 1)):.0f}%" if mean else "0%"
    kind = ("faster" if mean > 1 else "slower") if mean else ""
    reason = "" if mean else one["baselineReason"]
    why = f' title="no baseline: {escape(reason)}"' if reason else ""
    return Html(
        f'<a class="{kind}{" failed" if failed else ""}" style="--share:{tint}" href="{escape(kernel_link(one))}" '
        f'aria-label="{escape(f"v{version:02d}: {words}")}"{why}>{said}<small>{few}</small></a>'
    )


def limit_share(entry):
    """Share of the copy bandwidth where the pass waits for memory, else of the card's limit."""
    seconds = entry["times"]["median"]
    if entry["memoryBound"] and entry["copy"]:
        return entry["bytes"] / entry["copy"] / seconds
    return entry["roofline"] and entry["roofline"] / seconds


def _limit(entry):
    return "copy" if entry["memoryBound"] and entry["copy"] else "limit"


def bars(key, versions):
    """A ladder's chart for page.js: [version, cold, warm] of each, beside the library or, without one, the card's limit."""
    device, path, dtype = key
    series = [entry for of in versions.values() for entry in of]
    libraries = sorted({entry["library"] for entry in series if entry["baseline"]})
    rows = []
    for version, of in versions.items():
        timed = list(filter(is_passed, of))
        cold = geomean([ratio(entry) if libraries else limit_share(entry) for entry in timed])
        warm = geomean(
            [
                entry["baselineTimes"]["warm"] / entry["times"]["warm"]
                for entry in timed
                if entry["times"]["warm"] and (entry["baselineTimes"] or {}).get("warm")
            ]
        )
        rows.append([f"v{version:02d} {of[0]['idea'].replace('_', ' ')}", cold, warm])
    limit = "copy bandwidth" if _limit(series[0]) == "copy" else "card's limit"
    label = "times the library's speed, cold and warm" if libraries else f"share of the {limit}"
    words = f"{path} in {dtype}, over {len({entry['shape'] for entry in series})} shapes."
    if libraries:
        words += f" A bar that crosses the line at 1 beats the best plan of {' and '.join(libraries)}."
    return {"device": device, "path": path, "dtype": dtype, "label": label, "lead": words, "rows": rows}


def rungs(data, key, versions):
    """The table of a ladder's steps."""
    device, path, dtype = key
    all_words = data["ladders"][path]
    series = next(iter(versions.values()))
    with_copy, with_streaming = (
        any(entry[name] for of in versions.values() for entry in of if entry["memoryBound"])
        for name in ("copy", "streaming")
    )
    heads = ["", "what changed", "#cold, µs", "#warm, µs", f"#{rate_unit(series[0])}"]
    heads += ["#of copy"] * with_copy + ["#of a streaming kernel"] * with_streaming
    heads += ["#step", "#registers", "#static smem", "#spills"]
    rows = []
    before = None
    for version, of in versions.items():
        words = all_words.get(version, {})
        timed = list(filter(is_passed, of))
        parent = versions.get(words.get("parent")) or before
        before = of
        cold = geomean([entry["times"]["median"] for entry in timed])
        warm = geomean([entry["times"]["warm"] for entry in timed])
        total = sum(entry["times"]["median"] for entry in timed)
        rate = figure(sum(work(entry) or 0 for entry in timed) / total) if total else "–"
        shares = [_share(timed, lambda entry: entry["copy"] and entry["bytes"] / entry["copy"])] * with_copy
        shares += [_share(timed, lambda entry: entry["streaming"])] * with_streaming
        kernels = next((entry["kernels"] for entry in of if entry["kernels"]), None)
        found = [kernels["registers"], size(kernels["smem"]), size(kernels["spills"])] if kernels else ["–"] * 3
        link = Html(f'<a href="{escape(kernel_link((timed or of)[0]))}">v{version:02d}</a>')
        what = _what_changed(of, words)
        rows.append([link, what, micros(cold) or "–", micros(warm) or "–", rate, *shares, _step(parent, timed), *found])
    where = filtered({"device": device, "path": path, "dtype": dtype})
    return f'<div class="scroll of-ladder"{where}>{table(heads, rows, "class=rungs")}</div>'


def _share(timed, seconds):
    """The share of the summed time of all that have it, in words."""
    those = [(seconds(entry), entry["times"]["median"]) for entry in timed if seconds(entry)]
    return f"{100 * sum(least for least, _ in those) / sum(own for _, own in those):.0f} %" if those else "–"


def _step(parent, timed):
    """Times as fast as the version it was made from, over the shapes that both did."""
    before = {entry["shape"]: entry["times"]["median"] for entry in parent or () if is_passed(entry)}
    step = geomean([before[entry["shape"]] / entry["times"]["median"] for entry in timed if entry["shape"] in before])
    kind = "fast" if step and step > 1.02 else "slow" if step and step < 0.98 else ""
    return Html(f'<span class="{kind}">× {figure(step)}</span>') if step else ""


def _what_changed(of, words):
    """The header comment's words, and the checks that did not pass."""
    others = "; ".join(
        dict.fromkeys(f"{one['status']} {one['shape']}: {one['reason']}" for one in of if one["status"] != "PASS")
    )
    parts = [("Why", words.get("why")), ("Needs", words.get("needs")), ("Not passed", others)]
    more = "".join(f"<p><b>{name}</b> {escape(text)}</p>" for name, text in parts if text)
    details = f"<details><summary>why it should help</summary>{more}</details>" if more else ""
    idea = words.get("idea") or of[0]["idea"].replace("_", " ")
    return Html(f"{escape(idea)}{details}")
