"""What `./ladder train --compare` says of the steps that it replayed in turn (ladder.step-comparison/1, results/SCHEMA.md).

A repetition is a round: each side's two replays, there and back, so that drift hits all sides alike. Each side is held
against the first, A, round by round: the median of the ratios with the bootstrap's interval. The rule of kernels (rule.py)
is for processes of their own, whose memory lies elsewhere each time; here both sides run in one, a step apart: noise is the
ratios' own, a smaller change counts, and a wide threshold does not keep SAME from being said.
"""

import math
import statistics
from collections import Counter

from . import rule

SCHEMA = "ladder.step-comparison/1"

# Of a step: 11 us of 5.4 ms. Two graphs of the same versions, whose arenas lie at other addresses, are to be the SAME.
LEAST_CHANGE = 0.002

# Sides have the same weights and batch: they differ by rounding, which a version may do otherwise.
LOSS_TOLERANCE = 0.01


def verdicts(record):
    """What is to be said of each side but the first: {"status", "reason", "ratio", "low", "high", "threshold", and the
    difference in microseconds as "us", "us_low", "us_high"}. None for the emulator, whose times say nothing."""
    if record["emulator"]:
        return None
    first, *others = record["sides"]
    return [_verdict(first, other) for other in others]


def lines(record):
    """The comparison for people."""
    if record["emulator"]:
        yield "emulated: these times say nothing of a GPU, so there is no verdict"
    told = [None, *(record["verdicts"] or [None] * (len(record["sides"]) - 1))]
    for letter, side, verdict in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", record["sides"], told):
        kind = " emulated" if record["emulator"] else ""
        yield f"{letter}  {_median_us(side):.1f} us{kind}  {side['name']}{_versions(side)}"
        if verdict:
            yield f"   {_told(verdict)}"
    yield _conditions(record)


def _verdict(a, b):
    a_us, b_us = _rounds(a), _rounds(b)
    ratios = [y / x for x, y in zip(a_us, b_us)]
    differences = [y - x for x, y in zip(a_us, b_us)]
    us_low, us_high = rule.median_interval(differences)
    enough = len(ratios) >= rule.LEAST_REPETITIONS
    noise = rule.standard_error(ratios) if enough else math.nan
    change = rule.of_pairs(ratios, noise, least=LEAST_CHANGE, most=math.inf)
    status, reason = _status(a, b, change, enough)
    return {
        "status": status,
        "reason": reason,
        "ratio": change.ratio,
        "low": change.low,
        "high": change.high,
        "threshold": change.threshold if enough else None,
        "us": statistics.median(differences),
        "us_low": us_low,
        "us_high": us_high,
    }


def _status(a, b, change, enough):
    for side in (a, b):
        first, last = side["losses"]
        if first != last:
            return rule.UNTRUSTED, f"a race: the loss of {side['name']} was {first:.6g}, after its replays {last:.6g}"
    if abs(b["losses"][0] / a["losses"][0] - 1) > LOSS_TOLERANCE:
        return rule.UNTRUSTED, f"the losses are {a['losses'][0]:.6g} and {b['losses'][0]:.6g}: one side is wrong"
    if not enough:
        return rule.AMBIGUOUS, f"too few rounds: at least {rule.LEAST_REPETITIONS} are needed"
    if change.side != rule.SAME or change.is_none:
        return change.side, ""
    return rule.AMBIGUOUS, f"undecided against a threshold of {100 * change.threshold:.2f} %: more --rounds"


def _rounds(side):
    """Microseconds of a replay, round by round."""
    seconds = side["seconds"]
    return [5e5 * (there + back) for there, back in zip(seconds[::2], seconds[1::2])]


def _median_us(side):
    return statistics.median(_rounds(side))


def _versions(side):
    """How many operations each version runs."""
    counts = Counter()
    for each in side["versions"]:
        counts[f"{each['pass']} {each['version']}"] += each["operations"]
    return "".join(f", {count} x {version}" for version, count in sorted(counts.items()))


def _told(verdict):
    change = (
        f"{verdict['us']:+.1f} us [{verdict['us_low']:+.1f} .. {verdict['us_high']:+.1f}], "
        f"{_percent(verdict['ratio'])} [{_percent(verdict['low'])} .. {_percent(verdict['high'])}] %"
    )
    return f"{verdict['status']}  {change}" + (f"; {verdict['reason']}" if verdict["reason"] else "")


def _percent(ratio):
    return f"{100 * (ratio - 1):+.2f}"


def _conditions(record):
    text = f"rounds: {record['rounds']}; {record['device_bytes'] / 2**20:.0f} MiB for {len(record['sides'])} steps"
    machine = record.get("machine")
    if machine:
        clock, power = machine["clocks.sm"], machine["power.draw.instant"]
        text += (
            f"; SM clock {clock['median']:.0f} MHz ({clock['low']:.0f} to {clock['high']:.0f}), {power['median']:.0f} W"
        )
    return text
