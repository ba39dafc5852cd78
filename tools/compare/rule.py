"""Decision rule for SLOW, FAST and SAME: pure functions on numbers, with every threshold named here.

A is the older side, B the newer. A ratio is B / A: above 1, B is slower. A repetition is one visit to a kernel: live,
typical() of one process's cold samples; between records, the median of a few consecutive rounds.

The statistics are implemented here because SciPy has no better ones. SciPy's bootstrap resamples: for the median of 9
values it takes 24 ms instead of 1.4 us and gives the same interval; for 18 values its interval is narrower, because the
exact interval extends to the outer of the two middle values. SciPy has no Qn: the median absolute deviation of 9 values
varies by 40 % of its mean, Qn by 33 %. The dashboard uses this rule; checking it would need SciPy and NumPy, 200 MB.
"""

import math
import statistics
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cache

SLOW, FAST, SAME, AMBIGUOUS, MISSING, UNTRUSTED = "SLOW", "FAST", "SAME", "AMBIGUOUS", "MISSING", "UNTRUSTED"
STATUSES = (SLOW, UNTRUSTED, MISSING, AMBIGUOUS, FAST, SAME)  # the worst first
CALLS = (SLOW, FAST)

# Repetitions needed for a verdict: with fewer, no 99 % interval excludes an outlier or two.
LEAST_REPETITIONS = 9

# Confidence level of the bootstrap interval of the median ratio.
CONFIDENCE = 0.99

# A change must exceed max(LEAST_CHANGE, NOISE_FACTOR times the kernel's own noise). Clocks, memory placement and
# residue of the cache flush change a kernel of 10 to 30 us by 1 % between two processes on an H200. Three standard
# errors leave one false call in 370, before the checks by cycles and by the second run.
LEAST_CHANGE = 0.01
NOISE_FACTOR = 3.0

# Largest threshold for SAME: above it, "nothing changed" would mean nothing.
MOST_THRESHOLD = 0.05

# Standard error of a ratio between two records that the scatter inside the records does not show: processes place
# memory differently and follow other kernels. Measured on two records of one set of kernels on two H200s (94 of bf16,
# aac72fd and 6322ce0): ratios scatter by 0.36 %, of which 0.25 % shows inside the records, so 0.26 % remains. The value
# is doubled, because cards differ and the tails are long: of 376 pairs of medians of one cuDNN plan within one record,
# one in fifty differs by 1.9 %.
BETWEEN_RECORDS = 0.005

# A side is bimodal if its repetitions form two groups, the smaller with at least this share, and the gap exceeds both
# groups' widths and LEAST_CHANGE. A bimodal side's median tells which mode won, not how fast the kernel is.
LEAST_MODE_SHARE = 0.3

# typical() drops 1 / _CUT of the sorted samples at each end.
_CUT = 10

# Relative change of the SM clock below which a verdict does not name the clock as the reason.
LEAST_CLOCK_CHANGE = 0.005


@dataclass(frozen=True)
class Repetitions:
    """Measurements of one side, one value per repetition. `candle`: seconds of the baseline's plan, sampled in turn."""

    seconds: list
    cycles: list
    candle: "list | None" = None
    tick: float = 0.0  # resolution of the timer, seconds; 0 if negligible

    @property
    def rounding(self):
        """Relative standard error by the timer's resolution: no scatter shows it if all repetitions read one tick."""
        return self.tick / math.sqrt(12) / statistics.median(self.seconds)


@dataclass(frozen=True)
class Verdict:
    status: str
    reason: str = ""
    ratio: float = math.nan  # of the median times
    low: float = math.nan  # the interval of CONFIDENCE
    high: float = math.nan
    noise: float = math.nan  # one standard error of the ratio if nothing changed
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
        """Returns True if the interval excludes a change of `threshold`, which is at most `most`."""
        small = 1 / (1 + self.threshold) <= self.low and self.high <= 1 + self.threshold
        return small and self.threshold <= self.most


def judge(a, b, interleaved=True, no_candle="", other_card=False):
    """The verdict on Repetitions `a` and `b`.

    interleaved: a[i] and b[i] were measured next to each other, so the ratio is the median of the pairwise ratios; else in
        two records.
    no_candle: if not interleaved, the reason why no time of a baseline's plan replaces interleaving; "" with a candle.
    other_card: measured on two cards of one model; a change that the candle shows too is the card's.
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
    """The final Verdict. `first` and `second` are the verdicts of each run, `both` is that of all repetitions together.

    SLOW or FAST of the first run stands if both runs' ratios, in time and in cycles, differ by 1 % in that direction,
    and the second run's interval excludes 1 or `both` agrees. The second run need not exceed 3 x its own noise again:
    agreement of two independent runs is no coincidence. If the first run was AMBIGUOUS, `both` decides; it is SLOW or
    FAST only if each run by itself points in that direction.
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
    """Trimmed mean of one process's samples, without the tenth at each end. Samples of short kernels have two modes:
    their median jumps between the modes from process to process, their mean does not."""
    samples = sorted(samples)
    cut = len(samples) // _CUT
    return statistics.fmean(samples[cut : len(samples) - cut])


def side_of(ratio, threshold):
    """SLOW or FAST if `ratio` leaves the band of `threshold` around 1, else SAME."""
    if ratio > 1 + threshold:
        return SLOW
    return FAST if ratio < 1 / (1 + threshold) else SAME


def qn(values):
    """Rousseeuw and Croux's Qn (JASA 88, 1993): a robust standard deviation with a breakdown point of one half, and
    more efficient than the median absolute deviation (82 % against 37 % on normal values)."""
    count = len(values)
    distances = sorted(abs(x - y) for at, x in enumerate(values) for y in values[:at])
    half = count // 2 + 1
    if count <= 9:
        correction = (0, 0, 0.399, 0.994, 0.512, 0.844, 0.611, 0.857, 0.669, 0.872)[count]
    else:
        correction = count / (count + (1.4 if count % 2 else 3.8))
    return 2.2219 * correction * distances[half * (half - 1) // 2 - 1]


def standard_error(values):
    """Standard error of log(median) of positive `values`: sqrt(pi / 2) sigma / sqrt(n), with Qn for sigma."""
    return math.sqrt(math.pi / 2) * qn([math.log(value) for value in values]) / math.sqrt(len(values))


def median_interval(values, confidence=CONFIDENCE):
    """Bootstrap interval of the median, from the exact distribution instead of resamples."""
    values = sorted(values)
    low, high = _bootstrap_ranks(len(values), (1 - confidence) / 2)
    return values[low], values[high]


def ratio_interval(a, b, confidence=CONFIDENCE):
    """Bootstrap interval of median(b) / median(a), `a` and `b` resampled independently; exact too."""
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
    """The reason if a bimodal side may explain the change, else "". Modes too close to explain it do not count."""
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
    """(status, reason) for a change in time: SLOW or FAST only if cycles, and between records the candle, agree."""
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
    """[(median of a resample of `values`, its probability)]; `which`: "low" or "high" middle value of an even count."""
    values = sorted(values)
    return list(zip(values, _median_probabilities(len(values), which)))


@cache
def _median_probabilities(count, which):
    """Probabilities that the median of a bootstrap resample is the 1st, 2nd, ... of `count` sorted values.

    A resample's median is at most the k-th value if at least half of the draws are. Each draw is, with probability k /
    count, so the probability is a binomial tail and nothing is drawn (Efron, Annals of Statistics 7, 1979). An even
    count has two middle values; `which` is "low" or "high".
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
    """The least value whose cumulative probability reaches `share`; `distribution`: [(value, probability)], sorted."""
    sums, total = [], 0.0
    for _, probability in distribution:
        total += probability
        sums.append(total)
    return distribution[min(bisect_left(sums, share), len(distribution) - 1)][0]
