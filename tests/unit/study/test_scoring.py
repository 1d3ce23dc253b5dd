import numpy as np
import pytest

from evenodds.study import ScoringConfig
from evenodds.study.scoring import draw_true_rates, score


def judged(predicted, *rest):
    """Without stated uncertainty."""
    return score(predicted, np.zeros(len(predicted)), *rest)


def test_scores_of_a_perfect_prediction_by_hand():
    correct = np.array([0, 2, 4, 8])
    samples = np.full(4, 8)
    predicted = (1 - correct / 8).astype(np.float32)  # 1, 0.75, 0.5, 0
    config = ScoringConfig(choose=2)
    found = score(
        predicted, np.zeros(len(predicted)), correct, samples, config, np.random.default_rng(0)
    )
    assert found["pearson"] == pytest.approx(1.0)
    assert found["mean_absolute_error"] == 0.0
    assert found["calibration_error"] == 0.0
    # chosen: 0.5 and 0.75, both within 0.25 of the target, both groups mixed
    assert found["precision"] == 1.0
    assert found["effective_fraction"] == 1.0


def test_scores_of_a_bad_choice_by_hand():
    correct, samples = np.array([8, 8, 4]), np.full(3, 8)
    predicted = np.array([0.5, 0.5, 0.9], dtype=np.float32)
    found = score(
        predicted,
        np.zeros(len(predicted)),
        correct,
        samples,
        ScoringConfig(choose=2),
        np.random.default_rng(0),
    )
    assert found["precision"] == 0.0
    assert found["effective_fraction"] == 0.0
    assert found["mean_absolute_error"] == pytest.approx((0.5 + 0.5 + 0.4) / 3)


def test_single_samples_say_nothing_of_groups():
    found = judged(
        np.array([0.2, 0.8], dtype=np.float32),
        np.array([1, 0]),
        np.array([1, 1]),
        ScoringConfig(choose=1),
        np.random.default_rng(0),
    )
    assert found["pearson"] == pytest.approx(1.0)
    assert np.isnan(found["precision"])
    assert np.isnan(found["effective_fraction"])


def test_drawn_rates_have_the_spread_of_the_truth():
    generator = np.random.default_rng(0)
    truth = generator.beta(0.6, 0.9, size=20000)
    correct = generator.binomial(8, truth)
    drawn = draw_true_rates(correct, np.full(20000, 8), generator)
    assert drawn.mean() == pytest.approx(truth.mean(), abs=0.01)
    assert drawn.var() == pytest.approx(truth.var(), rel=0.03)
    assert np.corrcoef(drawn, truth)[0, 1] > 0.8
    assert np.isnan(draw_true_rates(np.array([0, 1]), np.array([1, 1]), generator)).all()


def test_stated_uncertainty_is_held_against_the_error():
    # off by 0.5 and stated variance 0.05, with 4 samples: 0.25 / (0.05 + 0.2 / 4)
    found = score(
        np.array([0.5, 0.5]),
        np.array([0.05, 0.05]),
        np.array([4, 0]),
        np.array([4, 4]),
        ScoringConfig(choose=1),
        np.random.default_rng(0),
    )
    assert found["standardised_error"] == pytest.approx(2.5)
