"""`./ladder compare`: did a commit make any kernel slower? Between records, or live."""

import argparse
import shlex
import sys
from collections import Counter
from pathlib import Path

from cli import paths, say, tools
from cli.errors import Failure, UsageError
from cli.options import Parser, at_least, between, filled
from records import record_files
from registry import listing, selection

from . import live, records, report, rule
from .live import Chosen

EXIT_FAILED_ON = 3

_DESCRIPTION = """\
Says of every kernel whether B is SLOW, FAST or the SAME as A. A and B are a record's file, a commit (sha, branch, tag,
HEAD), 'last' (the newest measurement) or 'previous' (the one before it that has some of its kernels). Without them it
takes of each kernel the two newest results, whichever records they are in.

--live REF builds REF beside this tree and runs both programs in turn (A B B A ...), a process each time: what two
records leave AMBIGUOUS, this decides. It needs a GPU."""

_EPILOG = """\
SLOW and FAST need all of: the 99 % bootstrap interval of the median ratio leaves out 1, over at least 9 repetitions;
the change exceeds 1 % and 3 standard errors of that kernel; cycles say the same; between records, the time in units of
the baseline's plan says the same, live, a second run does. AMBIGUOUS, MISSING and UNTRUSTED come with their reasons.
Exit status: 0, 3 if --fail-on finds something, 1 for a failure, 2 for wrong usage."""


def main(arguments):
    options = _options(arguments)
    if options.live:
        options.chosen = _chosen(options, listing.read(paths.ROOT))
    made = live.compare(options) if options.live else _of_records(options)
    if not made.comparisons:
        raise UsageError("nothing to compare: no kernel in A or B is left by the filters")
    command = shlex.join(["./ladder", "compare", *arguments])
    failed = made.failures(options.fail_on)

    text = made.text(options.all, colour=options.json != "-" and sys.stdout.isatty())
    if options.json == "-":
        sys.stderr.write(text)
        sys.stdout.write(made.json(command))
    else:
        sys.stdout.write(text)
    if options.json not in (None, "-"):
        report.write_aside(Path(options.json), made.json(command))
    if options.keep:
        report.write_aside(Path(options.keep), made.json(command, raw=True))
    if options.junit:
        report.write_aside(Path(options.junit), made.junit(options.fail_on))
    return EXIT_FAILED_ON if failed else 0


def _of_records(options):
    there, bad = record_files.load_all(paths.ROOT / "results")
    for error in bad:
        say.line(f"passed over: {error}")
    options.chosen = _chosen(options, _listing_of(there))
    words = options.words
    here = listing.read(paths.ROOT)
    for word in words:
        if selection.is_target(here, word):
            raise UsageError(f"no record of {word}: ./ladder record {word} makes one")
    if len(words) > 2:
        raise UsageError(f"compare takes A and B, not {len(words)} words: {', '.join(words)}")
    once = 0
    if words:
        try:
            (a, b), files = records.resolve([*words, "last"][:2], there, options.device, commit_of)
        except UsageError:
            _say_refusal(words)
            raise
    else:
        (a, b), files, once = records.newest_two(there, options.device, lambda key: _wanted(key, options))
    chosen = [comparison for comparison in records.compare(a, b) if _wanted(comparison.key, options)]
    notes = [*_differences(chosen), *([f"note: {once} kernels are left out, measured once"] if once else [])]

    def reproduce(comparison):
        """Live comparison with A's commit: a record cannot be measured again, its commit can."""
        return live.command_of((comparison.a.record if comparison.a else a).commit[:10], comparison.key)

    return report.Report("records", _side(a, files[0]), _side(b, files[1]), chosen, notes, reproduce)


def _listing_of(there):
    """Listing of the records' contents, including versions that were deleted from the tree."""
    ideas = {}
    for record in there:
        for result in record.results:
            layer, _, name = result.path.partition("/")
            ideas.setdefault(layer, {}).setdefault(name, {})[result.version] = result.idea
    layers = []
    for layer, of_layer in sorted(ideas.items()):
        passes = tuple(
            listing.Pass(layer, name, tuple(listing.Version(number, idea) for number, idea in sorted(versions.items())))
            for name, versions in sorted(of_layer.items())
        )
        layers.append(listing.Layer(layer, passes, "", listing.sets(paths.ROOT, layer)))
    return listing.Listing(paths.ROOT, tuple(layers))


def _side(record, files):
    names = ", ".join(_shown(file) for file in files) if len(files) <= 3 else f"the newest of {len(files)} records"
    return {
        "name": f"{record.short} on {record.device_name}, {record.created} ({names})",
        "commit": record.commit,
        "dirty": record.dirty,
        "device": record.device,
        "created": record.created,
        "files": [_shown(file) for file in files],
    }


def _shown(file):
    return str(file.relative_to(paths.ROOT)) if file.is_relative_to(paths.ROOT) else str(file)


def _differences(comparisons):
    """Yields notes on differences between both sides' environments (driver, library, ...), other than the sources."""
    pairs = [(each.a, each.b) for each in comparisons if each.a and each.b]
    found = Counter()
    for a, b in pairs:
        sides = [{**each.record.fingerprint, "library": each.baseline} for each in (a, b)]
        found.update((name, sides[0][name], sides[1][name]) for name in sides[0] if sides[0][name] != sides[1][name])
    for name in dict.fromkeys(name for name, _, _ in found):
        (old, new), *others = ((old, new) for each, old, new in found if each == name)
        count = sum(found[each] for each in found if each[0] == name)
        what = "differs" if others else f"{old or 'unknown'} in A, {new or 'unknown'} in B"
        yield f"note: {name} {what}" + (f" for {count} of {len(pairs)} kernels" if count < len(pairs) else "")


def _wanted(key, options):
    _, path, version, problem = key
    chosen = options.chosen
    wanted = chosen.problems.get(path.split("/")[0])
    return (
        (not chosen.named or path in chosen.paths)
        and (chosen.versions is None or version in chosen.versions.get(path, ()))
        and (not chosen.dtypes or selection.dtype_of(problem) in chosen.dtypes)
        and (not chosen.problems or wanted in (problem, selection.without_dtype(problem)))
    )


def commit_of(word):
    """Full SHA of the commit that `word` names in git, or None."""
    if word.startswith("-"):
        return None
    return tools.git(paths.ROOT, "rev-parse", "--verify", "--quiet", f"{word}^{{commit}}")


def _say_refusal(words):
    """Prints git's error if git's refusal is why one of `words` names no record."""
    unknown = [word for word in words if word not in ("last", "previous") and not Path(word).is_file()]
    refusal = tools.git_refusal(paths.ROOT) if any(commit_of(word) is None for word in unknown) else ""
    if refusal:
        say.line(refusal)


def _options(arguments):
    parser = Parser(
        "compare", description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="A B LAYER[/PASS]",
        help="records to compare, and layers or passes to leave the others out",
    )
    parser.add_argument("--device", help="of the records, as in results/<device> (default: that of the newest)")
    parser.add_selection("version", "problem", "dtype")
    parser.add_argument("--all", action="store_true", help="show what is the SAME too")
    parser.add_argument("--json", metavar="FILE", help="the comparison as JSON; - for stdout")
    parser.add_argument("--junit", metavar="FILE", help="a test case for each kernel")
    parser.add_argument(
        "--fail-on",
        type=_statuses,
        default=set(),
        metavar="WHAT",
        help="exit with 3 if there is any: slow,missing,untrusted,ambiguous",
    )
    group = parser.add_argument_group("live")
    group.add_argument(
        "--live",
        metavar="REF",
        help="build this commit beside this tree and run both in turn; a folder with sources of its own does as well",
    )
    add_timing(group)
    group.add_argument("--keep", metavar="FILE", help="every sample with the verdicts, as JSON")
    options = parser.parse_args(arguments)
    _check(options)
    return options


def add_timing(group):
    """Adds the options of a live comparison: problems, repetitions, samples, seed, slowdown, check, resume."""
    group.add_argument(
        "--set",
        dest="set_name",
        metavar="SET",
        type=filled("set"),
        help=selection.HELP["set"] + " (default: the benchmark's)",
    )
    group.add_argument(
        "--repetitions",
        type=at_least(1),
        default=rule.LEAST_REPETITIONS,
        metavar="N",
        help="processes a side (default: 9, the fewest that give a verdict)",
    )
    group.add_argument(
        "--samples", type=at_least(1), default=30, metavar="N", help="cold samples in each (default: 30)"
    )
    group.add_argument("--seed", type=selection.seed, default=20261120, help="of the inputs, the same for both sides")
    group.add_argument(
        "--inject-slowdown",
        type=between(0, 1000),
        metavar="PERCENT",
        help="make every sample of B last so much longer: shows what this tool can see",
    )
    group.add_argument("--no-check", action="store_true", help="do not check values first")
    group.add_argument("--resume", metavar="FOLDER", help="go on with an interrupted run")


def _chosen(options, there):
    """Returns the Chosen of a Listing by the options; removes the layers and passes from options.words."""
    targets = [word for word in options.words if selection.is_target(there, word)]
    options.words = [word for word in options.words if word not in targets]
    if options.live and options.words:
        selection.passes(there, options.words)  # throws: the words name no layer or pass
    passes = selection.passes(there, targets)
    layers = selection.layers_of(there, passes)
    if options.set_name:
        selection.set_name(layers, options.set_name)
    problems = selection.problems_of(layers, options.problem) if options.problem else {}
    passes = [a_pass for a_pass in passes if not problems or a_pass.layer in problems]
    versions = None
    if options.version and options.version != "all":
        if options.version == "best":
            raise UsageError("./ladder compare: --version best names a version of one side; name it by number")
        versions = {
            path: tuple(version.number for version in found)
            for path, found in selection.versions_of(passes, options.version).items()
        }
        passes = [a_pass for a_pass in passes if a_pass.path in versions]
    return Chosen(
        tuple(a_pass.path for a_pass in passes),
        bool(targets),
        versions,
        problems,
        tuple(selection.dtypes(options.dtype)) if options.dtype else (),
    )


def _check(options):
    only_live = {
        "--set": options.set_name,
        "--inject-slowdown": options.inject_slowdown,
        "--keep": options.keep,
        "--resume": options.resume,
        "--no-check": options.no_check or None,
    }
    if not options.live:
        for flag, value in only_live.items():
            if value is not None:
                raise UsageError(f"./ladder compare: {flag} belongs to --live REF")
    elif options.device:
        raise UsageError("./ladder compare: --device is of records; --live runs on the GPU that is there")
    elif options.set_name and options.problem:
        raise UsageError("./ladder compare: --set and --problem exclude each other")
    for path in (options.json, options.junit, options.keep):
        if path and path != "-" and not Path(path).absolute().parent.is_dir():
            raise Failure(f"cannot write {path}: its folder does not exist")


def _statuses(word):
    there = {"slow", "missing", "untrusted", "ambiguous"}
    words = set(word.split(","))
    if words - there:
        raise argparse.ArgumentTypeError(f"'{', '.join(sorted(words - there))}': slow, missing, untrusted or ambiguous")
    return {name.upper() for name in words}
