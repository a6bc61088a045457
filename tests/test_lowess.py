"""The smooth line of figures over time, against values of `lowess` in statsmodels 0.14."""

import numpy as np
import pytest

from wsbench.report.lowess import lowess

SECONDS = np.arange(10) + 0.5
MEANS = np.array([3.0, 4.1, 4.9, 30.0, 7.2, 8.0, 8.9, 10.1, 11.0, 12.2])
#: By share of the points and robust rounds.
KNOWN = {
    (0.6, 0): [0.605749, 5.994237, 11.170191, 12.926546, 13.190667, 10.436939, 9.016937, 10.023084, 11.090564, 12.157189],
    (0.6, 3): [3.019832, 4.014838, 5.031138, 6.04808, 7.051272, 8.053693, 9.016752, 10.024947, 11.091974, 12.158283],
    (1.0, 3): [3.020164, 4.023186, 5.025576, 6.026096, 7.02543, 8.030747, 9.04634, 10.063652, 11.082585, 12.103917],
}


@pytest.mark.parametrize(("share", "rounds"), KNOWN)
def test_a_line_is_that_of_the_reference(share, rounds):
    assert lowess(SECONDS, MEANS, share, rounds) == pytest.approx(KNOWN[share, rounds], abs=1e-6)


def test_a_straight_line_stays_one_and_a_single_peak_leaves_no_trace():
    line = 2 * SECONDS + 1
    assert lowess(SECONDS, line, 0.5, 3) == pytest.approx(line)
    spoiled = line + np.where(SECONDS == 5.5, 100, 0)
    assert lowess(SECONDS, spoiled, 0.8, 3) == pytest.approx(line, abs=1e-6)


def test_points_at_one_place_have_their_mean():
    assert lowess(np.zeros(4), np.array([1.0, 2.0, 3.0, 6.0]), 1.0, 0) == pytest.approx([3.0] * 4)
