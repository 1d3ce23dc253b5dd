import numpy as np
import pytest

from evenodds.bootstrap import bootstrap_mean


def test_interval_of_many_values_is_that_of_the_normal_distribution():
    values = np.random.default_rng(0).normal(2.0, 1.0, size=400)
    interval = bootstrap_mean(values)
    assert interval.mean == pytest.approx(values.mean())
    half = 1.96 * values.std() / 20
    assert interval.low == pytest.approx(values.mean() - half, abs=0.02)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.02)


def test_equal_values_leave_no_doubt_and_missing_ones_are_left_out():
    interval = bootstrap_mean(np.array([0.5, np.nan, 0.5]))
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    assert str(interval) == "0.500 [0.500, 0.500]"
    assert str(bootstrap_mean(np.array([np.nan]))) == "-"
