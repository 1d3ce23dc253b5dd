import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenodds.difficulty import AttentionPredictor, DifficultyEstimator, EvidencePosterior
from evenodds.difficulty.baselines import LastLabel
from evenodds.difficulty.logit_normal import binomial_posterior, success_moments
from evenodds.difficulty.posterior import (
    DRIFTS,
    Ability,
    Factors,
    Weighted,
    _spread_evenly,
    merged,
    product,
)
from evenodds.difficulty.scores import standardised_error
from evenodds.difficulty.shared_prior import SharedPrior
from evenodds.errors import CheckpointError, ConfigError, DataError

from builders import observation


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def rng(seed=0):
    return np.random.default_rng(seed)


def one_question():
    """Arguments of a filter step on a question of even odds that solved 6 of 8."""
    return np.zeros(1), np.ones(1), np.full(1, 6.0), np.full(1, 8.0)


# Each equation by hand


def test_product_by_hand():
    # precisions 1/2 and 3/2 at 1 and 3: precision 2, mean (0.5 + 4.5) / 2
    mean, variance = product(np.array([1.0]), np.array([2.0]), np.array([3.0]), np.array([1.5]))
    assert (mean[0], variance[0]) == pytest.approx((2.5, 0.5))


def test_product_with_nothing_is_the_prior():
    mean, variance = product(np.array([1.0]), np.array([2.0]), np.array([9.0]), np.zeros(1))
    assert (mean[0], variance[0]) == (1.0, 2.0)


def test_factors_age_by_hand():
    factors = Factors.empty(2)
    factors.put(np.array([1]), np.array([0.7]), np.array([4.0]), 2)
    mean, precision = factors.aged(None, 0.25, 5)
    # variance 1/4 when seen, and 3 steps of 1/4 since: precision 1
    assert precision.tolist() == [0.0, 1.0]
    assert mean.tolist() == [0.0, 0.7]
    assert factors.aged(np.array([1]), 0.25, 2)[1].tolist() == [4.0]


def test_the_latest_factors_are_kept_in_order():
    factors = Factors.empty(5)
    for step, row in ((1, 4), (2, 0), (3, 2)):
        factors.put(np.array([row]), np.zeros(1), np.ones(1), step)
    assert factors.latest(9).tolist() == [0, 2, 4]
    assert factors.latest(2).tolist() == [0, 2]


def test_weighted_value_by_hand():
    weighted = Weighted(np.array([0.01, 1.0]))
    assert weighted.value == pytest.approx(0.1)
    weighted.learn(np.array([np.log(3.0), 0.0]))
    assert weighted.weights_J == pytest.approx([0.75, 0.25])
    weighted.forget()
    assert weighted.evidence_J[0] == pytest.approx(0.98 * np.log(3.0))


def test_ability_moves_as_a_filter_would():
    ability = Ability()
    ability.forget()
    before = ability.variance_J.copy()
    ability.learn(*one_question())
    first, left, _ = binomial_posterior(*one_question())
    at = float(first[0] / (1 - left[0]))  # one Newton step from 0: slope M, curvature 1 - T
    mean, variance, *counts = one_question()
    second, left, _ = binomial_posterior(mean + at, variance, *counts)
    reading = at + float((second[0] - at) / (1 - left[0]))
    noise = float(1 / (1 - left[0]))
    assert ability.mean_J == pytest.approx(before / (before + noise) * reading)
    assert ability.variance_J == pytest.approx(before * noise / (before + noise))
    assert ability.value > 0


def test_ability_is_relative_to_the_first_step():
    ability = Ability()
    ability.learn(*one_question())
    assert ability.value == 0.0


def test_shared_prior_is_bayesian_regression():
    generator = rng()
    features = generator.normal(size=(30, 3))
    shared = SharedPrior(30, features)
    rows, mean, precision = np.arange(12), generator.normal(size=12), np.full(12, 2.0)
    design = shared._design_NC[rows].astype(np.float64)
    spread, reach = shared.spread_G[0], shared.reach_G[0]
    shared_once = SharedPrior(30, features)
    for _ in range(2):
        ridge = np.diag([1 / 4, *[1 / reach] * 3])
        covariance = np.linalg.inv(design.T @ design / (spread + 0.5) + ridge)
        weights = covariance @ design.T @ mean / (spread + 0.5)
        share = spread / (spread + 0.5)
        explained = np.array([row @ covariance @ row for row in design])
        squares = share**2 * ((mean - design @ weights) ** 2 + explained) + share / 2
        spread = (10 * 4.0 + squares.sum()) / (10 + 12)
        reach = (10 + (weights[1:] ** 2 + np.diag(covariance)[1:]).sum()) / (10 + 3)
    shared_once.fit(rows, mean, precision)
    assert shared_once.weights_GC[0] == pytest.approx(weights, rel=1e-4, abs=1e-6)
    assert shared_once.spread_G[0] == pytest.approx(spread)
    assert shared_once.reach_G[0] == pytest.approx(reach)
    found_mean, found_variance = shared_once.moments(np.array([20]))
    row = shared._design_NC[20].astype(np.float64)
    assert found_mean[0] == pytest.approx(row @ weights)
    assert found_variance[0] == pytest.approx(spread + row @ covariance @ row)


def test_labels_start_as_they_are_and_extremes_have_an_intercept():
    shared = SharedPrior(4, labels_N=np.array([0.25, 1.0, 0.0, np.nan]))
    mean, variance = shared.moments()
    assert mean == pytest.approx([np.log(3.0), -2.0, 2.0, 0.0], abs=1e-6)
    # spread 4, intercept 4; slope 1/4 times log(3)^2
    assert variance == pytest.approx([8 + np.log(3.0) ** 2 / 4, 8.0, 8.0, 8.0], rel=1e-6)


def test_predictions_start_as_they_are_and_have_columns_of_their_own():
    shared = SharedPrior(4, labels_N=np.array([0.25, 1.0, 0.0, np.nan]))
    shared.inform(None)
    mean, _ = shared.moments()
    assert mean == pytest.approx([np.log(3.0), -2.0, 2.0, 0.0], abs=1e-6)
    shared.inform(np.array([np.nan, 0.75, 1.0, 0.0]))
    mean, variance = shared.moments()
    assert mean == pytest.approx([np.log(3.0), -2.0 - np.log(3.0), 2.0 - 2.0, 2.0], abs=1e-6)
    # beside the above: an intercept of 4, and for a prediction between a slope of 1/4
    slope = np.log(3.0) ** 2 / 4
    assert variance == pytest.approx([8 + slope, 12 + slope, 12.0, 12.0], rel=1e-6)


def test_each_kind_of_question_learns_for_itself():
    generator = rng()
    features = generator.normal(size=(60, 2))
    labels = np.tile([np.nan, 0.4, 0.0, 1.0], 15)
    shared, alone = SharedPrior(60, features, labels), SharedPrior(60, features)
    alone._design_NC = shared._design_NC[:, [0, 2, 3]]  # the same axes; no column of labels
    rows, precision = np.arange(0, 60, 4), np.full(15, 2.0)
    mean = generator.normal(size=15)
    before = shared.moments()
    shared.fit(rows, mean, precision)
    alone.fit(rows, mean, precision)
    after = shared.moments()
    others = np.setdiff1d(np.arange(60), rows)
    for moment in range(2):
        assert after[moment][others] == pytest.approx(before[moment][others])
        assert after[moment][rows] == pytest.approx(alone.moments(rows)[moment], rel=1e-5)
    assert shared.spread_G[1:].tolist() == [4.0, 4.0, 4.0]
    assert shared.spread_G[0] == pytest.approx(alone.spread_G[0]) != 4.0


def test_wide_features_lie_on_their_principal_axes():
    generator = rng()
    narrow = generator.normal(size=(400, 5)).astype(np.float32)
    wide = narrow @ generator.normal(size=(5, 300)).astype(np.float32)
    shared = SharedPrior(400, wide)
    kept = shared._features_NF
    assert kept.shape == (400, 128)
    assert np.square(kept).sum(axis=1).mean() == pytest.approx(1.0, abs=1e-3)
    centred = wide - wide.mean(axis=0)
    kernel = centred @ centred.T
    assert kept @ kept.T == pytest.approx(kernel * 400 / np.trace(kernel), abs=1e-3)


def test_observations_of_one_question_add_up():
    seen = observation([3, 1, 3], [0.5, 1.0, 0.25])
    rows, solved, samples = merged(seen)
    assert rows.tolist() == [1, 3]
    assert solved.tolist() == [0.0, 10.0]
    assert samples.tolist() == [8.0, 16.0]


# The whole


def test_it_is_an_estimator_that_needs_no_references():
    assert isinstance(EvidencePosterior(3), DifficultyEstimator)
    assert not EvidencePosterior(3).needs_references


def test_before_anything_is_seen_all_is_possible():
    estimate = EvidencePosterior(3).estimate()
    assert estimate.difficulty_N == pytest.approx([0.5] * 3)
    assert estimate.variance_N.min() > 0.1


def test_many_samples_leave_the_observed_rate():
    posterior = EvidencePosterior(3)
    posterior.observe(observation([0, 1], [0.3, 0.9], samples=100_000))
    estimate = posterior.estimate()
    assert estimate.difficulty_N[:2] == pytest.approx([0.3, 0.9], abs=1e-3)
    assert estimate.variance_N[:2].max() < 3e-4


def test_no_samples_change_nothing():
    posterior, other = EvidencePosterior(3), EvidencePosterior(3)
    for each in (posterior, other):
        each.observe(observation([0, 1], [0.5, 0.5]))
    posterior.observe(observation([0, 1], [0.25, 0.5], samples=0))
    np.testing.assert_array_equal(posterior.estimate().difficulty_N, other.estimate().difficulty_N)
    np.testing.assert_array_equal(posterior.estimate().variance_N, other.estimate().variance_N)


def test_unseen_questions_keep_a_common_prior():
    posterior = EvidencePosterior(50)
    posterior.observe(observation(range(30), [0.9] * 30))
    difficulty = posterior.estimate().difficulty_N
    assert len(set(difficulty[30:].tolist())) == 1
    assert 0.5 < difficulty[40] < difficulty[0]  # as what was seen, and less surely


def test_evidence_of_a_question_grows_old():
    posterior = EvidencePosterior(40)
    posterior.observe(observation([0], [0.5], samples=64))
    fresh = posterior.estimate().variance_N[0]
    for _ in range(20):
        posterior.observe(observation([1, 2], [0.5, 0.25]))
    assert posterior.estimate().variance_N[0] > fresh


def test_the_policy_gets_better_on_what_is_not_seen_again():
    posterior = EvidencePosterior(400)
    posterior.observe(observation(range(400), [0.5] * 400, samples=16))
    for failed in (0.45, 0.4, 0.35, 0.3):
        posterior.observe(observation(range(200), [failed] * 200, samples=16))
    estimate = posterior.estimate().difficulty_N
    assert estimate[300] < 0.36
    assert posterior.ability.value == pytest.approx(np.log(0.7 / 0.3), abs=0.15)


def test_questions_alike_are_known_together():
    generator = rng()
    features = generator.normal(size=(300, 4)).astype(np.float32)
    truth = sigmoid(-2.0 * features[:, 0])
    posterior = EvidencePosterior(300, features_ND=features)
    failed = generator.binomial(8, truth[:100]) / 8
    posterior.observe(observation(range(100), failed))
    estimate = posterior.estimate().difficulty_N
    assert np.corrcoef(estimate[100:], truth[100:])[0, 1] > 0.95


def test_another_policys_labels_are_mapped_to_this_one():
    generator = rng()
    logit = generator.normal(scale=1.5, size=400)
    truth, label = sigmoid(logit + 1.5), sigmoid(logit)  # the other policy is better
    label[::4] = np.nan
    posterior = EvidencePosterior(400, labels_N=label)
    rows = np.arange(200)
    posterior.observe(observation(rows, generator.binomial(8, truth[:200]) / 8))
    error = (posterior.estimate().difficulty_N - truth)[200:]
    known = ~np.isnan(label[200:])
    assert np.abs(error[known]).mean() < 0.05 < np.abs(error[~known]).mean()


def test_a_predictor_is_a_prior_from_its_first_references_on():
    generator = rng()
    embeddings = torch.from_numpy(generator.normal(size=(200, 4)).astype(np.float32))
    truth = sigmoid(-3.0 * embeddings[:, 0].numpy())
    posterior = EvidencePosterior(200, prior=AttentionPredictor.untrained(embeddings))
    assert posterior.estimate().difficulty_N == pytest.approx([0.5] * 200)
    rows = np.arange(100)
    posterior.probe(observation(rows, generator.binomial(8, truth[:100]) / 8))
    estimate = posterior.estimate().difficulty_N
    assert np.corrcoef(estimate[100:], truth[100:])[0, 1] > 0.7
    posterior.observe(observation([100], [0.5]))
    assert posterior.step == 1  # the references and the batch are of one step


@pytest.mark.parametrize("samples", [1, 8])
def test_stated_uncertainty_is_true_where_the_model_is(samples):
    generator = rng(3)
    size = 2000
    theta = generator.normal(-0.5, 2.0, size=size)
    posterior = EvidencePosterior(size)
    errors = []
    for step in range(15):
        failure = 1 - sigmoid(theta + 0.05 * step)
        rows = generator.choice(size, 300, replace=False)
        posterior.observe(
            observation(rows, generator.binomial(samples, failure[rows]) / samples, samples)
        )
        theta = theta + generator.normal(scale=0.1, size=size)
        estimate = posterior.estimate()
        labels = generator.binomial(8, failure) / 8
        errors.append(
            standardised_error(estimate.difficulty_N, estimate.variance_N, labels, np.full(size, 8))
        )
    assert np.mean(errors[1:]) == pytest.approx(1.0, abs=0.1)
    assert posterior.sharpness.value == pytest.approx(1.0, abs=0.2)


def test_sharpness_scales_all_logits():
    posterior = EvidencePosterior(5)
    posterior.observe(observation([0, 1, 2], [0.0, 0.25, 0.875]))
    mean, variance = posterior._combined(None, posterior.drift.value)
    posterior.sharpness.learn(np.array([0.0, 0, 0, 0, 0, 0, 1e3]))
    rate, spread = success_moments(1.331 * mean, 1.331**2 * variance)
    assert posterior.estimate().difficulty_N == pytest.approx(1 - rate)
    assert posterior.estimate().variance_N == pytest.approx(spread)


def test_sharpness_is_what_predicts_best():
    posterior = EvidencePosterior(4)
    posterior.observe(observation([0, 1], [0.25, 0.5]))
    posterior.step += 1
    mean, variance = posterior._combined(np.array([0, 3]), posterior.drift.value)
    solved, samples = np.array([6.0, 0.0]), np.array([8.0, 8.0])
    expected = [
        binomial_posterior(k * mean, k**2 * variance, solved, samples)[2].sum()
        for k in 1.1 ** np.arange(-3.0, 4.0)
    ]
    posterior._learn_sharpness(np.array([0, 3]), solved, samples)
    assert posterior.sharpness.evidence_J == pytest.approx(expected)


def test_drift_is_found():
    found = {}
    for scale in (0.01, 0.7):
        generator = rng(1)
        theta = generator.normal(size=500)
        posterior = EvidencePosterior(500)
        for _ in range(12):
            rows = generator.choice(500, 200, replace=False)
            failure = 1 - sigmoid(theta[rows])
            posterior.observe(observation(rows, generator.binomial(16, failure) / 16, samples=16))
            theta = theta + generator.normal(scale=scale, size=500)
        found[scale] = posterior.drift.value
    assert found[0.01] < 0.02
    assert 0.2 < found[0.7] < 0.9


OBSERVED = st.lists(
    st.tuples(st.integers(0, 11), st.integers(0, 8), st.sampled_from([0, 1, 8, 128])), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(st.lists(OBSERVED, max_size=6), st.booleans())
def test_estimates_keep_their_bounds(steps, with_labels):
    labels = np.array([0.0, 1.0, 0.5, np.nan] * 3) if with_labels else None
    posterior = EvidencePosterior(12, labels_N=labels)
    for step in steps:
        rows, failed, samples = zip(*step, strict=True) if step else ((), (), ())
        seen = observation(rows, np.array(failed) / 8)
        posterior.observe(
            type(seen)(
                seen.questions_K,
                seen.difficulty_K,
                seen.effective_K,
                np.array(samples, dtype=np.int64),
            )
        )
    assert np.isfinite(posterior.shared.weights_GC).all()
    estimate = posterior.estimate()
    difficulty, variance = estimate.difficulty_N, estimate.variance_N
    assert (difficulty.dtype, variance.dtype) == (np.float32, np.float32)
    assert ((difficulty >= 0) & (difficulty <= 1)).all()
    assert ((variance >= 0) & (variance <= difficulty * (1 - difficulty) + 1e-6)).all()


# Going on exactly


def make(size=60):
    generator = rng(5)
    embeddings = torch.from_numpy(generator.normal(size=(size, 6)).astype(np.float32))
    labels = generator.random(size)
    labels[::3] = np.nan
    return EvidencePosterior(
        size,
        prior=AttentionPredictor.untrained(embeddings),
        features_ND=generator.normal(size=(size, 140)).astype(np.float32),
        labels_N=labels,
    )


def run_on(posterior, start, stop):
    for step in range(start, stop):
        generator = rng(100 + step)
        rows = generator.choice(60, 20, replace=False)
        if step % 2 == 0:
            posterior.probe(observation(rows[:8], generator.integers(0, 9, 8) / 8))
        posterior.observe(observation(rows[8:], generator.integers(0, 9, 12) / 8))


@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_restored_one_goes_on_bit_for_bit(stop):
    one, two = make(), make()
    run_on(one, 0, stop)
    two.restore(one.state())
    for _ in range(2):
        left, right = one.estimate(), two.estimate()
        np.testing.assert_array_equal(left.difficulty_N, right.difficulty_N)
        np.testing.assert_array_equal(left.variance_N, right.variance_N)
        run_on(one, stop, 7)
        run_on(two, stop, 7)


@pytest.mark.parametrize("seed", range(5))
def test_every_step_from_a_restored_one_is_the_same_to_the_last_bit(seed):
    # A covariance whose memory lies otherwise after loading is multiplied in another order.
    generator = rng(seed)
    features = generator.normal(size=(500, 12)).astype(np.float32)
    one = EvidencePosterior(500, features_ND=features)
    for _ in range(6):
        two = EvidencePosterior(500, features_ND=features)
        two.restore(one.state())
        rows = generator.choice(500, 16, replace=False)
        seen = observation(rows, generator.binomial(8, 0.5, 16) / 8)
        one.observe(seen)
        two.observe(seen)
        left, right = one.state().tensors, two.state().tensors
        assert all(torch.equal(left[name], right[name]) for name in left)


def test_a_probe_that_was_saved_is_still_of_its_step():
    one, two = make(), make()
    one.probe(observation([0, 1, 2], [0.5, 0.25, 1.0]))
    two.restore(one.state())
    two.observe(observation([3], [0.5]))
    assert two.step == 1


def test_a_saved_state_does_not_move_on():
    posterior = make()
    run_on(posterior, 0, 2)
    saved = posterior.state().tensors["factors/mean"].clone()
    state = posterior.state()
    run_on(posterior, 2, 4)
    assert torch.equal(state.tensors["factors/mean"], saved)


def test_a_state_with_other_labels_is_refused():
    with pytest.raises(CheckpointError, match="prior does not fit this run"):
        EvidencePosterior(4, labels_N=np.full(4, 0.5)).restore(EvidencePosterior(4).state())


def test_another_pool_is_refused():
    with pytest.raises(CheckpointError, match="another question pool"):
        EvidencePosterior(4).restore(EvidencePosterior(5).state())


# What cannot be used


def test_an_empty_pool_is_refused():
    with pytest.raises(ConfigError, match="got:      0"):
        EvidencePosterior(0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(2), "label for each of 3"),
        (np.array([0.5, 1.5, np.nan]), "question 1"),
        (np.array([0.5, 0.5, -np.inf]), "question 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(DataError, match=message):
        EvidencePosterior(3, labels_N=labels)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros((2, 4)), "row for each of 3"),
        (np.array([[0.0], [1.0], [np.nan]]), "question 2"),
    ],
)
def test_features_that_do_not_fit_are_refused(features, message):
    with pytest.raises(DataError, match=message):
        EvidencePosterior(3, features_ND=features)


def test_a_difficulty_that_is_no_rate_is_refused():
    with pytest.raises(DataError, match="question 1"):
        EvidencePosterior(3).observe(observation([0, 1], [0.5, np.nan]))


def test_a_prior_without_labels_of_its_own_is_asked_at_once():
    labels = np.array([0.9, 0.1, 0.5])
    posterior = EvidencePosterior(3, prior=LastLabel(labels))
    assert posterior.estimate().difficulty_N[0] > 0.6 > 0.4 > posterior.estimate().difficulty_N[1]
    assert DRIFTS.min() > 0


def test_many_observations_are_learned_from_in_part():
    assert _spread_evenly(np.arange(3), 4).tolist() == [0, 1, 2]
    assert _spread_evenly(np.array([5, 6, 7, 8, 9]), 3).tolist() == [5, 7, 9]
