"""Packs the page's data for its script: gzip in base64, histories as differences of whole numbers.

A time of a history is a logarithm in whole steps of 1/2048: within 0.025 % of the record, a fortieth of the smallest change
that is ever called. Medians of the newest record have seven digits.
"""

import base64
import gzip
import json
import math

STEPS = 2048  # of the logarithm's base e
BASE = 1e-10  # seconds: the step 0, which stands for no time


def text(value):
    """Text, or a value as JSON, compressed. Throws ValueError where a number is not finite."""
    if not isinstance(value, str):
        value = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(value.encode(), 9, mtime=0)).decode()


def history(points):
    """[records, medians, lows, highs, baselines] of points in that order, as differences to the point before; lows and highs
    as steps from the median."""
    rows = [(record, step(mid), step(low), step(high), step(base)) for record, mid, low, high, base, _ in points]
    records, medians, lows, highs, baselines = zip(*rows)
    return [
        _differences(records),
        _differences(medians),
        [median - low for median, low in zip(medians, lows)],
        [high - median for median, high in zip(medians, highs)],
        _differences(baselines),
    ]


def step(seconds):
    return max(round(STEPS * math.log(seconds / BASE)), 1) if seconds else 0


def seconds(number):
    """A step as the page reads it."""
    return BASE * math.exp(number / STEPS) if number else None


def _differences(values):
    return [after - before for before, after in zip((0, *values), values)]
