"""When a kernel is called SLOW, FAST or the SAME: pure functions on numbers, every threshold named here.

A repetition is one visit to a kernel: typical() of a process's cold samples in `./ladder compare --live`, the median
of a few consecutive rounds between records. A is the older side, B the newer, a ratio is B / A: above 1, B is slower.

The statistics are written out because SciPy has no better ones. Its bootstrap resamples: the median of 9 values takes
24 ms instead of 1.4 us and has the same interval, and of 18 values a narrower one, as the exact interval goes to the
outer of two middle values. It has no Qn; the median absolute deviation of 9 values varies by 40 % of its mean, Qn's by
33 %. And the dashboard, which asks this rule, would need SciPy and NumPy, 200 MB, to be checked.
"""

import math
import statistics
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache

SLOW, FAST, SAME, AMBIGUOUS, MISSING, UNTRUSTED = "SLOW", "FAST", "SAME", "AMBIGUOUS", "MISSING", "UNTRUSTED"
STATUSES = (SLOW, UNTRUSTED, MISSING, AMBIGUOUS, FAST, SAME)  # the worst first
CALLS = (SLOW, FAST)

# With fewer, no interval of 99 % excludes an outlier or two.
LEAST_REPETITIONS = 9

# Of the bootstrap interval of the median ratio.
CONFIDENCE = 0.99

# A change must exceed the larger of LEAST_CHANGE and NOISE_FACTOR times the kernel's own noise. 1 % is what clocks,
# memory placement and the flush's leftovers do to a kernel of 10 to 30 us between two processes on an H200; three
# standard errors leave one false call in 370, before cycles and the second run have had their say.
LEAST_CHANGE = 0.01
NOISE_FACTOR = 3.0

# Beyond this threshold "nothing changed" would be an empty phrase, so it is not said.
MOST_THRESHOLD = 0.05

# What a ratio of two records varies by that no scatter inside either of them shows: processes place memory differently
# and follow other kernels. Two records of one set of kernels on two H200s (94 of bf16, aac72fd and 6322ce0): ratios
# scatter by 0.36 %, 0.25 % of it seen inside the records, so 0.26 % remains; doubled, because cards differ, and because
# the tails are long: of 376 pairs of medians of one cuDNN plan within one record, one in fifty is 1.9 % apart.
BETWEEN_RECORDS = 0.005

# A side is bimodal if its repetitions fall into two groups, the smaller with at least this share, further apart than
# either group is wide and further than LEAST_CHANGE: its median says which mode won, not how fast the kernel is.
LEAST_MODE_SHARE = 0.3

# typical() leaves out one in this many at either end.
_CUT = 10

# A clock that moved less than this is not named as the reason.
LEAST_CLOCK_CHANGE = 0.005


@dataclass(frozen=True)
class Repetitions:
    """One side. `candle` is the time of the baseline's plan that was sampled in turn, repetition by repetition."""

    seconds: list
    cycles: list
    candle: "list | None" = None
    tick: float = 0.0  # seconds between two readings of the clock; 0 where it is too fine to show

    @property
    def rounding(self):
        """The standard error of a ratio of two readings that no scatter shows: all repetitions may stand on one tick."""
        return self.tick / math.sqrt(12) / statistics.median(self.seconds)


@dataclass(frozen=True)
class Verdict:
    status: str
    reason: str = ""
    ratio: float = math.nan  # of the median times
    low: float = math.nan  # the interval of CONFIDENCE
    high: float = math.nan
    noise: float = math.nan  # one standard error of the ratio where nothing changed
    threshold: float = math.nan  # 0.01 is 1 %
    cycles_ratio: float = math.nan
    candle_ratio: float = math.nan  # of the times in units of the baseline's plan; nan without one

    @property
    def is_call(self):
        return self.status in CALLS


@dataclass(frozen=True)
class Change:
    """One figure of both sides, judged: `least` is LEAST_CHANGE of another kind of measurement, `most` its MOST_THRESHOLD."""

    ratio: float
    low: float
    high: float
    noise: float
    least: float = LEAST_CHANGE
    most: float = MOST_THRESHOLD

    @property
    def threshold(self):
        return max(self.least, NOISE_FACTOR * self.noise)

    @property
    def side(self):
        """SLOW or FAST by interval and threshold both, else SAME."""
        excludes_1 = self.low > 1 or self.high < 1
        return side_of(self.ratio, self.threshold) if excludes_1 else SAME

    @property
    def is_none(self):
        """Whether the interval shows that there is no change of `threshold`."""
        small = 1 / (1 + self.threshold) <= self.low and self.high <= 1 + self.threshold
        return small and self.threshold <= self.most


def judge(a, b, interleaved=True, no_candle="", other_card=False):
    """The verdict on Repetitions `a` and `b`.

    interleaved: a[i] and b[i] were measured next to each other, so the ratio is taken pair by pair; else in two records.
    no_candle: where they were not interleaved, why no standard candle stands for that.
    other_card: they were measured on two cards of one model, so what the candle shows as well is the card's.
    """
    for side in (a, b):
        if len(side.seconds) < LEAST_REPETITIONS:
            return Verdict(
                AMBIGUOUS, f"too few repetitions: {len(side.seconds)}, at least {LEAST_REPETITIONS} are needed"
            )
    if interleaved and len(a.seconds) != len(b.seconds):
        return Verdict(AMBIGUOUS, f"not interleaved: {len(a.seconds)} repetitions of A, {len(b.seconds)} of B")

    least = (a.rounding, b.rounding)
    time = _change(a.seconds, b.seconds, interleaved, least)
    cycles = _change(a.cycles, b.cycles, interleaved, least)
    candle = None
    if not interleaved and not no_candle:
        candle = _change(_over(a.seconds, a.candle), _over(b.seconds, b.candle), False, least)
    status, reason = _decide(a, b, time, cycles, candle, no_candle, other_card)
    figures = (time.ratio, time.low, time.high, time.noise, time.threshold, cycles.ratio)
    return Verdict(status, reason, *figures, candle.ratio if candle else math.nan)


def settled(first, second, both):
    """The verdict after a second run: `first` and `second` are the runs' own, `both` is that on all their repetitions.

    A call stands if the second run bears it out: its interval leaves out 1, by 1 % and on the same side, or all
    repetitions together make the same call. The second run need not clear 3 x its own noise again: two independent runs
    that agree so far are no coincidence. What the first run left open is decided by all repetitions together, and is
    SLOW or FAST only if each run by itself points there.
    """
    called = first.status if first.is_call else both.status
    if called not in CALLS or both.status in (MISSING, UNTRUSTED):
        return both
    excludes_1 = second.low > 1 if called == SLOW else second.high < 1
    points = {side_of(ratio, LEAST_CHANGE) for run in (first, second) for ratio in (run.ratio, run.cycles_ratio)}
    if points == {called} and (excludes_1 or both.status == called):
        return both if both.status == called else first
    reason = f"not confirmed: {percent(first.ratio)}, in a second run {percent(second.ratio)}"
    return replace(both, status=AMBIGUOUS, reason=reason)


def typical(samples):
    """The figure of one process: the mean of its samples without the tenth at either end. Where samples fall into two
    modes, as those of short kernels do, a median jumps between the modes from process to process; a mean does not."""
    samples = sorted(samples)
    cut = len(samples) // _CUT
    return statistics.fmean(samples[cut : len(samples) - cut])


def side_of(ratio, threshold):
    """SLOW or FAST if `ratio` leaves the band of `threshold` around 1, else SAME."""
    if ratio > 1 + threshold:
        return SLOW
    return FAST if ratio < 1 / (1 + threshold) else SAME


def qn(values):
    """Rousseeuw and Croux's Qn (JASA 88, 1993): a standard deviation that half of the values cannot spoil, and that
    wastes less of nine values than the median absolute deviation does (efficiency 82 % against 37 % on normal ones)."""
    count = len(values)
    distances = sorted(abs(x - y) for at, x in enumerate(values) for y in values[:at])
    half = count // 2 + 1
    if count <= 9:
        correction = (0, 0, 0.399, 0.994, 0.512, 0.844, 0.611, 0.857, 0.669, 0.872)[count]
    else:
        correction = count / (count + (1.4 if count % 2 else 3.8))
    return 2.2219 * correction * distances[half * (half - 1) // 2 - 1]


def standard_error(values):
    """Of the logarithm of the median of positive `values`: sqrt(pi / 2) sigma / sqrt(n), with Qn for sigma."""
    return math.sqrt(math.pi / 2) * qn([math.log(value) for value in values]) / math.sqrt(len(values))


def median_interval(values, confidence=CONFIDENCE):
    """The bootstrap's interval of the median, from its exact distribution instead of from resamples."""
    values = sorted(values)
    low, high = _bootstrap_ranks(len(values), (1 - confidence) / 2)
    return values[low], values[high]


def ratio_interval(a, b, confidence=CONFIDENCE):
    """The bootstrap's interval of median(b) / median(a), both resampled on their own; exact as well."""
    tail = (1 - confidence) / 2
    low = _quantile(_ratios(_medians(a, "high"), _medians(b, "low")), tail)
    high = _quantile(_ratios(_medians(a, "low"), _medians(b, "high")), 1 - tail)
    return low, high


def modes(values):
    """((count, median), (count, median)) of the two groups of bimodal `values`, or None."""
    values = sorted(values)
    least = max(2, math.ceil(LEAST_MODE_SHARE * len(values)))
    splits = range(least, len(values) - least + 1)
    if not splits:
        return None
    at = max(splits, key=lambda split: values[split] / values[split - 1])
    lower, upper = values[:at], values[at:]
    gap = upper[0] / lower[-1]
    if gap <= 1 + LEAST_CHANGE or gap <= max(lower[-1] / lower[0], upper[-1] / upper[0]):
        return None
    return (len(lower), statistics.median(lower)), (len(upper), statistics.median(upper))


def percent(ratio):
    return f"{100 * (ratio - 1):+.1f} %"


def told(change):
    """The ratio and the interval of a Change or a Verdict."""
    return f"{percent(change.ratio)} [{percent(change.low)} .. {percent(change.high)}]"


def of_pairs(ratios, noise, **bounds):
    """The Change of sides that were measured next to each other."""
    return Change(statistics.median(ratios), *median_interval(ratios), noise, **bounds)


def _change(a, b, interleaved, least):
    errors = [max(standard_error(side), floor) for side, floor in zip((a, b), least)]
    noise = math.sqrt(errors[0] ** 2 + errors[1] ** 2 + (0 if interleaved else BETWEEN_RECORDS**2))
    if interleaved:
        return of_pairs([y / x for x, y in zip(a, b)], noise)
    return Change(statistics.median(b) / statistics.median(a), *ratio_interval(a, b), noise)


def _decide(a, b, time, cycles, candle, no_candle, other_card):
    split = _bimodal(a, b, time)
    if split:
        return AMBIGUOUS, split
    if other_card and candle and candle.is_none:
        return SAME, ""
    if time.side != SAME:
        return _call(time, cycles, candle, no_candle)
    if time.threshold > MOST_THRESHOLD:
        return AMBIGUOUS, f"too noisy: no change below {100 * time.threshold:.1f} % would show"
    if not time.is_none:
        return AMBIGUOUS, f"undecided: {told(time)} against a threshold of {100 * time.threshold:.1f} %"
    if candle and candle.side != SAME:
        return AMBIGUOUS, (
            f"its time is the same, but against the baseline's plan, sampled in turn, it changed by "
            f"{percent(candle.ratio)}"
        )
    return SAME, ""


def _bimodal(a, b, time):
    """The reason in words, or "". Modes that are too close to explain the change do not excuse it."""
    for name, side in (("A", a), ("B", b)):
        found = modes(side.seconds)
        if not found:
            continue
        (few, low), (many, high) = found
        unexplained = max(time.ratio, 1 / time.ratio) / (high / low)
        if time.side == SAME or unexplained <= 1 + time.threshold:
            return (
                f"bimodal: of {name}'s repetitions {few} are near {1e6 * low:.4g} us and {many} near "
                f"{1e6 * high:.4g} us"
            )
    return ""


def _call(time, cycles, candle, no_candle):
    """A change in time is a change of the kernel only if cycles, and between records the candle, say the same."""
    if side_of(cycles.ratio, time.threshold) != time.side:
        clock = cycles.ratio / time.ratio
        what = f"time {percent(time.ratio)}, cycles {percent(cycles.ratio)}"
        if abs(clock - 1) < LEAST_CLOCK_CHANGE:
            return AMBIGUOUS, f"cycles do not confirm it: {what}"
        return AMBIGUOUS, f"the SM clock {'fell' if clock < 1 else 'rose'} {100 * abs(clock - 1):.1f} %: {what}"
    if no_candle:
        return AMBIGUOUS, f"{percent(time.ratio)}, but not interleaved and {no_candle}: --live decides"
    if candle and candle.side != time.side:
        return AMBIGUOUS, (
            f"{percent(time.ratio)}, but against the baseline's plan, sampled in turn, {told(candle)}: --live decides"
        )
    return time.side, ""


def _over(values, candle):
    return [value / unit for value, unit in zip(values, candle)]


def _medians(values, which):
    """[(median of a resample of `values`, its probability)], the lower or the upper one where the count is even."""
    values = sorted(values)
    return list(zip(values, _median_probabilities(len(values), which)))


@cache
def _median_probabilities(count, which):
    """Probabilities that the median of a bootstrap resample is the 1st, 2nd, ... of `count` sorted values.

    The median of a resample is at most the k-th value if at least half of the draws are, each with probability k /
    count: a binomial tail, so nothing has to be drawn (Efron, Annals of Statistics 7, 1979). An even count has two
    middle ones.
    """
    needed = (count + 1) // 2 if which == "low" else count // 2 + 1
    at_most = [_tail(count, k / count, needed) for k in range(count + 1)]
    return [upper - lower for lower, upper in zip(at_most, at_most[1:])]


@cache
def _bootstrap_ranks(count, tail):
    """Indices of the sorted values that bound the median's bootstrap interval."""
    ranks = []
    for which, share in (("low", tail), ("high", 1 - tail)):
        ranks.append(_quantile(list(zip(range(count), _median_probabilities(count, which))), share))
    return ranks


def _tail(count, probability, needed):
    return sum(
        math.comb(count, k) * probability**k * (1 - probability) ** (count - k) for k in range(needed, count + 1)
    )


def _ratios(a, b):
    return sorted((y / x, p * q) for x, p in a for y, q in b)


def _quantile(distribution, share):
    """The least value whose cumulated probability reaches `share`; `distribution` is sorted."""
    sums, total = [], 0.0
    for _, probability in distribution:
        total += probability
        sums.append(total)
    return distribution[min(bisect_left(sums, share), len(distribution) - 1)][0]
