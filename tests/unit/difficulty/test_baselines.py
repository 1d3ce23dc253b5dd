import numpy as np
import pytest

from evenodds.difficulty import DifficultyEstimator
from evenodds.difficulty.baselines import ConstantMean, DecayedBeta, FeatureRidge, LastLabel

from builders import observation

FEATURES = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.5, 0.5]])


def make_all():
    return [
        ConstantMean(5),
        FeatureRidge(FEATURES),
        LastLabel(np.full(5, np.nan)),
        DecayedBeta(5),
    ]


@pytest.mark.parametrize("estimator", make_all(), ids=lambda e: type(e).__name__)
def test_all_are_estimators_and_go_on_after_restoring(estimator):
    assert isinstance(estimator, DifficultyEstimator)
    estimator.probe(observation([0, 2, 3], [0.25, 1.0, 0.5]))
    estimator.observe(observation([1], [0.75]))
    other = next(e for e in make_all() if type(e) is type(estimator))
    other.restore(estimator.state())
    np.testing.assert_array_equal(other.estimate().difficulty_N, estimator.estimate().difficulty_N)


def test_constant_mean_by_hand():
    estimator = ConstantMean(3)
    estimator.probe(observation([0, 1], [0.25, 0.75]))
    estimator.observe(observation([2], [1.0]))
    assert estimator.estimate().difficulty_N.tolist() == [0.5, 0.5, 0.5]


def test_ridge_equals_the_primal_solution():
    generator = np.random.default_rng(0)
    features = generator.normal(size=(40, 6))
    target = 0.5 + 0.05 * features @ generator.normal(size=6)
    rows = np.arange(20)
    estimator = FeatureRidge(features)
    estimator.probe(observation(rows, target[rows]))
    predicted = estimator.estimate().difficulty_N
    fits = []
    observed = target[rows].astype(np.float32).astype(np.float64)
    mean = observed.mean()
    for ridge in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0):
        gram = features[rows].T @ features[rows] + ridge * np.eye(6)
        weights = np.linalg.solve(gram, features[rows].T @ (observed - mean))
        fits.append(np.clip(mean + features @ weights, 0, 1))
    assert min(np.abs(fit - predicted).max() for fit in fits) < 1e-6
    assert np.corrcoef(predicted[20:], target[20:])[0, 1] > 0.99


def test_ridge_follows_like_questions():
    estimator = FeatureRidge(FEATURES)
    estimator.probe(observation([0, 2], [1.0, 0.0]))
    predicted = estimator.estimate().difficulty_N
    assert predicted[1] > 0.6 > 0.4 > predicted[3]
    assert predicted[4] == pytest.approx(0.5)


def test_last_label_by_hand():
    estimator = LastLabel(np.array([np.nan, 0.2, np.nan]))
    assert estimator.estimate().difficulty_N == pytest.approx([0.2, 0.2, 0.2])
    estimator.observe(observation([0], [1.0]))
    assert estimator.estimate().difficulty_N == pytest.approx([1.0, 0.2, 0.6])
    estimator.probe(observation([0], [0.5]))
    assert estimator.estimate().difficulty_N[0] == pytest.approx(0.5)


def test_last_label_of_nothing_is_even_odds():
    assert LastLabel(np.full(2, np.nan)).estimate().difficulty_N.tolist() == [0.5, 0.5]


def test_decayed_beta_by_hand():
    estimator = DecayedBeta(2, decay=0.5)
    estimator.observe(observation([0], [0.75], samples=8))  # 6 failures, 2 successes
    estimate = estimator.estimate()
    # Beta(7, 3): mean 0.7, variance 0.7 * 0.3 / 11
    assert estimate.difficulty_N == pytest.approx([0.7, 0.5])
    assert estimate.variance_N == pytest.approx([0.21 / 11, 0.25 / 3])
    estimator.observe(observation([1], [0.0], samples=8))
    # the first question's counts are halved: Beta(4, 2)
    assert estimator.estimate().difficulty_N == pytest.approx([4 / 6, 1 / 10])


def test_decayed_beta_without_decay_adds_up():
    estimator = DecayedBeta(1, decay=1.0)
    for _ in range(3):
        estimator.observe(observation([0], [0.5], samples=8))
    assert estimator.estimate().variance_N[0] == pytest.approx(0.25 / 27)
