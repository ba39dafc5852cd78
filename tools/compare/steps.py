"""Verdicts of `./ladder train --compare` on training steps replayed in turn (ladder.step-comparison/1,
results/SCHEMA.md).

A repetition is a round. A round replays every side twice, in order and in reverse, so that drift hits all sides alike.
Each further side is compared with the first, A, by the median of the ratios per round and its bootstrap interval. The
rule of kernels (rule.py) compares separate processes, whose memory placement differs each time; here all sides share
one process, a step apart: the ratios' own noise counts, a smaller change is called, and a wide threshold does not rule
out SAME.
"""

import math
import statistics
from collections import Counter

from . import rule

SCHEMA = "ladder.step-comparison/1"

# Smallest relative change of a step's time that counts: 11 us of 5.4 ms. Two graphs of the same versions, with arenas
# at different addresses, must be the SAME.
LEAST_CHANGE = 0.002

# Largest relative difference of two sides' losses. Weights and batch are the same; versions may round differently.
LOSS_TOLERANCE = 0.01


def verdicts(record):
    """[verdict] of each side but the first: {"status", "reason", "ratio", "low", "high", "threshold"} and the
    difference in microseconds, {"us", "us_low", "us_high"}. None for the emulator, whose times mean nothing."""
    if record["emulator"]:
        return None
    first, *others = record["sides"]
    return [_verdict(first, other) for other in others]


def lines(record):
    """Yields the lines of the comparison for people."""
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
    """Microseconds of a replay, the mean of two, per round."""
    seconds = side["seconds"]
    return [5e5 * (there + back) for there, back in zip(seconds[::2], seconds[1::2])]


def _median_us(side):
    return statistics.median(_rounds(side))


def _versions(side):
    """Text with the number of operations that each version runs."""
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
