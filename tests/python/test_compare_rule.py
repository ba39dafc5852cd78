"""The rule of ./ladder compare: its statistics against simulations, its verdicts on noise resampled from records."""

import math
import random
import statistics
from collections import Counter
from pathlib import Path

import pytest

from compare import records, rule
from records import record_files

ROOT = Path(__file__).resolve().parents[2]

# Commits whose records the noise is taken from, so that new records do not change what is tested.
NOISE_OF = ("aac72fd", "aea50fc")

# Standard deviation between processes, as BETWEEN_RECORDS has it for a ratio of two.
BETWEEN_PROCESSES = rule.BETWEEN_RECORDS / math.sqrt(2)


def repetitions(seconds, clock=1.98e9, candle=None):
    clocks = clock if isinstance(clock, list) else [clock] * len(seconds)
    return rule.Repetitions(seconds, [value * hertz for value, hertz in zip(seconds, clocks)], candle)


def around(seconds, noise=0.001, count=9, seed=1):
    rng = random.Random(seed)
    return [seconds * math.exp(rng.gauss(0, noise)) for _ in range(count)]


def test_the_exact_bootstrap_is_the_limit_of_resampling():
    rng = random.Random(2)
    for count in (9, 12):
        values = around(1.0, 0.05, count)
        medians = sorted(statistics.median(rng.choices(values, k=count)) for _ in range(40000))
        low, high = rule.median_interval(values, 0.90)
        assert low <= medians[2000] * 1.0001
        assert high * 1.0001 >= medians[38000]
        if count % 2:  # an even count's median lies between two values, and the interval goes to the outer ones
            assert low == pytest.approx(medians[2000], abs=5e-13)
            assert high == pytest.approx(medians[38000], abs=5e-13)


def test_the_interval_of_a_ratio_is_that_of_resampling():
    rng = random.Random(3)
    a, b = around(1.0, 0.03, seed=4), around(1.1, 0.03, seed=5)
    ratios = sorted(
        statistics.median(rng.choices(b, k=9)) / statistics.median(rng.choices(a, k=9)) for _ in range(40000)
    )
    low, high = rule.ratio_interval(a, b, 0.95)
    assert low == pytest.approx(ratios[1000], abs=0.004)
    assert high == pytest.approx(ratios[39000], abs=0.004)


@pytest.mark.parametrize("which", ["low", "high"])
@pytest.mark.parametrize("count", [9, 10, 15, 30])
def test_probabilities_of_the_resampled_median_sum_to_one(count, which):
    assert sum(rule._median_probabilities(count, which)) == pytest.approx(1.0, abs=5e-13)


def test_qn_is_a_standard_deviation_and_ignores_outliers():
    rng = random.Random(6)
    for count in (9, 15, 30):
        samples = [[rng.gauss(0, 2) for _ in range(count)] for _ in range(3000)]
        assert statistics.mean(map(rule.qn, samples)) == pytest.approx(2.0, abs=0.06)
    assert rule.qn([1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98, 50.0, 80.0]) < 0.4


def test_the_standard_error_is_that_of_the_median():
    rng = random.Random(7)
    samples = [[math.exp(rng.gauss(0, 0.02)) for _ in range(9)] for _ in range(3000)]
    true = statistics.stdev(math.log(statistics.median(sample)) for sample in samples)
    estimated = statistics.mean(map(rule.standard_error, samples))
    assert estimated / true == pytest.approx(1.05, abs=0.06)  # of nine values a little too large, which is safe


def test_the_figure_of_a_process_ignores_outliers_and_does_not_jump_between_modes():
    assert rule.typical([1.0] * 13 + [0.1, 9.0]) == pytest.approx(1.0, abs=5e-8)
    assert rule.typical([3.0]) == 3.0
    seven, eight = [1.0] * 8 + [1.1] * 7, [1.0] * 7 + [1.1] * 8  # their medians are 10 % apart
    assert rule.typical(eight) / rule.typical(seven) < 1.01


def test_slow_and_fast():
    a, b = repetitions(around(20e-6)), repetitions(around(20.6e-6, seed=2))
    slow, fast = rule.judge(a, b), rule.judge(b, a)
    assert (slow.status, slow.reason, fast.status) == (rule.SLOW, "", rule.FAST)
    assert slow.ratio == pytest.approx(1.03, abs=0.002)
    assert 1 < slow.low <= slow.ratio <= slow.high


def test_the_same_input_gives_the_same_verdict():
    a, b = repetitions(around(20e-6, 0.01)), repetitions(around(20.3e-6, 0.01, seed=2))
    assert rule.judge(a, b) == rule.judge(a, b)


def test_a_significant_change_below_one_percent_is_the_same():
    verdict = rule.judge(repetitions(around(20e-6, 0.0002)), repetitions(around(20.1e-6, 0.0002, seed=2)))
    assert verdict.status == rule.SAME
    assert verdict.low > 1  # significant, and yet


def test_a_change_within_three_times_the_noise_is_not_called():
    verdict = rule.judge(repetitions(around(20e-6, 0.02)), repetitions([1.03 * x for x in around(20e-6, 0.02)]))
    assert verdict.threshold > 0.03
    assert verdict.status not in (rule.SLOW, rule.FAST)


def test_too_few_repetitions():
    a = repetitions(around(20e-6, count=8))
    verdict = rule.judge(a, repetitions(around(40e-6, count=8)))
    assert verdict.status == rule.AMBIGUOUS
    assert "too few repetitions: 8" in verdict.reason


def test_a_clock_change_is_not_a_slow_kernel():
    a = repetitions(around(20e-6), 1.98e9)
    verdict = rule.judge(a, repetitions([x / 0.93 for x in around(20e-6, seed=2)], 0.93 * 1.98e9))
    assert verdict.status == rule.AMBIGUOUS
    assert "the SM clock fell 7.0 %" in verdict.reason


def test_a_slow_kernel_at_a_lower_clock_is_still_slow():
    verdict = rule.judge(repetitions(around(20e-6)), repetitions([1.1 * x for x in around(20e-6)], 0.97 * 1.98e9))
    assert verdict.status == rule.SLOW


def test_bimodal():
    b = [20e-6, 20.02e-6, 22e-6, 22.03e-6, 20.01e-6, 22.01e-6, 22.02e-6, 20.03e-6, 22.04e-6]
    verdict = rule.judge(repetitions(around(20e-6)), repetitions(b))
    assert verdict.status == rule.AMBIGUOUS
    assert "bimodal: of B's repetitions 4 are near 20.02 us and 5 near 22.02 us" in verdict.reason


def test_modes_that_explain_nothing_do_not_hide_a_regression():
    b = [1.3 * x for x in (20e-6, 20.02e-6, 22e-6, 22.03e-6, 20.01e-6, 22.01e-6, 22.02e-6, 20.03e-6, 22.04e-6)]
    assert rule.judge(repetitions(around(20e-6)), repetitions(b)).status == rule.SLOW


def test_too_noisy_to_say_the_same():
    verdict = rule.judge(repetitions(around(20e-6, 0.08)), repetitions(around(20e-6, 0.08, seed=9)))
    assert verdict.status == rule.AMBIGUOUS
    assert "too noisy" in verdict.reason


def test_drift_of_both_sides_cancels_in_pairs():
    drift = [1 + 0.002 * at for at in range(9)]
    a = [x * d for x, d in zip(around(20e-6, 0.0005), drift)]
    b = [1.03 * x * d for x, d in zip(around(20e-6, 0.0005, seed=2), drift)]
    verdict = rule.judge(repetitions(a), repetitions(b))
    assert verdict.status == rule.SLOW
    assert verdict.high - verdict.low < 0.004


def test_without_interleaving_the_candle_decides():
    a, b, steady = around(20e-6), around(20.8e-6, seed=2), around(30e-6, seed=3)

    def judge(candle, **more):
        return rule.judge(repetitions(a, candle=steady), repetitions(b, candle=candle), interleaved=False, **more)

    assert judge(around(30e-6, seed=4)).status == rule.SLOW
    both = judge(around(31.2e-6, seed=4))
    assert both.status == rule.AMBIGUOUS
    assert "against the baseline's plan" in both.reason
    none = judge(None, no_candle="there is no baseline beside it")
    assert none.status == rule.AMBIGUOUS
    assert "not interleaved and there is no baseline beside it: --live decides" in none.reason


def pooled(first, second):
    return rule.Repetitions(first.seconds + second.seconds, first.cycles + second.cycles)


def settled(first, second):
    (a, b), (c, d) = first, second
    return rule.settled(rule.judge(a, b), rule.judge(c, d), rule.judge(pooled(a, c), pooled(b, d)))


def test_a_second_run_confirms_a_call_or_not():
    a, slower = repetitions(around(20e-6)), repetitions(around(20.6e-6, seed=2))
    assert settled((a, slower), (a, slower)).status == rule.SLOW
    for second in ((a, repetitions(around(20e-6, seed=3))), (slower, a)):
        verdict = settled((a, slower), second)
        assert verdict.status == rule.AMBIGUOUS
        assert "not confirmed: +3." in verdict.reason
    gone = rule.Verdict(rule.MISSING, "not in B")
    assert rule.settled(rule.judge(a, slower), gone, gone) == gone


def test_a_second_run_decides_what_the_first_left_open():
    open_first = rule.Verdict(rule.AMBIGUOUS, "undecided", 1.02, 0.999, 1.04, cycles_ratio=1.02)
    slow, level = rule.Verdict(rule.SLOW, "", 1.021, 1.012, 1.03, cycles_ratio=1.021), rule.Verdict(rule.SAME)
    assert rule.settled(open_first, slow, slow) == slow
    assert rule.settled(open_first, level, level) == level
    other_way = rule.Verdict(rule.AMBIGUOUS, "undecided", 0.985, 0.97, 1.001, cycles_ratio=0.985)
    assert rule.settled(other_way, slow, slow).status == rule.AMBIGUOUS


class RealNoise:
    """Samples of real records, drawn anew, with what differs between processes on top of them."""

    def __init__(self):
        there, bad = record_files.load_all(ROOT / "results")
        assert not bad, bad
        self.results = [
            result
            for record in there
            if record.commit.startswith(NOISE_OF)
            for result in record.results
            if result.times and result.baseline_times
        ]
        assert len(self.results) > 350, len(self.results)

    def live(self, result, rng, factor=1.0, samples=15):
        times, seconds, cycles = result.times, [], []
        for _ in range(9):
            process = factor * math.exp(rng.gauss(0, BETWEEN_PROCESSES))
            drawn = rng.choices(range(len(times.seconds)), k=samples)
            seconds.append(process * rule.typical(times.seconds[at] for at in drawn))
            cycles.append(process * rule.typical(times.seconds[at] * times.clocks[at] for at in drawn))
        return rule.Repetitions(seconds, cycles)

    def counts(self, factor, rounds, seed):
        rng, counts = random.Random(seed), Counter()
        for result in self.results * rounds:
            first = self.live(result, rng), self.live(result, rng, factor)
            verdict = rule.judge(*first)
            if verdict.status != rule.SAME:
                verdict = settled(first, (self.live(result, rng), self.live(result, rng, factor)))
            counts[verdict.status] += 1
        return counts

    def between_records(self, factor, rounds, seed):
        """Whole rounds drawn anew, so that what a round does to both stays together."""
        rng, counts = random.Random(seed), Counter()

        def side(result, scale):
            own, other = result.times, result.baseline_times
            drawn = rng.choices(range(len(own.seconds)), k=len(own.seconds))
            process = [math.exp(rng.gauss(0, BETWEEN_PROCESSES)) for _ in range(2)]
            seconds = [scale * process[0] * own.seconds[at] for at in drawn]
            cycles = [value * own.clocks[at] for value, at in zip(seconds, drawn)]
            return rule.Repetitions(
                records._blocks(seconds, 9),
                records._blocks(cycles, 9),
                records._blocks([process[1] * other.seconds[at] for at in drawn], 9),
            )

        for result in self.results * rounds:
            verdict = rule.judge(side(result, 1.0), side(result, factor), interleaved=False)
            counts[verdict.status] += 1
        return counts


@pytest.fixture(scope="module")
def real_noise():
    return RealNoise()


def test_live_a_a_is_never_called(real_noise):
    counts = real_noise.counts(1.0, rounds=10, seed=11)
    assert sum(counts.values()) > 2000
    assert (counts[rule.SLOW], counts[rule.FAST]) == (0, 0), counts
    assert counts[rule.SAME] > 0.8 * sum(counts.values())


def test_live_two_percent_are_caught(real_noise):
    counts = real_noise.counts(1.02, rounds=3, seed=12)
    assert counts[rule.SLOW] >= 0.95 * sum(counts.values()), counts
    assert counts[rule.FAST] == 0


def test_live_five_percent_are_always_caught(real_noise):
    counts = real_noise.counts(1.05, rounds=3, seed=13)
    assert counts[rule.SLOW] == sum(counts.values()), counts


def test_records_a_a_is_hardly_ever_called(real_noise):
    counts = real_noise.between_records(1.0, rounds=10, seed=14)
    assert counts[rule.SLOW] + counts[rule.FAST] <= 0.003 * sum(counts.values()), counts


def test_records_five_percent_are_mostly_caught(real_noise):
    counts = real_noise.between_records(1.05, rounds=2, seed=15)
    assert counts[rule.SLOW] >= 0.8 * sum(counts.values()), counts
    assert counts[rule.FAST] == 0
