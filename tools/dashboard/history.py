"""Step detection in the history of one kernel: points after which its time stays at a new level.

The method is asv's (airspeed velocity, step_detect.py): fit the piecewise-constant function with the least sum of
absolute deviations plus a price per step. Absolute deviations, not squares, because single outliers are common and must
not become steps.
"""

import math
import statistics

THRESHOLD = 0.05  # a smaller change of level is no step
LEAST_POINTS = 2  # points of a level: a single odd record is an outlier; `./ladder compare` judges the newest
_LEVELS = 64  # candidate levels at most; a history with more distinct values is reduced to quantiles
_LEAST_NOISE = 0.001  # relative; smaller differences between records are rounding and chance


def steps(times, threshold=THRESHOLD):
    """[(index of the first point of the new level, level before, level after)] of `times`, in seconds, oldest first."""
    if len(times) < 2 * LEAST_POINTS:
        return []
    logs = [math.log(time) for time in times]
    segments = [(begin, end) for begin, end in _fit(logs, _price(logs)) if end - begin >= LEAST_POINTS]
    segments = _without_small(segments, logs, math.log1p(threshold))
    levels = [math.exp(statistics.median(logs[begin:end])) for begin, end in segments]
    return [(segments[at][0], levels[at - 1], levels[at]) for at in range(1, len(segments))]


def _price(logs):
    """Price of a step, in units of the absolute deviations of `logs`; higher for a noisy kernel or a long history.

    A step adds two parameters. With Laplace noise of scale b, the Bayesian information criterion requires a gain of
    b * log(n) / 2 per parameter. The price is doubled, because noise of benchmarks has heavier tails.
    """
    noise = statistics.median(abs(after - before) for before, after in zip(logs, logs[1:]))
    return 2 * max(noise, _LEAST_NOISE) * math.log(len(logs))


def _fit(logs, price):
    """[(begin, end)] of the levels: dynamic programming over points x candidate levels, O(points * levels)."""
    levels = _candidates(logs)
    costs = [abs(logs[0] - level) for level in levels]
    origins = []  # for each point after the first: the level before it, for each level
    for value in logs[1:]:
        cheapest = min(range(len(levels)), key=costs.__getitem__)
        switch = costs[cheapest] + price
        origins.append([at if cost <= switch else cheapest for at, cost in enumerate(costs)])
        costs = [min(cost, switch) + abs(value - level) for cost, level in zip(costs, levels)]

    at, end, segments = min(range(len(levels)), key=costs.__getitem__), len(logs), []
    for point in range(len(logs) - 1, 0, -1):
        origin = origins[point - 1][at]
        if origin != at:
            segments.append((point, end))
            at, end = origin, point
    segments.append((0, end))
    return segments[::-1]


def _candidates(logs):
    """Candidate levels: the distinct data, since a median is one of them; even quantiles if more than _LEVELS."""
    values = sorted(set(logs))
    if len(values) <= _LEVELS:
        return values
    return [values[round(at * (len(values) - 1) / (_LEVELS - 1))] for at in range(_LEVELS)]


def _without_small(segments, logs, least):
    """Joins neighbours whose levels differ by less than `least`, the closest pair first."""
    segments = list(segments)
    while len(segments) > 1:
        levels = [statistics.median(logs[begin:end]) for begin, end in segments]
        gaps = [abs(after - before) for before, after in zip(levels, levels[1:])]
        at = min(range(len(gaps)), key=gaps.__getitem__)
        if gaps[at] >= least:
            break
        segments[at : at + 2] = [(segments[at][0], segments[at + 1][1])]
    return segments
