import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenodds.difficulty.logit_normal import SCALES, WEIGHTS, binomial_posterior, success_moments

NODES = np.linspace(-12.0, 12.0, 24001)
CASES = [(m, v) for m in (-6.0, -1.0, 0.0, 0.5, 4.0) for v in (1e-4, 0.3, 2.0, 9.0, 25.0)]


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def integrated(mean, variance, solved=0, samples=0):
    """Nodes of the logit, and what each weighs after the rollouts, summing to the evidence."""
    x = mean + np.sqrt(variance) * NODES
    weight = np.exp(-0.5 * NODES**2) / np.sqrt(2 * np.pi) * (NODES[1] - NODES[0])
    return x, weight * sigmoid(x) ** solved * sigmoid(-x) ** (samples - solved)


def update(mean, variance, solved, samples):
    parts = (np.array([float(value)]) for value in (mean, variance, solved, samples))
    return [float(part[0]) for part in binomial_posterior(*parts)]


def test_the_mixture_is_a_distribution_function():
    assert sum(WEIGHTS) == pytest.approx(1.0)
    assert all(scale > 0 for scale in SCALES)


@pytest.mark.parametrize(("mean", "variance"), CASES)
def test_moments_are_those_of_numerical_integration(mean, variance):
    x, weight = integrated(mean, variance)
    rate = (weight * sigmoid(x)).sum()
    spread = (weight * (sigmoid(x) - rate) ** 2).sum()
    found_rate, found_spread = success_moments(np.array([mean]), np.array([variance]))
    assert found_rate[0] == pytest.approx(rate, abs=5e-5)
    assert found_spread[0] == pytest.approx(spread, abs=2e-4)


def test_a_certain_logit_is_its_rate():
    rate, spread = success_moments(np.array([0.0, np.log(3.0)]), np.zeros(2))
    assert rate == pytest.approx([0.5, 0.75], abs=5e-5)
    assert spread == pytest.approx([0.0, 0.0], abs=2e-4)


@settings(max_examples=200, deadline=None)
@given(st.floats(-60, 60), st.floats(0, 400))
def test_moments_keep_their_bounds(mean, variance):
    rate, spread = success_moments(np.array([mean]), np.array([variance]))
    assert 0.0 <= rate[0] <= 1.0
    assert 0.0 <= spread[0] <= rate[0] * (1 - rate[0])
    other, _ = success_moments(np.array([-mean]), np.array([variance]))
    assert other[0] == pytest.approx(1 - rate[0], abs=1e-6)


@pytest.mark.parametrize(("mean", "variance"), [(-3.0, 4.0), (0.0, 1.0), (1.0, 9.0), (0.5, 0.1)])
@pytest.mark.parametrize(("solved", "samples"), [(0, 8), (3, 8), (8, 8), (2.5, 4), (60, 128)])
def test_an_update_is_that_of_numerical_integration(mean, variance, solved, samples):
    x, weight = integrated(mean, variance, solved, samples)
    evidence = weight.sum()
    after = (weight * x).sum() / evidence
    left = (weight * (x - after) ** 2).sum() / evidence
    found = update(mean, variance, solved, samples)
    assert found[0] == pytest.approx(after, abs=1e-3)
    assert found[1] == pytest.approx(left, rel=1e-3)
    assert found[2] == pytest.approx(np.log(evidence), abs=1e-4)


def test_no_rollouts_change_nothing():
    assert update(-1.5, 2.0, 0, 0) == pytest.approx([-1.5, 2.0, 0.0], abs=1e-9)


def test_many_rollouts_leave_the_observed_rate():
    after, left, _ = update(0.0, 100.0, 75_000, 100_000)
    assert after == pytest.approx(np.log(3.0), abs=1e-3)
    assert left == pytest.approx(1 / (100_000 * 0.75 * 0.25), rel=1e-2)


def test_slope_and_curvature_of_the_evidence_are_what_the_ability_filter_takes_them_for():
    mean, variance, step = -0.7, 1.3, 1e-3
    after, left, middle = update(mean, variance, 5, 8)
    low, high = update(mean - step, variance, 5, 8)[2], update(mean + step, variance, 5, 8)[2]
    assert (high - low) / (2 * step) == pytest.approx((after - mean) / variance, rel=1e-4)
    curvature = (high - 2 * middle + low) / step**2
    assert curvature == pytest.approx(-(1 - left / variance) / variance, rel=1e-3)


@settings(max_examples=100, deadline=None)
@given(st.floats(-20, 20), st.floats(1e-4, 100), st.integers(0, 64), st.integers(0, 64))
def test_rollouts_only_take_uncertainty_away(mean, variance, one, two):
    solved, samples = min(one, two), max(one, two)
    after, left, evidence = update(mean, variance, solved, samples)
    assert np.isfinite([after, evidence]).all()
    assert 0.0 < left <= variance
