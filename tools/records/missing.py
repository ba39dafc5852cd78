"""Which versions of dev/ have no record on a GPU: none of their results in results/<device>/ has passed."""

from dataclasses import dataclass
from pathlib import Path

from cli.columns import aligned
from registry.listing import DTYPES


@dataclass(frozen=True)
class Gap:
    """What the records of one pass lack. Versions are numbers here."""

    path: str  # "conv3x3/fprop"
    dtype: "str | None"  # the one that was asked about; None: a record in any will do
    asked: tuple  # the versions that were asked about
    missing: tuple  # those of them without a record
    partly: dict  # {dtype: versions that have a record, but none in this dtype of theirs}; empty if `dtype` is not None


def devices(results):
    """The GPUs that `results` has a folder for, whatever is in its files."""
    return sorted({file.parent.name for file in Path(results).glob("*/*.json")} - {"emulator"})


def passed(records):
    """{("conv3x3/fprop", version): dtypes in which it passed}"""
    found = {}
    for record in records:
        for result in record.results:
            if result.status == "PASS":
                found.setdefault((result.path, result.version), set()).add(result.dtype)
    return found


def gap(path, versions, recorded, dtype=None):
    """The Gap of those listing.Versions; `recorded` is of passed()."""
    # One whose registration names no dtypes may have any.
    able = [version for version in versions if dtype is None or dtype in (version.dtypes or DTYPES)]
    missing, partly = [], {}
    for version in able:
        done = recorded.get((path, version.number), set())
        if not (dtype in done if dtype else done):
            missing.append(version.number)
        elif dtype is None:
            for each in set(version.dtypes) - done:
                partly.setdefault(each, []).append(version.number)
    partly = {each: tuple(partly[each]) for each in DTYPES if each in partly}
    return Gap(path, dtype, tuple(version.number for version in able), tuple(missing), partly)


def table(gaps):
    """Its lines: a row a pass."""
    dtypes = list(dict.fromkeys(gap.dtype for gap in gaps))
    rows = [["pass", *(head for dtype in dtypes for head in _heads(dtype))]]
    for path in dict.fromkeys(gap.path for gap in gaps):
        of_path = {gap.dtype: gap for gap in gaps if gap.path == path}
        rows.append([path, *(cell for dtype in dtypes for cell in _cells(of_path.get(dtype), dtype))])
    return aligned(rows)


def summary(gaps, device, command):
    """The line below the table. `command` makes the missing records."""
    asked = sum(len(gap.asked) for gap in gaps)
    missing = sum(len(gap.missing) for gap in gaps)
    dtypes = list(dict.fromkeys(gap.dtype for gap in gaps if gap.dtype))
    where = f"on {device}" + (f" in {', '.join(dtypes)}" if dtypes else "")
    versions = "versions" + (", counted in each dtype," if len(dtypes) > 1 else "")
    if not missing:
        line = f"none of {asked} {versions} lacks a record {where}"
    else:
        line = f"{missing} of {asked} {versions} {'have' if missing > 1 else 'has'} no record {where}; run {command}"
    partly = sum(len(set().union(*gap.partly.values())) for gap in gaps)
    if partly:
        lacking = ",".join(dtype for dtype in DTYPES if any(dtype in gap.partly for gap in gaps))
        line += f"; recorded, but not in a dtype of theirs: {partly} (--dtype {lacking})"
    return line


def _heads(dtype):
    return [f"in {dtype}", f"not in {dtype}"] if dtype else ["recorded", "not recorded", "recorded, but not in"]


def _cells(gap, dtype):
    """What stands below _heads(dtype); no Gap and one of no version are the same."""
    if gap is None or not gap.asked:
        return ["-"] * len(_heads(dtype))
    cells = [f"{len(gap.asked) - len(gap.missing)} of {len(gap.asked)}", _numbers(gap.missing)]
    if dtype is None:
        cells.append(", ".join(f"{each} {_numbers(versions)}" for each, versions in gap.partly.items()) or "-")
    return cells


def _numbers(versions):
    return " ".join(f"v{number:02d}" for number in versions) or "-"
