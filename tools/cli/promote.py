"""`./ladder promote`: runtime/promoted/<device>.txt from results/; tools/records/promotion.py has the rules."""

import sys

from records import promotion, record_files, step_promotion
from registry import listing, selection

from . import files, paths
from .errors import Failure, UsageError
from .options import Parser, folder


def main(arguments):
    chosen = _parse(arguments)
    rows = record_files.read(chosen.root / "results")
    devices = sorted({row.record.device for row in rows})
    if not devices:
        raise Failure(f"no record of a GPU in {chosen.root / 'results'}; `./ladder record` on a GPU makes one")
    if chosen.device and chosen.device not in devices:
        raise UsageError(f"--device {chosen.device}: no record of it; there are those of: {', '.join(devices)}")
    problems = _problems(chosen.root, chosen.set) if chosen.set else None

    # Every table is made before one is written: a malformed one leaves the others as they were.
    made = [_made(chosen, rows, device, problems) for device in ([chosen.device] if chosen.device else devices)]
    if chosen.check:
        return 1 if sum(_is_found_stale(each, chosen.root) for each in made) else 0
    for each in made:
        if each.is_stale:
            each.file.parent.mkdir(parents=True, exist_ok=True)
            files.replace(each.file, each.new)
        _print_summary(each, chosen.root)
    return 0


def _made(chosen, rows, device, problems):
    if chosen.by == "warm":
        return promotion.promote(chosen.root, rows, device, problems)
    try:
        return step_promotion.promote(chosen.root, rows, device)
    except record_files.BadRecord as error:
        raise Failure(str(error)) from None


def _parse(arguments):
    parser = Parser(
        "promote",
        description="Which version the trainer runs for each problem, from the newest records: "
        f"the fastest warm; within {100 * promotion.MARGIN:.0f} % the one that stands in the table stays.",
    )
    parser.add_argument("--device", metavar="SLUG", help="a folder of results/ (default: each that has a record)")
    parser.add_argument(
        "--by",
        choices=("warm", "step"),
        default="warm",
        help="warm: the times of kernels by themselves (default); step: the comparisons of `./ladder train --compare --json "
        "results/<device>/<date>_<commit>_step-<what>.json`, and budgets, <date>_<commit>_step-budget-<what>.json, whose faster versions "
        "replace those that stand, and stay",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit 1, with the lines that differ, if a table is not up to date",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        metavar="NAME",
        help="look only at the problems of these sets; other lines of the table stay",
    )
    parser.add_argument("--root", type=folder, default=paths.ROOT, help="the tree to work on")
    chosen = parser.parse_args(arguments)
    if chosen.by == "step" and chosen.set:
        raise UsageError("--set is of --by warm: a comparison in the step has its own problems")
    return chosen


def _problems(root, names):
    """{layer: problem lines without their dtype} of sets."""
    layers = listing.read(root).layers
    there = list(dict.fromkeys(name for layer in layers for name in layer.sets))
    for name in names:
        if name not in there:
            raise UsageError(f"--set '{name}': there are {', '.join(there) or 'none'}")
    return {
        layer.name: {selection.without_dtype(line) for name in names for line in layer.sets.get(name, {}).values()}
        for layer in layers
    }


def _is_found_stale(made, root):
    if made.is_stale:
        print(
            f"ladder promote: {made.file.relative_to(root)} is not what the newest records say; run ./ladder promote",
            *made.diff(),
            sep="\n",
            file=sys.stderr,
        )
    return made.is_stale


def _print_summary(made, root):
    replaced = sum(1 for change in made.changes if change.old and change.new)
    added = sum(1 for change in made.changes if not change.old)
    dropped = len(made.changes) - replaced - added
    print(
        f"{made.file.relative_to(root)}: {made.num_cases} cases; {replaced} have another version, {added} are new, "
        f"{dropped} dropped, {made.num_other_times} have other figures only"
    )
    for change in made.changes:
        if made.old or change.old:  # of a first table everything is new
            print(f"  {change}")
