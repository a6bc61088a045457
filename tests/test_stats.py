"""Intervals against values worked out independently, and what must not be said from too little."""

import math

import numpy as np
import pytest

from wsbench.analysis import stats


def test_the_interval_is_a_t_interval_on_logarithms():
    found = stats.estimate([90.0, 100.0, 110.0, 95.0, 105.0])
    logs = np.log([90.0, 100.0, 110.0, 95.0, 105.0])
    half = 2.7764451051977987 * logs.std(ddof=1) / math.sqrt(5)  # t of 4 degrees of freedom, from a table
    assert found.mean == pytest.approx(math.exp(logs.mean()))
    assert (found.low, found.high) == pytest.approx((math.exp(logs.mean() - half), math.exp(logs.mean() + half)))
    assert found.reason is None


@pytest.mark.parametrize(("values", "words"), [([5.0], "1 repeat,"), ([5.0, 6.0], "2 repeats,")])
def test_too_few_repeats_have_a_mean_and_no_interval(values, words):
    found = stats.estimate(values)
    assert found.mean is not None
    assert found.low is found.high is None
    assert words in found.reason


def test_nothing_measured_has_no_mean():
    assert stats.estimate([]).reason == stats.estimate([None, None]).reason == "not measured"
    assert stats.estimate([None]).mean is None


def test_missing_values_are_left_out_and_not_counted():
    assert stats.estimate([4.0, None, 9.0]).mean == pytest.approx(6.0)
    assert stats.estimate([4.0, None, 9.0]).repeats == 2


@pytest.mark.parametrize("values", [[0.0, 1.0, 2.0], [-1.0, 2.0, 3.0], [math.inf, 1.0, 1.0]])
def test_zeros_have_no_geometric_mean(values):
    assert stats.estimate(values).mean is None


def test_equal_repeats_have_an_interval_of_no_width():
    found = stats.estimate([7.0, 7.0, 7.0])
    assert (found.low, found.mean, found.high) == pytest.approx((7, 7, 7))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(1)
    trials = [stats.estimate(np.exp(draw.normal(3, 0.1, 5))) for _ in range(2000)]
    covered = np.mean([found.low <= math.exp(3) <= found.high for found in trials])
    assert 0.93 < covered < 0.97


def test_a_ratio_is_paired_by_round_so_that_shared_drift_cancels():
    of = {1: 200.0, 2: 400.0, 3: 100.0}
    to = {1: 100.0, 2: 200.0, 3: 50.0}
    found = stats.ratio(of, to)
    assert (found.low, found.mean, found.high) == pytest.approx((2, 2, 2))


def test_only_rounds_with_both_are_compared():
    found = stats.ratio({1: 2.0, 2: None, 4: 8.0}, {1: 1.0, 2: 1.0, 3: 1.0, 4: 2.0})
    assert found.values == (2.0, 4.0)
    assert stats.ratio({1: 2.0}, {2: 2.0}).reason == "no round has both"
