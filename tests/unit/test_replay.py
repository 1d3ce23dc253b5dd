import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenodds.files import read_tensors, write_tensors
from evenodds.replay import ReplayBuffer, priority_logits
from evenodds.state import State

from builders import make_group, same_group


def make_buffer(capacity=4, seed=0):
    return ReplayBuffer(capacity, np.random.default_rng(seed))


def questions(buffer):
    return [group.question for group in buffer.groups]


def test_first_in_first_out():
    buffer = make_buffer(3)
    buffer.add([make_group(q) for q in (7, 8, 9)])
    buffer.add([make_group(10)])
    assert questions(buffer) == [8, 9, 10]


def test_groups_without_signal_are_not_stored():
    buffer = make_buffer()
    buffer.add([make_group(1, (0, 0)), make_group(2, (1, 1)), make_group(3, (0.5, 0.5))])
    assert len(buffer) == 0
    buffer.add([make_group(4, (0.4, 0.5))])  # rewards need not be 0 or 1
    assert questions(buffer) == [4]


def test_the_newest_group_of_a_question_wins_and_moves_to_the_end():
    buffer = make_buffer(2)
    buffer.add([make_group(1, step=0), make_group(2, step=0), make_group(1, step=1)])
    assert [(g.question, g.step) for g in buffer.groups] == [(2, 0), (1, 1)]
    buffer.add([make_group(3, step=2)])
    assert questions(buffer) == [1, 3]


def test_a_group_without_signal_does_not_push_out_the_older_one():
    buffer = make_buffer()
    buffer.add([make_group(1, step=0)])
    buffer.add([make_group(1, (1, 1), step=1)])
    assert [(g.question, g.step) for g in buffer.groups] == [(1, 0)]


def test_discard():
    buffer = make_buffer()
    buffer.add([make_group(1), make_group(2)])
    buffer.discard([2, 5])
    assert questions(buffer) == [1]


def test_sampling_is_uniform_and_without_replacement():
    buffer = make_buffer(5)
    buffer.add([make_group(q) for q in range(5)])
    counts = np.zeros(5)
    for _ in range(4000):
        drawn = [group.question for group in buffer.sample(2)]
        assert len(set(drawn)) == 2
        counts[drawn] += 1
    assert counts / 4000 == pytest.approx([0.4] * 5, abs=0.03)


@given(
    capacity=st.integers(1, 6),
    adds=st.lists(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=5), max_size=6),
)
def test_invariants(capacity, adds):
    buffer = make_buffer(capacity)
    expected = {}  # the same rules in their plainest form
    for step, groups in enumerate(adds):
        buffer.add(
            [make_group(q, (0, 1) if good else (1, 1), step=step, length=1) for q, good in groups]
        )
        for question, good in groups:
            if good:
                expected.pop(question, None)
                expected[question] = step
        expected = dict(list(expected.items())[-capacity:])
    assert len(buffer) <= capacity
    assert all(group.effective for group in buffer.groups)
    assert [(g.question, g.step) for g in buffer.groups] == list(expected.items())


@pytest.mark.parametrize("masked", [False, True])
def test_a_saved_buffer_is_the_same_buffer(tmp_path, masked):
    buffer = make_buffer()
    buffer.add([make_group(q, (0, 1, 0.25), step=q, length=q, masked=masked) for q in (2, 5, 1)])
    state = buffer.state()
    write_tensors(tmp_path / "b.safetensors", state.tensors, state.values)
    tensors, values = read_tensors(tmp_path / "b.safetensors")
    other = make_buffer()
    other.restore(State(values, tensors))
    assert len(other) == 3
    assert all(map(same_group, buffer.groups, other.groups))


def test_an_empty_buffer_can_be_saved(tmp_path):
    state = make_buffer().state()
    write_tensors(tmp_path / "b.safetensors", state.tensors, state.values)
    tensors, values = read_tensors(tmp_path / "b.safetensors")
    other = make_buffer()
    other.add([make_group(1)])
    other.restore(State(values, tensors))
    assert len(other) == 0


def test_memory_is_what_the_tensors_take():
    buffer = make_buffer()
    buffer.add([make_group(1, (0, 1), length=3)])
    # prompt 4 * 4; completions (3 + 4) * (4 + 4); rewards and advantages 2 * 2 * 4
    assert buffer.num_bytes == 16 + 56 + 16


def buffer_of(groups, **settings):
    buffer = ReplayBuffer(16, np.random.default_rng(0), **settings)
    buffer.add(groups)
    return buffer


def test_priority_by_hand():
    # mean |A| is 0.5 for one of two right, 0.375 for one of four; ages 3 and 1; scale 2
    groups = [make_group(0, step=1), make_group(1, (1.0, 0.0, 0.0, 0.0), step=3)]
    logits = priority_logits(groups, 4, 2.0)
    assert logits == pytest.approx([np.log(0.5) - 1.5, np.log(0.375) - 0.5])


def test_priority_prefers_young_groups_with_large_advantages():
    groups = [
        make_group(0, step=0),
        make_group(1, step=9),
        make_group(2, (1.0, *[0.0] * 7), step=9),
    ]
    counts = np.zeros(3)
    for seed in range(400):
        buffer = ReplayBuffer(16, np.random.default_rng(seed), age_scale=3.0)
        buffer.add(groups)
        counts[buffer.sample(1, 10)[0].question] += 1
    weights = np.array([0.5 * np.exp(-10 / 3), 0.5 * np.exp(-1 / 3), 0.21875 * np.exp(-1 / 3)])
    assert counts / 400 == pytest.approx(weights / weights.sum(), abs=0.06)


def test_old_groups_expire():
    buffer = buffer_of([make_group(q, step=q) for q in range(5)], max_age=2)
    buffer.expire(5)
    assert [group.question for group in buffer.groups] == [3, 4]


def test_groups_are_used_so_often_and_no_more():
    buffer = buffer_of([make_group(0), make_group(1)], max_uses=2)
    buffer.sample(2)
    assert (buffer.uses(0), buffer.uses(1)) == (1, 1)
    buffer.sample(2)
    assert len(buffer) == 0
    buffer.add([make_group(0, step=3)])
    assert buffer.uses(0) == 0  # newer rollouts begin anew


def test_excluded_groups_are_left():
    buffer = buffer_of([make_group(q) for q in range(4)])
    assert {group.question for group in buffer.sample(2, 0, {0, 3})} == {1, 2}


def test_uses_are_restored():
    buffer = buffer_of([make_group(q) for q in range(4)], max_uses=3)
    buffer.sample(2)
    other = ReplayBuffer(16, np.random.default_rng(1), max_uses=3)
    other.restore(buffer.state())
    assert [other.uses(q) for q in range(4)] == [buffer.uses(q) for q in range(4)]
    assert sum(other.uses(q) for q in range(4)) == 2


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=30),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_no_group_is_older_or_used_more_than_allowed(stored, max_age, max_uses):
    buffer = ReplayBuffer(6, np.random.default_rng(0), max_age=max_age, max_uses=max_uses)
    uses = {}
    for step, (question, count) in enumerate(stored):
        buffer.expire(step)
        for group in buffer.sample(min(count, len(buffer)), step):
            assert step - group.step <= max_age
            uses[group.step] = uses.get(group.step, 0) + 1
            assert uses[group.step] <= max_uses
        buffer.add([make_group(question, step=step)])
        assert len(buffer) <= 6
