"""Each ladder's standing against the library, as one ratio: the library's time over ours, summed over all problems.

Our times are those of the promoted versions in runtime/promoted/<device>.txt, for the U-Net's problems, or for the set
perf of a layer outside the U-Net. On the dashboard, the best recorded version represents a ladder without promoted
versions. README.md shows promoted() of the U-Net alone. No HTML here.
"""

from collections import Counter

from records import promotion
from registry import listing
from registry.listing import DTYPES
from registry.selection import dtype_of, without_dtype

# Share of a ladder's problems that must have times for the ladder to get a ratio.
_LEAST_COVERAGE = 0.5


def rows(root, series, records):
    """[dict], one row per device, pass and dtype. `series`, `records`: those of the page's data (model.py)."""
    ladders = {}
    for entry in series:
        ladders.setdefault((entry["device"], entry["path"], entry["dtype"]), []).append(entry)
    dated = {
        (entry["device"], entry["path"], entry["problem"], f"v{entry['version']:02d}_{entry['idea']}")
        for entry in series
        if entry["dated"]
    }
    tables = {device: promoted(root, device, dated) for device, _, _ in ladders}
    found = []
    for device, path, dtype in sorted(ladders, key=_order):
        row = tables[device].get((path, dtype)) or _recorded(ladders[device, path, dtype], records)
        if row:
            found.append({"device": device, "path": path, "dtype": dtype, **row})
    return found


def promoted(root, device, dated=()):
    """{(path, dtype): its row} of the promotion table, from the lines whose problem is in the layer's sets of tables.
    `dated`: (device, path, problem, version's label) of results that may not be of today's machine code."""
    _, _, table = promotion.table_of(root, device)
    sets, lines = {}, {}
    for (path, problem), cells in table.items():
        layer = path.split("/")[0]
        if layer not in sets:
            sets[layer] = listing.sets_of_tables(root, layer)
        if any(without_dtype(problem) in cases.values() for cases in sets[layer].values()):
            lines.setdefault(path, []).append(cells)
    return {
        (path, dtype): {
            "ofUnet": any(map(listing.is_of_unet, sets[path.split("/")[0]])),
            "dated": any((device, *cells[:3]) in dated for cells in of_path if dtype_of(cells[1]) == dtype),
            **_promoted(of_path, dtype),
        }
        for path, of_path in lines.items()
        for dtype in {dtype_of(cells[1]) for cells in of_path}
    }


def _promoted(lines, dtype):
    """Row of a pass and dtype. A problem with and without bias counts once: the version is that with bias, as in the
    U-Net; the times are those with bias, or those without if no library was timed with it."""
    cases = {}
    for cells in sorted(lines, key=lambda cells: len(cells[1])):
        if dtype_of(cells[1]) == dtype:
            cases.setdefault(_without_bias(cells[1]), []).insert(0, cells)
    timed = list(filter(None, (next(filter(_times, case), None) for case in cases.values())))
    of_unet = [case[0] for case in cases.values()]
    problems = len({_without_bias(without_dtype(cells[1])) for cells in lines})
    return {
        "promoted": True,
        "versions": Counter(cells[2] for cells in of_unet).most_common(),
        "withoutBias": any(cells not in of_unet for cells in timed),
        "libraries": sorted({cells[5] for cells in timed}),
        "commits": sorted({cells[7] for cells in timed}),
        **_figures([_times(cells) for cells in timed], problems),
    }


def _times(cells):
    """(our seconds, the library's), both warm, or both cold if the library has no warm time; None without times."""
    _, _, _, warm, cold, _, baseline, _ = cells
    ours = cold if baseline.endswith("cold") else warm
    return None if "-" in (ours, baseline) else tuple(1e-6 * float(cell.split()[0]) for cell in (ours, baseline))


def _recorded(series, records):
    """Row of the fastest version among those timed on at least half of the problems, over the problems that all of
    these have; None without a baseline."""
    timed = {}
    for entry in series:
        if entry["status"] == "PASS" and entry["times"] and entry["baselineTimes"]:
            times = entry["times"]["median"], entry["baselineTimes"]["median"]
            timed.setdefault((entry["version"], entry["idea"]), {})[entry["problem"]] = times, entry
    problems = {entry["problem"] for entry in series}
    broad = {version: of for version, of in timed.items() if len(of) >= _LEAST_COVERAGE * len(problems)}
    common = set.intersection(*map(set, broad.values())) if broad else set()
    if not common:
        return None
    number, idea = best = min(broad, key=lambda version: sum(broad[version][problem][0][0] for problem in common))
    entries = [broad[best][problem][1] for problem in common]
    return {
        "promoted": False,
        "dated": any(entry["dated"] for entry in entries),
        "versions": [(f"v{number:02d}_{idea}", len(common))],
        "withoutBias": False,
        "libraries": sorted({entry["library"] for entry in entries}),
        "commits": sorted({records[entry["record"]]["commit"] for entry in entries}),
        **_figures([broad[best][problem][0] for problem in common], len(problems)),
    }


def _figures(times, problems):
    """Counts, ratios and sums of `times`, [(our seconds, the library's seconds)] of each problem that has both."""
    ours, library = sum(own for own, _ in times), sum(theirs for _, theirs in times)
    ratios = [theirs / own for own, theirs in times]
    covered = times and len(times) >= _LEAST_COVERAGE * problems
    return {
        "timed": len(times),
        "problems": problems,
        "ratio": library / ours if covered else None,
        "low": min(ratios, default=None),
        "high": max(ratios, default=None),
        "seconds": ours,
        "librarySeconds": library,
    }


def _without_bias(problem):
    return " ".join(word for word in problem.split() if word != "bias")


def _order(key):
    device, path, dtype = key
    return device, path, (*DTYPES, dtype).index(dtype)
