"""`./ladder compare --live REF`: runs the programs of two commits in turn on one GPU. `./ladder diff` does so for two
versions.

A is REF, B this tree. A repetition is one process of each side, in the order A B, B A, A B, so that drift hits both
sides alike. A new process each time also redraws memory placement, a noise that is constant within a process. With
--inject-slowdown both sides launch a spinning kernel after each sample's own kernel: A's spins for no time, B's for the
given percentage of the sample.
"""

import json
import math
import shlex
import shutil
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path

from cli import build, device, paths, say
from cli.errors import Failure, UsageError
from cli.files import shown
from registry import listing

from . import records, report, rule, sides, trees
from .processes import Job, Processes


@dataclass(frozen=True)
class Chosen:
    """Selection of a comparison's filters, resolved by a Listing."""

    paths: tuple  # "conv3x3/fprop"
    named: bool  # the command line names layers or passes
    versions: "dict | None"  # {path: numbers}; None for all
    problems: dict  # {layer: problem line}; empty for all
    dtypes: tuple  # empty for all


def compare(options):
    """Compares REF with this tree. Returns a Report. Throws UsageError; Failure without a GPU or if a program fails."""
    layers = list(dict.fromkeys(path.split("/")[0] for path in options.chosen.paths))
    source = trees.find(paths.ROOT, options.live)
    model, why = device.gpu()
    if model is None:
        raise Failure(f"--live needs a GPU: {why}; records compare without one: ./ladder compare")
    both = [sides.fitted(side) for side in sides.built(source, layers, options.inject_slowdown)]
    jobs = jobs_of([path for path in options.chosen.paths if path.split("/")[0] in both[0].programs], options)
    slowdown = f" --inject-slowdown {options.inject_slowdown:g}" if options.inject_slowdown else ""
    ref = both[0].ref + slowdown
    return measure(both, jobs, options, lambda comparison: command_of(ref, comparison.key))


def compare_versions(path, versions, options):
    """Compares two Versions of one pass of this tree. Returns a Report."""
    layer = path.split("/")[0]
    build.build("cuda", targets=[f"bench_{layer}"])
    programs = {layer: build.folder("cuda") / f"bench_{layer}"}
    here, sources = trees.find(paths.ROOT, str(paths.ROOT)), trees.fingerprint(paths.ROOT)
    both = [
        sides.Side(
            version.label,
            here.ref,
            here.commit,
            here.dirty,
            f"{version.label} of {sources}",
            paths.ROOT,
            programs,
            version=version.number,
        )
        for version in versions
    ]

    def command(comparison):
        a, b = (side.version for side in both)
        return f"./ladder diff {path} {a} {b} --problem {shlex.quote(comparison.key[3])}"

    return measure(both, jobs_of([path], options), options, command)


def measure(both, jobs, options, reproduce):
    """Runs `jobs` of both sides in turn and returns a Report with their verdicts. Finished repetitions are kept in a
    folder until then, for --resume. `reproduce` is the Report's."""
    folder = _folder(both, options)
    processes = Processes(both, options, folder)
    try:
        failed = {} if options.no_check else processes.check(jobs)
        first = processes.repetitions("first", jobs)
        comparisons = _judged(first, failed)
        calls = sum(comparison.verdict.is_call for comparison in comparisons)
        unsettled = [each for each in comparisons if each.verdict.status in (*rule.CALLS, rule.AMBIGUOUS)]
        if unsettled:
            most = 2 * len(unsettled) > len(comparisons)
            second = processes.repetitions("second", jobs if most else _jobs_again(unsettled))
            settled = {each.key: _settled(each, first[each.key], second.get(each.key)) for each in unsettled}
            comparisons = [settled.get(each.key, each) for each in comparisons]
    except BaseException:
        say.close()
        if any(folder.glob("first-*.json")):
            say.line(f"finished repetitions are kept; to go on: --resume {shown(folder)}")
        else:
            shutil.rmtree(folder)
        raise
    say.close()
    notes = _notes(both, comparisons, calls, options)
    shutil.rmtree(folder)
    a, b = ({"name": side.name, "commit": side.commit, "dirty": side.dirty} for side in both)
    return report.Report("live", a, b, records.worst_first(comparisons), notes, reproduce)


def command_of(ref, key):
    """Command that compares one kernel with commit `ref`."""
    _, path, version, problem = key
    return f"./ladder compare --live {ref} {path} --version {version} --problem {shlex.quote(problem)}"


def jobs_of(passes, options):
    """The Jobs of `passes` by the options; by default of the set unet, or of perf in a layer without unet. Each dtype
    is a separate Job: bench programs of older trees accept version numbers, problem lines and one dtype only."""
    chosen, jobs = options.chosen, []
    for path in passes:
        layer = path.split("/")[0]
        problem = chosen.problems.get(layer)
        a_set = options.set_name or ("unet" if "unet" in listing.sets(paths.ROOT, layer) else "perf")
        what = ("--problem", problem) if problem else ("--set", a_set)
        versions = tuple(sorted((chosen.versions or {}).get(path, ())))
        for dtype in chosen.dtypes or (None,):
            jobs.append(Job(path, _having(path, versions, dtype), (*what, *(("--dtype", dtype) if dtype else ()))))
    return jobs


def _having(path, versions, dtype):
    """Subset of `versions` with the dtype, or all if none has it: the program rejects a number without the dtype."""
    of_path = {version.number: version.dtypes for version in listing.versions(paths.ROOT, path)}
    return tuple(number for number in versions if not dtype or dtype in of_path.get(number, (dtype,))) or versions


def _judged(found, failed):
    """[Comparison] of {key: repetitions of both sides}."""
    return [
        _compared(key, a, b, failed.get(key))
        for key, (a, b) in sorted(found.items())
        if any(result and result.status != "SKIP" for result in a + b)
    ]


def _compared(key, a, b, failed=None):
    label = next(result for result in b + a if result).label
    repetitions = {"a": _raw(a), "b": _raw(b)}
    return records.Comparison(key, label, _verdict(a, b, failed), _pooled(a), _pooled(b), repetitions)


def _verdict(a, b, failed=None):
    if failed:
        return rule.Verdict(rule.UNTRUSTED, failed)
    return records.refused(a, b, recorded=False) or rule.judge(_repetitions(a), _repetitions(b))


def _repetitions(results):
    return rule.Repetitions(
        [rule.typical(result.times.seconds) for result in results],
        [rule.typical(result.times.cycles) for result in results],
    )


def _pooled(results):
    """One Result for a side, with the median over its repetitions' medians."""
    timed = [result for result in results if result and result.times]
    if not timed:
        return next((result for result in results if result), None)
    median = statistics.median(result.times.median for result in timed)
    return replace(timed[-1], times=replace(timed[-1].times, median=median))


def _raw(results):
    return [
        {"seconds": result.times.seconds, "sm_clock_hz": result.times.clocks, "digest": result.digest}
        if result and result.times
        else None
        for result in results
    ]


def _settled(comparison, first, second):
    """The comparison decided by the second run: see rule.settled()."""
    if second is None:
        raise Failure(f"the second run did not measure {comparison.label}")
    both = _compared(comparison.key, first[0] + second[0], first[1] + second[1])
    both.verdict = rule.settled(comparison.verdict, _verdict(*second), both.verdict)
    return both


def _jobs_again(unsettled):
    """Jobs that cover at least `unsettled`: one per pass and dtype, since not every version has every dtype."""
    groups = {}
    for comparison in unsettled:
        _, path, version, problem = comparison.key
        group = groups.setdefault((path, comparison.b.dtype), (set(), []))
        group[0].add(version)
        if problem not in group[1]:
            group[1].append(problem)
    return [
        Job(path, tuple(sorted(versions)), tuple(word for problem in problems for word in ("--problem", problem)))
        for (path, _), (versions, problems) in sorted(groups.items())
    ]


def _notes(both, comparisons, first_calls, options):
    calls = sum(comparison.verdict.is_call for comparison in comparisons)
    ratios = [comparison.verdict.ratio for comparison in comparisons if math.isfinite(comparison.verdict.ratio)]
    notes = []
    if options.no_check:
        notes.append("note: values were not checked (--no-check)")
    if options.inject_slowdown:
        slow = sum(comparison.verdict.status == rule.SLOW for comparison in comparisons)
        middle = rule.percent(statistics.median(ratios)) if ratios else "none"
        notes.append(
            f"injected slowdown: every sample of B lasts {options.inject_slowdown:g} % longer on purpose (the "
            f"middle of what was measured: {middle}); {slow} of {len(ratios)} kernels are called SLOW"
        )
    elif both[0].fingerprint == both[1].fingerprint:
        notes.append(
            f"A/A: the same sources on both sides, {len(ratios)} comparisons, {calls} false calls "
            f"({first_calls} before the second run)"
        )
    else:
        changed = sum(
            bool(comparison.a and comparison.b and comparison.a.digest != comparison.b.digest)
            for comparison in comparisons
        )
        if changed:
            notes.append(f"note: the outputs of {changed} kernels differ from A's in some bit")
    return notes


def _folder(both, options):
    """The folder of this run: a new one, or that of --resume if its plan.json is the same."""
    wanted = {
        "sources": [side.fingerprint for side in both],
        "layers": sorted(both[0].programs),
        "options": [
            list(options.chosen.paths),
            options.version,
            options.dtype,
            options.problem,
            options.set_name,
            options.repetitions,
            options.samples,
            options.seed,
            options.inject_slowdown,
        ],
    }
    if options.resume:
        folder = Path(options.resume).absolute()
        try:
            begun = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise UsageError(f"--resume {options.resume}: no interrupted comparison there") from None
        if begun != wanted:
            raise UsageError(f"--resume {options.resume}: begun with other sources or options")
        return folder
    stamp = time.strftime("%Y-%m-%dT%H%M%S", time.gmtime())
    folder = paths.PRIVATE / "comparisons" / f"{stamp}_{both[0].commit[:7]}_{both[1].commit[:7]}"
    folder.mkdir(parents=True)
    report.write_aside(folder / "plan.json", json.dumps(wanted))
    return folder
