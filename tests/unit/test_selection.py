import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenodds.references import draw_references
from evenodds.selection import QuestionQueue, gumbel_top_k, selection_logits


def test_logits_by_hand():
    logits = selection_logits(np.array([0.5, 0.45, 1.0]), target=0.5, temperature=0.1)
    assert logits == pytest.approx([0.0, -0.5, -5.0])


def test_temperature_to_0_is_the_questions_nearest_the_target():
    difficulty = np.random.default_rng(0).uniform(size=500)
    logits = selection_logits(difficulty, target=0.5, temperature=1e-9)
    chosen = gumbel_top_k(logits, 20, np.random.default_rng(1))
    nearest = np.argsort(np.abs(difficulty - 0.5))[:20]
    assert set(chosen) == set(nearest)


def test_draws_follow_the_probabilities_without_replacement():
    # weights 1, 2, 5: first draw 2 with 5/8; then 1 with 2/3 of the rest
    logits = np.log([1.0, 2.0, 5.0])
    generator = np.random.default_rng(0)
    draws = np.array([gumbel_top_k(logits, 2, generator) for _ in range(20_000)])
    assert np.mean(draws[:, 0] == 2) == pytest.approx(5 / 8, abs=0.01)
    assert np.mean(draws[:, 0] == 0) == pytest.approx(1 / 8, abs=0.01)
    both = (draws[:, 0] == 2) & (draws[:, 1] == 1)
    assert np.mean(both) == pytest.approx(5 / 8 * 2 / 3, abs=0.01)


def test_equal_logits_draw_every_question_equally_often():
    generator = np.random.default_rng(0)
    counts = np.zeros(10)
    for _ in range(5000):
        counts[gumbel_top_k(np.zeros(10), 3, generator)] += 1
    assert counts / 5000 == pytest.approx([0.3] * 10, abs=0.03)


@given(
    difficulty=st.lists(st.floats(0, 1), min_size=1, max_size=60),
    share=st.floats(0, 1),
    temperature=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**32 - 1),
)
def test_draws_are_different_questions_of_the_pool(difficulty, share, temperature, seed):
    logits = selection_logits(np.array(difficulty), target=0.5, temperature=temperature)
    count = int(share * len(difficulty))
    chosen = gumbel_top_k(logits, count, np.random.default_rng(seed))
    assert len(chosen) == count
    assert len(set(chosen.tolist())) == count
    assert all(0 <= row < len(difficulty) for row in chosen)
    assert chosen.tolist() == gumbel_top_k(logits, count, np.random.default_rng(seed)).tolist()


def test_queue_hands_out_the_draws_in_order_and_each_question_once():
    queue = QuestionQueue(np.random.default_rng(0))
    queue.refill(np.zeros(10), 6)
    taken = [*queue.take(4), *queue.take(2)]
    assert len(queue) == 0
    assert taken == gumbel_top_k(np.zeros(10), 6, np.random.default_rng(0)).tolist()


def test_queue_of_a_small_pool_goes_round_without_repeating_within_a_batch():
    queue = QuestionQueue(np.random.default_rng(0))
    seen = []
    for _ in range(10):
        if len(queue) < 3:
            queue.extend(gumbel_top_k(np.zeros(5), 5, queue.generator))
        batch = queue.take(3).tolist()
        assert len(set(batch)) == 3
        seen += batch
    assert np.bincount(seen, minlength=5).tolist() == [6] * 5  # uniform passes


def test_excluded_questions_go_on_waiting():
    queue = QuestionQueue(np.random.default_rng(0))
    queue.refill(np.zeros(6), 6)
    order = gumbel_top_k(np.zeros(6), 6, np.random.default_rng(0)).tolist()
    excluded = np.array(order[:2])
    assert queue.take(3, excluded).tolist() == order[2:5]
    assert queue.take(3).tolist() == [*order[:2], order[5]]


def test_excluding_is_sampling_from_the_rest():
    logits = np.log(np.array([0.5, 0.2, 0.2, 0.1]))
    generator, counts = np.random.default_rng(0), np.zeros(4)
    for _ in range(4000):
        queue = QuestionQueue(generator)
        queue.refill(logits, 4)
        counts[queue.take(1, np.array([0]))] += 1
    assert counts / 4000 == pytest.approx([0, 0.4, 0.4, 0.2], abs=0.03)


def test_queue_goes_on_after_restoring():
    queue = QuestionQueue(np.random.default_rng(0))
    queue.refill(np.zeros(20), 20)
    queue.take(5)
    other = QuestionQueue(np.random.default_rng(9))
    other.restore(queue.state())
    assert other.take(15).tolist() == queue.take(15).tolist()


def test_references_are_different_and_uniform():
    generator = np.random.default_rng(0)
    counts = np.zeros(8)
    for _ in range(4000):
        drawn = draw_references(8, 3, generator)
        assert len(set(drawn.tolist())) == 3
        counts[drawn] += 1
    assert counts / 4000 == pytest.approx([3 / 8] * 8, abs=0.03)


def test_excluded_questions_are_not_references():
    generator = np.random.default_rng(0)
    for _ in range(20):
        drawn = draw_references(8, 3, generator, np.arange(4))
        assert set(drawn.tolist()) <= {4, 5, 6, 7}
