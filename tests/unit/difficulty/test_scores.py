import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from evenodds.difficulty.scores import (
    effective_chance,
    mean_absolute_error,
    noise_ceiling,
    pearson,
    reliability,
    sampling_noise,
    spearman,
    standardised_error,
)


def test_correlations_by_hand():
    # deviations -1.5 -0.5 0.5 1.5 and -1.75 -0.75 0.25 2.25: sum of products 6.5 / sqrt(5 * 8.75)
    assert pearson(np.arange(4.0), np.array([0.0, 1, 2, 4])) == pytest.approx(0.98270, abs=1e-5)
    assert spearman(np.arange(4.0), np.array([0.0, 1, 2, 400])) == pytest.approx(1.0)
    assert np.isnan(pearson(np.arange(3.0), np.ones(3)))
    assert np.isnan(spearman(np.arange(3.0), np.ones(3)))


def test_absolute_error_by_hand():
    assert mean_absolute_error(np.array([0.5, 0.25]), np.array([1.0, 0.0])) == pytest.approx(0.375)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=3, max_size=40))
def test_spearman_ranks_ties_as_scipy_does(pairs):
    left, right = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    if len(set(left)) > 1 and len(set(right)) > 1:
        assert spearman(left, right) == pytest.approx(stats.spearmanr(left, right).statistic)


def test_calibration_error_by_hand():
    # bins [0.1, 0.2) and [0.9, 1]: gaps |0.15 - 0.5| and |0.95 - 0.75|, two and four questions
    predicted = np.array([0.1, 0.2 - 1e-9, 0.9, 0.9, 1.0, 1.0])
    observed = np.array([0.0, 1.0, 1.0, 1.0, 0.5, 0.5])
    curve = reliability(predicted, observed)
    assert curve.count_R.tolist() == [2, 4]
    assert curve.predicted_R == pytest.approx([0.15, 0.95])
    assert curve.observed_R == pytest.approx([0.5, 0.75])
    assert curve.error == pytest.approx((2 * 0.35 + 4 * 0.2) / 6)


def test_effective_chance_of_a_whole_group_is_what_was_seen():
    chance = effective_chance(np.array([0, 3, 8]), np.array([8, 8, 8]), 8)
    assert chance.tolist() == [0.0, 1.0, 0.0]


def test_effective_chance_by_hand():
    # two of four right, groups of two: alike in C(2,2) + C(2,2) = 2 of 6 draws
    assert effective_chance(np.array([2]), np.array([4]), 2)[0] == pytest.approx(4 / 6)
    # three of four: C(3,2) + 0 = 3 of 6
    assert effective_chance(np.array([3]), np.array([4]), 2)[0] == pytest.approx(0.5)
    assert np.isnan(effective_chance(np.array([1]), np.array([1]), 2)[0])


def test_effective_chance_is_unbiased():
    generator = np.random.default_rng(0)
    correct = generator.binomial(16, 0.3, size=20000)
    mean = effective_chance(correct, np.full(20000, 16), 4).mean()
    assert mean == pytest.approx(1 - 0.3**4 - 0.7**4, abs=0.005)


def test_sampling_noise_by_hand():
    # 0.25 * 0.75 / 3
    assert sampling_noise(np.array([1]), np.array([4]))[0] == pytest.approx(0.0625)
    assert np.isnan(sampling_noise(np.array([1]), np.array([1]))[0])


def test_noise_ceiling_is_what_the_truth_reaches():
    generator = np.random.default_rng(0)
    truth = generator.beta(0.5, 0.7, size=20000)
    correct = generator.binomial(8, truth)
    reached = pearson(truth, correct / 8)
    assert noise_ceiling(correct, np.full(20000, 8)) == pytest.approx(reached, abs=0.005)


def test_noise_ceiling_by_hand():
    # rates 0 and 1 have no noise; rates 0.25, 0.75 of 4 samples: variance 0.0625, noise 0.0625
    assert noise_ceiling(np.array([0, 4]), np.array([4, 4])) == 1.0
    assert noise_ceiling(np.array([1, 3]), np.array([4, 4])) == 0.0
    assert np.isnan(noise_ceiling(np.array([0, 1]), np.array([1, 1])))


def test_standardised_error_by_hand():
    # d = 0.5, v = 0.05: the label is off by 0.05 + 0.2 / 8 = 0.075 in the mean square
    one = standardised_error(np.array([0.5]), np.array([0.05]), np.array([0.8]), np.array([8]))
    assert one == pytest.approx(0.09 / 0.075)
    # of the second, nothing is uncertain, and it is right
    both = standardised_error(
        np.array([0.5, 1.0]), np.array([0.05, 0.0]), np.array([0.8, 1.0]), np.array([8, 8])
    )
    assert both == pytest.approx(0.6)


def test_no_uncertainty_is_no_standardised_error():
    found = standardised_error(np.array([0.5]), np.zeros(1), np.array([0.8]), np.array([8]))
    assert np.isnan(found)
