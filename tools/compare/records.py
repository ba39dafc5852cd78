"""Which records A and B are, and the verdict on every kernel that they hold.

Records are not interleaved with each other. But each samples its versions in turn (A B B A) with the baseline's best
plan on the same inputs, and a plan of one library is the same program in both: a standard candle. So a repetition is a
block of consecutive rounds, and a change must show in plain time, in cycles and in units of the candle.
"""

import re
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from cli.errors import Failure, UsageError
from records import record_files

from . import rule

# Times of every version and of its candle fall into this many blocks of consecutive rounds.
_BLOCKS = rule.LEAST_REPETITIONS

_SHA = re.compile(r"[0-9a-f]{4,40}")


@dataclass
class Comparison:
    key: tuple  # (device, path, version, problem)
    label: str
    verdict: rule.Verdict
    a: "record_files.Result | None"
    b: "record_files.Result | None"
    repetitions: "dict | None" = None  # {"a": [...], "b": [...]}: raw samples of a live one, for --keep


def compare(a, b):
    """A Comparison for each kernel that A or B timed, the worst first. UsageError for records of different devices."""
    if a.device != b.device:
        raise UsageError(f"times of different devices do not compare: A is of {a.device}, B of {b.device}")
    sides = [{result.key: result for result in record.results} for record in (a, b)]
    comparisons = []
    for key in sorted(set(sides[0]) | set(sides[1])):
        old, new = (side.get(key) for side in sides)
        if _untimed(old) and _untimed(new):
            continue
        comparisons.append(Comparison(key, (new or old).label, verdict_of(old, new), old, new))
    return worst_first(comparisons)


def worst_first(comparisons):
    def order(comparison):
        ratio = comparison.verdict.ratio
        return rule.STATUSES.index(comparison.verdict.status), -ratio if ratio == ratio else 0, comparison.key

    return sorted(comparisons, key=order)


def verdict_of(a, b):
    """The verdict on one kernel's Results in two records; either may be None. Where another card of the same model
    measured B, a change that the baseline's plan shows as well is the card's; between two models there is no
    verdict."""
    no_times = refused([a], [b], recorded=True)
    if no_times:
        return no_times
    models = [result.record.device_name for result in (a, b)]
    if models[0] != models[1]:
        return rule.Verdict(rule.AMBIGUOUS, f"another device: {models[0]} in A, {models[1]} in B")
    candle_a, candle_b, no_candle = _candles(a, b)
    return rule.judge(
        repetitions(a.times, candle_a, a.record.tick),
        repetitions(b.times, candle_b, b.record.tick),
        interleaved=False,
        no_candle=no_candle,
        other_card=a.record.fingerprint["uuid"] != b.record.fingerprint["uuid"],
    )


def refused(a, b, recorded):
    """The Verdict on lists of Results or None whose times do not count, else None.

    recorded: of records, where a version that failed has no times and one that was not checked is not to be trusted; else
    of processes that check nothing, repetition by repetition.
    """
    found = [_refusal("A", a, recorded), _refusal("B", b, recorded)]
    for status in (rule.MISSING, rule.UNTRUSTED):
        reasons = [reason for of, reason in found if of == status]
        if reasons:
            return rule.Verdict(status, "; ".join(reasons))
    return None


def repetitions(times, candle=None, tick=0.0):
    """Blocks of consecutive rounds, the median of each. `candle`: seconds over the same rounds, or None."""
    count = min(_BLOCKS, len(times.seconds))
    return rule.Repetitions(
        _blocks(times.seconds, count), _blocks(times.cycles, count), _blocks(candle, count) if candle else None, tick
    )


def merge(records):
    """Merges Records of one commit and device into one, with each kernel's newest result."""
    records = sorted(records, key=lambda record: (record.created, record.file.name))
    newest = {}
    for record in records:
        for result in record.results:
            newest[result.key] = result
    return replace(records[-1], results=list(newest.values()))


def measurements(records):
    """`records` (the oldest first) as lists that belong together: neighbours of one commit and device, as long as none
    times again what another has, as where each dtype has a file of its own."""
    groups = []
    for record in records:
        keys = _keys([record])
        for group, seen in groups:
            same = (group[0].device, group[0].commit, group[0].dirty) == (record.device, record.commit, record.dirty)
            if same and not keys & seen:
                group.append(record)
                seen |= keys
                break
        else:
            groups.append(([record], set(keys)))
    groups = [group for group, _ in groups]
    return sorted(groups, key=lambda group: group[-1].created)


def resolve(words, records, device, resolve_commit):
    """The two Records that `words` (two of: file, 'last', 'previous', commit) name, each merged, and files of both.

    resolve_commit(word) is the commit's full name, or None. Throws UsageError, and Failure for a file that is no
    record.
    """
    loaded = [_file(word) for word in words]
    device = device or _device(words, loaded, records, resolve_commit)
    records = [record for record in records if record.device == device]
    sides = [
        [record] if record else _named(word, records, device, resolve_commit) for word, record in zip(words, loaded)
    ]
    if all(loaded) and loaded[0].identity == loaded[1].identity:
        raise UsageError(f"{words[1]} is a copy of {words[0]}: name the record of another measurement")
    return [merge(group) for group in sides], [[record.file for record in group] for group in sides]


def newest_two(records, device, wanted):
    """Two Records of `records`, the oldest first: of each kernel that was measured twice the newest result but one, and
    the newest; files of both; how many were measured once. `wanted(key)` says which kernels."""
    asked = [record for record in records if any(wanted(result.key) for result in record.results)]
    device = device or _device(("last", "last"), (None, None), asked or records, None)
    records = [record for record in records if record.device == device]
    measured = {}
    for record in records:
        for result in record.results:
            if (result.times or result.status not in ("PASS", "UNCHECKED")) and wanted(result.key):  # not a mere check
                measured.setdefault(result.key, []).append(result)
    twice = [results[-2:] for results in measured.values() if len(results) > 1]
    if not twice:
        raise UsageError(
            f"nothing to compare: of the kernels asked for {len(measured)} were measured on {device}, and none twice; "
            "./ladder record makes a record, --live REF needs none"
        )
    sides, files = [], []
    for at in (0, 1):
        of_side = [results[at] for results in twice]
        there = {result.record.file: result.record for result in of_side}
        of_files = [record for record in records if record.file in there]
        sides.append(replace(of_files[-1], results=of_side))
        files.append([record.file for record in of_files])
    return sides, files, len(measured) - len(twice)


def _untimed(result):
    """Not there, or left out for a reason that concerns no time: a version that cannot do the case, a mere check."""
    return result is None or result.status == "SKIP" or (result.status in ("PASS", "UNCHECKED") and not result.times)


def _refusal(name, results, recorded):
    """(MISSING, UNTRUSTED or "", why) of one side."""
    there = [result for result in results if result]
    if not there:
        return rule.MISSING, f"not in {name}"
    untimed = ("SKIP", "FAIL") if recorded else ("SKIP",)
    for verdict, statuses in ((rule.MISSING, untimed), (rule.UNTRUSTED, ("UNTRUSTED", "FAIL"))):
        for result in there:
            if result.status in statuses:
                return verdict, _said(name, result)
    if not all(result and result.times for result in results):
        return rule.MISSING, f"not timed in {'' if recorded else 'every repetition of '}{name}"
    if recorded and there[0].status == "UNCHECKED":
        return rule.UNTRUSTED, _said(name, there[0])
    if len({result.digest for result in there}) > 1:
        return rule.UNTRUSTED, f"its output differs between repetitions of {name}"
    return "", ""


def _said(name, result):
    return f"{result.status} in {name}" + (f": {result.reason}" if result.reason else "")


def _candles(a, b):
    """The seconds of the standard candle beside each of both results' rounds, or why there is none.

    Best is the baseline's best plan. Which of many nearly equal plans is best is a matter of luck, so where it differs
    the plan that the library's heuristic picks, sampled in every third round, takes its place.
    """
    if not a.baseline_times or not b.baseline_times:
        return None, None, "there is no baseline beside it"
    if a.baseline != b.baseline:
        return None, None, f"the baselines differ ({a.baseline}, {b.baseline})"
    if a.best_plan == b.best_plan:
        candles = (a.baseline_times, b.baseline_times)
    elif a.heuristic_plan == b.heuristic_plan and a.heuristic_times and b.heuristic_times:
        candles = (a.heuristic_times, b.heuristic_times)
    else:
        return None, None, f"the baseline's plans differ ({a.best_plan}, {b.best_plan})"
    if min(len(times.seconds) for times in candles) < _BLOCKS:
        return None, None, "the baseline was sampled too few times"
    return *(times.seconds for times in candles), ""


def _blocks(values, count):
    bounds = [at * len(values) // count for at in range(count + 1)]
    return [statistics.median(values[low:high]) for low, high in zip(bounds, bounds[1:])]


def _file(word):
    path = Path(word)
    if not path.is_file():
        if path.name.endswith((".json", ".json.xz")):
            raise UsageError(f"no file {word}")
        return None
    try:
        record = record_files.load(path.resolve())
    except record_files.BadRecord as error:
        raise Failure(str(error)) from None
    if record is None:
        raise UsageError(f"{word} is JSON of another kind, no record")
    if record.environment["device"]["kind"] != "gpu":
        raise UsageError(f"{word} was made by the emulator: no times to compare")
    return record


def _device(words, loaded, records, resolve_commit):
    """The device to compare on: that of the files, else one that has both sides, the one with the newest record."""
    of_files = sorted({record.device for record in loaded if record})
    if len(of_files) == 2:
        raise UsageError(
            f"times of different devices do not compare: A is of {loaded[0].device}, B of {loaded[1].device}"
        )
    if of_files:
        return of_files[0]
    devices = sorted({record.device for record in records})
    if not devices:
        raise UsageError("no record in results/: ./ladder record makes one")
    if len(devices) == 1:
        return devices[0]
    having = [_devices_having(word, records, devices, resolve_commit) for word in words]
    both = sorted(having[0] & having[1])
    if both:
        return record_files.newest_device([record for record in records if record.device in both])
    if having[0] and having[1]:
        raise UsageError(
            f"times of different devices do not compare: A is of {', '.join(sorted(having[0]))}, "
            f"B of {', '.join(sorted(having[1]))}"
        )
    return devices[0]  # where the search for the commit will say what is missing


def _devices_having(word, records, devices, resolve_commit):
    if word in ("last", "previous"):
        return set(devices)
    sha = resolve_commit(word) or word
    return {record.device for record in records if record.commit.startswith(sha)}


def _keys(group):
    return {result.key for record in group for result in record.results}


def _named(word, records, device, resolve_commit):
    if word in ("last", "previous"):
        groups = measurements(records)
        back = 1 if word == "last" else 2
        if len(groups) < back:
            count = f"{len(groups)} measurement{'s' * (len(groups) != 1)}"
            raise UsageError(
                f"{count} of {device} in results/, so there is no '{word}'; ./ladder record makes one, "
                "--live REF needs none"
            )
        if word == "last":
            return groups[-1]
        newest = _keys(groups[-1])
        return next((group for group in reversed(groups[:-1]) if _keys(group) & newest), groups[-2])
    sha = resolve_commit(word) or (word if _SHA.fullmatch(word) else None)
    if sha is None:
        raise UsageError(f"'{word}' is no file, no commit, and neither 'last' nor 'previous'")
    found = [record for record in records if record.commit.startswith(sha)]
    commits = sorted({record.commit for record in found})
    if len(commits) > 1:
        raise UsageError(
            f"'{word}' is the beginning of {len(commits)} commits: {', '.join(commit[:10] for commit in commits)}"
        )
    if not found:
        there = ", ".join(dict.fromkeys(record.short for record in reversed(records))) or "none"
        raise UsageError(f"no record of commit {sha[:10]} on {device}; there are: {there}; --live {word} measures it")
    clean = [record for record in found if not record.dirty]
    return clean or found  # a dirty tree's record only where the commit itself has none
