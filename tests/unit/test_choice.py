"""Which questions a batch holds: criteria by hand, shares, parking, and nobody starved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenodds.choice import criterion_logits, order_questions
from evenodds.config import EfficiencyConfig
from evenodds.difficulty import Estimate
from evenodds.history import QuestionHistory
from evenodds.selection import compose, drawn_difficulty, expected_signal
from evenodds.types import Observation


def estimate(difficulty, variance=None):
    difficulty_N = np.array(difficulty, dtype=np.float64)
    variance_N = np.zeros_like(difficulty_N) if variance is None else np.array(variance)
    return Estimate(difficulty_N, variance_N)


def seen(questions, difficulty, samples=8):
    questions = np.array(questions)
    difficulty_K = np.array(difficulty, dtype=np.float32)
    effective_K = (difficulty_K > 0) & (difficulty_K < 1)
    return Observation(questions, difficulty_K, effective_K, np.full(len(questions), samples))


def test_expected_signal_by_hand():
    # m (1 - m) - v; never below 0
    found = expected_signal(np.array([0.5, 0.5, 0.2, 1.0]), np.array([0.0, 0.2, 0.06, 0.01]))
    assert found == pytest.approx([0.25, 0.05, 0.1, 0.0])


def test_expected_signal_is_that_of_a_beta():
    a, b = 2.0, 3.0
    mean, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    # E[p (1 - p)] = ab / ((a + b) (a + b + 1)) for Beta(a, b)
    found = expected_signal(np.array([mean]), np.array([variance]))
    assert found[0] == pytest.approx(a * b / ((a + b) * (a + b + 1)))


def test_signal_and_curiosity_order_by_hand():
    known = estimate([0.5, 0.9, 0.3], [0.0, 0.05, 0.02])
    logits = criterion_logits(EfficiencyConfig(criterion="signal"), known, None)
    assert logits * 1e-3 == pytest.approx([0.25, 0.04, 0.19])
    curious = EfficiencyConfig(criterion="signal", curiosity=4.0)
    assert criterion_logits(curious, known, None) * 1e-3 == pytest.approx([0.25, 0.24, 0.27])


def test_without_uncertainty_signal_is_near_the_target():
    generator = np.random.default_rng(0)
    known = estimate(generator.uniform(size=50))
    history = QuestionHistory(50)
    first = [
        set(order_questions(EfficiencyConfig(criterion=name, selection_temperature=1e-9), known,
                            history, 0, 10, generator).tolist())
        for name in ("target", "signal", "thompson")
    ]  # fmt: skip
    assert first[0] == first[1] == first[2]


def test_draws_have_the_mean_and_variance_of_the_posterior():
    generator = np.random.default_rng(0)
    drawn = drawn_difficulty(np.full(200_000, 0.3), np.full(200_000, 0.02), generator)
    assert drawn.mean() == pytest.approx(0.3, abs=0.002)
    assert drawn.var() == pytest.approx(0.02, rel=0.02)
    assert drawn_difficulty(np.array([0.0, 1.0, 0.4]), np.array([0.1, 0.1, 0.0]), generator) == (
        pytest.approx([0.0, 1.0, 0.4])
    )


def test_thompson_tries_what_is_unknown():
    generator = np.random.default_rng(0)
    known = estimate([0.45, 0.8], [0.0, 0.1])
    config = EfficiencyConfig(criterion="thompson")
    firsts = [np.argmax(criterion_logits(config, known, generator)) for _ in range(500)]
    assert 0.02 < np.mean(firsts) < 0.5


def test_orders_share_places_by_hand():
    main, other = np.array([1, 2, 3, 4, 5, 6]), np.array([9, 2, 8])
    # At place n each order is behind by share * n less what it gave: 0.25 and 0.75; 0.5 and 0.5
    # (equal, so the first); -0.25 and 1.25; 0 and 1; 0.25 and 0.75; 0.5 and 0.5, and 2 is taken.
    assert compose([(0.25, other), (0.75, main)], 6).tolist() == [1, 9, 2, 3, 4, 8]
    assert compose([(1.0, other), (0.0, main)], 5).tolist() == [9, 2, 8, 1, 3]


@given(
    st.lists(st.integers(0, 30), unique=True),
    st.floats(0.05, 1.0),
    st.integers(0, 30),
)
def test_a_composed_order_is_full_and_holds_nothing_twice(other, share, count):
    main = np.random.default_rng(count).permutation(31)
    found = compose([(share, np.array(other, dtype=np.int64)), (1 - share, main)], count)
    assert len(found) == len(set(found.tolist())) == count
    from_other = len(set(found.tolist()) & set(other))
    assert from_other >= min(len(other), int(share * count))


def test_shares_go_to_unknown_mastered_and_old_questions():
    difficulty = np.r_[np.full(40, 0.5), np.full(40, 0.05), np.full(20, 0.95)]
    variance = np.r_[np.full(80, 1e-9), np.full(20, 0.04)]
    history = QuestionHistory(100)
    history.observe(seen(range(99), np.full(99, 0.5)), 3)
    config = EfficiencyConfig(explore_share=0.25, revisit_share=0.25, oldest_share=0.125)
    found = order_questions(
        config, estimate(difficulty, variance), history, 4, 16, np.random.default_rng(0)
    )
    assert sum(found >= 80) >= 4
    assert sum((found >= 40) & (found < 80)) >= 4
    assert 99 in found
    assert sum(found < 40) >= 6


def test_what_fails_again_and_again_is_parked_and_tried_again():
    history = QuestionHistory(4)
    for step in (0, 1):
        history.observe(seen([0, 1, 2], [1.0, 1.0, 0.5]), step)
    history.observe(seen([1], [0.9]), 2)
    assert history.parked(3, after=2, retest=5).tolist() == [True, False, False, False]
    assert history.parked(5, after=2, retest=5)[0]
    assert not history.parked(6, after=2, retest=5).any()
    assert not history.parked(3, after=0, retest=5).any()
    # nothing was scored, so nothing was seen
    history.observe(seen([3], [1.0], samples=0), 3)
    assert history.seen_N[3] == -1


def test_parked_questions_come_last():
    history = QuestionHistory(6)
    history.observe(seen([0, 1], [1.0, 1.0]), 0)
    config = EfficiencyConfig(park_after=1, oldest_share=0.5, explore_share=0.25)
    known = estimate([0.5, 0.5, 0.9, 0.9, 0.9, 0.9], np.full(6, 0.01))
    found = order_questions(config, known, history, 1, 6, np.random.default_rng(0)).tolist()
    assert set(found[:4]) == {2, 3, 4, 5}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([0, 2]))
def test_nobody_is_starved(seed, park_after):
    """A batch of 8 with a quarter for the oldest: 40 questions come round within 20 steps."""
    generator = np.random.default_rng(seed)
    config = EfficiencyConfig(oldest_share=0.25, park_after=park_after, retest_after=10)
    history = QuestionHistory(40)
    known = estimate(generator.uniform(size=40))
    for step in range(60):
        batch = order_questions(config, known, history, step, 8, generator)
        history.observe(seen(batch, generator.integers(0, 2, size=8)), step)
        if step >= 20:
            assert history.seen_N.min() >= step - 20 - (10 if park_after else 0)


def test_a_history_is_restored():
    history, other = QuestionHistory(5), QuestionHistory(5)
    history.observe(seen([1, 3], [1.0, 0.2]), 7)
    other.restore(history.state())
    assert other.seen_N.tolist() == history.seen_N.tolist()
    assert other.failed_N.tolist() == history.failed_N.tolist()


def test_questions_are_drawn_in_proportion_to_a_power_of_their_signal():
    known = estimate([0.5, 0.9, 1.0])  # worth 0.25, 0.09 and, nothing being impossible, 1e-6
    for power in (1.0, 0.5):
        config = EfficiencyConfig(criterion="proportional", signal_power=power)
        chances = np.exp(criterion_logits(config, known, None))
        assert chances == pytest.approx([0.25**power, 0.09**power, 1e-6**power])
