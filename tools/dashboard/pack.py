"""Packs the page's data: text and columns of numbers, deflated and in base64, for the page's unpack.js to undo.

Histories are most of it, so their times are kept as logarithms in whole steps of 1/2048: within 0.025 % of the record,
a fortieth of the smallest change that is ever called. The two newest records of each series are kept as float32 samples
(within 0.000006 %), and their medians to seven digits.
"""

import array
import base64
import json
import math
import sys
import zlib

STEPS = 2048  # of the logarithm's base e
BASE = 1e-10  # seconds: the step 0
NOTHING = 0xFFFF  # no time
_LARGEST = NOTHING - 1  # exp(65534 / 2048) * 0.1 ns: two hours


def text(value):
    """JSON, deflated. Throws ValueError where a number is not finite."""
    return _deflated(json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode())


def floats(values):
    return _deflated(_little("f", values).tobytes())


def columns(histories):
    """Histories as byte planes; each is a list of points (record, median, low, high, baseline, status code).

    A record's number and the two medians are kept as differences to the point before, in 16 bits that wrap around; the
    interval's ends as steps below and above the median. Low bytes first, then high bytes, which deflate to nothing.
    """
    planes = [[] for _ in range(5)]
    codes = bytearray()
    for points in histories:
        before = (0, 0, 0)
        for record, median, low, high, baseline, code in points:
            now = (record, step(median), step(baseline))
            planes[0].append(_zigzag(now[0] - before[0]))
            planes[1].append(_zigzag(now[1] - before[1]))
            planes[2].append(0 if median is None else _within(now[1] - step(low)))
            planes[3].append(0 if median is None else _within(step(high) - now[1]))
            planes[4].append(_zigzag(now[2] - before[2]))
            codes.append(code)
            before = now
    raw = b"".join(bytes(value >> shift & 0xFF for value in plane) for plane in planes for shift in (0, 8))
    return _deflated(raw + bytes(codes))


def step(seconds):
    """The nearest step of the logarithmic scale, or NOTHING."""
    if seconds is None:
        return NOTHING
    return min(max(round(STEPS * math.log(seconds / BASE)), 0), _LARGEST)


def seconds(number):
    """What the page makes of a step."""
    return None if number == NOTHING else BASE * math.exp(number / STEPS)


def _zigzag(difference):
    """Small differences of either sign as small numbers, modulo 2^16."""
    difference = (difference + 0x8000) % 0x10000 - 0x8000
    return (2 * difference if difference >= 0 else -2 * difference - 1) & 0xFFFF


def _within(value):
    return min(max(value, 0), 0xFFFF)


def _little(kind, values):
    column = array.array(kind, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column


def _deflated(raw):
    return base64.b64encode(zlib.compress(raw, 9)).decode()
