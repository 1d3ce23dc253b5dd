import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenodds.comparison.curves import first_reach, smooth


def test_a_straight_line_stays_as_it_is_up_to_its_ends():
    x = np.arange(0.0, 65.0, 5.0)
    np.testing.assert_allclose(smooth(x, 0.2 + 0.01 * x, 5.0), 0.2 + 0.01 * x, atol=1e-12)


def test_without_a_bandwidth_nothing_is_smoothed():
    y = np.array([0.1, 0.5, 0.2])
    np.testing.assert_array_equal(smooth(np.array([0.0, 1.0, 2.0]), y, 0.0), y)


def test_the_middle_of_three_points_by_hand():
    # At the middle the kernel is even, so the fitted line passes through the weighted mean:
    # weights e^-1/2, 1, e^-1/2 of 0, 1, 0.
    side = np.exp(-0.5)
    smoothed = smooth(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), 1.0)
    assert smoothed[1] == pytest.approx(1 / (1 + 2 * side))


def test_the_end_of_three_points_by_hand():
    # At x = 0: weights 1, a, a^4 with a = e^-1/2 on distances 0, 1, 2 and values 0, 1, 0.
    a = np.exp(-0.5)
    s0, s1, s2 = 1 + a + a**4, a + 2 * a**4, a + 4 * a**4
    expected = a * (s2 - s1) / (s0 * s2 - s1**2)
    smoothed = smooth(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 0.0]), 1.0)
    assert smoothed[0] == pytest.approx(expected)


def test_first_reach_lies_between_the_evaluations():
    x, y = np.array([0.0, 10.0, 20.0]), np.array([0.2, 0.4, 0.3])
    assert first_reach(x, y, 0.3) == pytest.approx(5.0)
    assert first_reach(x, y, 0.4) == pytest.approx(10.0)
    assert first_reach(x, y, 0.1) == 0.0
    assert first_reach(x, y, 0.41) == float("inf")


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=8),
    st.floats(0.01, 1),
)
def test_below_the_first_reach_the_curve_is_below_the_target(values, target):
    y = np.array(values)
    x = np.arange(len(y), dtype=float)
    at = first_reach(x, y, target)
    if np.isfinite(at):
        assert np.all(y[x < at] < target)
        assert np.interp(at, x, y) == pytest.approx(max(target, y[0]) if at == 0 else target)
    else:
        assert y.max() < target
