"""Steps in the history of one kernel: where its time moved to another level and stayed there.

The idea is asv's (airspeed velocity, step_detect.py): the piecewise-constant function with the least sum of absolute
deviations, where each further step must pay for itself. Absolute deviations, not squares, because single outliers are
common and must not become steps.
"""

import math
import statistics

THRESHOLD = 0.05  # a smaller change of level is no step
LEAST_POINTS = 2  # of a level: one odd record is an outlier, and `./ladder compare` is there for the newest
_LEVELS = 64  # candidates for a level; a history with more distinct values is cut into quantiles
_LEAST_NOISE = 0.001  # relative: below that, records differ by rounding and luck


def steps(times, threshold=THRESHOLD):
    """[(index of the first point of the new level, level before, level after)] of a list of seconds, in its order."""
    if len(times) < 2 * LEAST_POINTS:
        return []
    logs = [math.log(time) for time in times]
    segments = [(begin, end) for begin, end in _fit(logs, _price(logs)) if end - begin >= LEAST_POINTS]
    segments = _without_small(segments, logs, math.log1p(threshold))
    levels = [math.exp(statistics.median(logs[begin:end])) for begin, end in segments]
    return [(segments[at][0], levels[at - 1], levels[at]) for at in range(1, len(segments))]


def _price(logs):
    """What a step costs, in the currency of the deviations: more where the kernel is noisy or its history long.

    A step adds two parameters; with Laplace noise of scale b the Bayesian information criterion wants each to bring
    b * log(n) / 2. Doubled, since the noise of benchmarks has heavier tails than that.
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
    """A median is one of the data, so the data are all the levels there can be; of many, evenly spaced quantiles."""
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
