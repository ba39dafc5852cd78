"""Step detection in a kernel's history, for the dashboard."""

import random

import pytest

from dashboard import history


def noisy(*levels, noise=0.004, seed=1):
    rng = random.Random(seed)
    return [level * (1 + rng.gauss(0, noise)) for level, count in levels for _ in range(count)]


def test_steps_are_found_where_they_are():
    found = history.steps(noisy((1e-5, 40), (1.3e-5, 25), (1.17e-5, 30)))
    assert [at for at, _, _ in found] == [40, 65]
    assert found[0][1] / 1e-5 == pytest.approx(1, abs=0.01)
    assert found[0][2] / 1.3e-5 == pytest.approx(1, abs=0.01)


def test_two_records_make_a_level():
    assert [at for at, _, _ in history.steps([1.0, 1.0, 1.2, 1.2])] == [2]
    assert history.steps([1.0, 1.0, 1.0, 1.0, 1.0, 1.2]) == []


@pytest.mark.parametrize("at", [0, 1, 30, 58, 59])
def test_an_outlier_is_no_step(at):
    times = noisy((1e-5, 60))
    times[at] *= 2
    assert history.steps(times) == [], at


def test_noise_is_no_step():
    found = [history.steps(noisy((1e-5, 100), noise=0.03, seed=seed)) for seed in range(100)]
    assert [steps for steps in found if steps] == []


def test_a_small_change_is_no_step():
    assert history.steps(noisy((1e-5, 50), (1.04e-5, 50), noise=0.001)) == []
    assert len(history.steps(noisy((1e-5, 50), (1.06e-5, 50), noise=0.001))) == 1


def test_the_fit_is_the_cheapest():
    """Compare with every way to cut a short history in two."""
    for seed in range(20):
        logs = [random.Random(seed).gauss(0, 1) for _ in range(9)]
        logs[5:] = [value + 4 * (seed % 3) for value in logs[5:]]
        price = 2.0

        def cost(begin, end, logs=logs):
            part = sorted(logs[begin:end])
            return sum(abs(value - part[len(part) // 2]) for value in part)

        def total(segments, cost=cost, price=price):
            return sum(cost(*segment) for segment in segments) + price * (len(segments) - 1)

        best_of_two = min([total([(0, 9)])] + [total([(0, cut), (cut, 9)]) for cut in range(1, 9)])
        assert total(history._fit(logs, price)) <= best_of_two + 1e-9


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]])
def test_short_histories(times):
    assert history.steps(times) == []
