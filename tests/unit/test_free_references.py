"""References within the batch, the posterior in the loop, and batches that are refilled."""

import numpy as np
import pytest

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import EvidencePosterior
from evenodds.errors import ConfigError
from evenodds.loop import DataEfficientLoop
from evenodds.types import observation_of_groups

from builders import make_group, observation

FREE = EfficiencyConfig.preset(
    "evenodds", num_references=4, fresh_fraction=1.0, replay_fraction=0.0
)


def make_loop(config=FREE, num_questions=60, groups=8, seed=0):
    estimator = EvidencePosterior(num_questions) if config.predicts else None
    return DataEfficientLoop(config, num_questions, groups, estimator=estimator, seed=seed)


def success_of(question):
    return 1 - question / 59


def step_of(loop, generator):
    """One step against a policy whose success falls with the question's number."""
    assert len(loop.plan_references()) == 0, "nothing is probed besides the batch"
    plan = loop.plan_batch()
    groups = [
        make_group(int(q), (generator.uniform(size=8) < success_of(q)).astype(float), loop.step - 1)
        for q in plan.questions
    ]
    loop.observe(observation_of_groups(groups))
    loop.store(groups)
    return plan


def test_references_are_part_of_the_batch_and_cost_nothing():
    loop = make_loop()
    plan = step_of(loop, np.random.default_rng(0))
    record, metrics = loop.record, loop.metrics()
    assert len(plan.questions) == len(set(plan.questions.tolist())) == 8
    assert record.in_batch
    assert record.references.questions_K.tolist() == plan.questions[:4].tolist()
    assert (metrics["select/num_references"], metrics["select/num_joined"]) == (0, 4)
    assert len(record.fresh.questions_K) == 8


def test_references_are_told_apart_and_counted_once():
    loop = make_loop()
    shown = {"probe": [], "observe": []}
    for name in shown:
        method = getattr(loop.estimator, name)

        def spy(seen, name=name, method=method):
            shown[name] += seen.questions_K.tolist()
            method(seen)

        setattr(loop.estimator, name, spy)
    plan = step_of(loop, np.random.default_rng(0))
    assert shown["probe"] == plan.questions[:4].tolist()
    assert shown["observe"] == plan.questions[4:].tolist()


def test_their_prediction_is_from_before_they_were_observed():
    loop = make_loop()
    generator = np.random.default_rng(0)
    step_of(loop, generator)
    before = loop.estimator.estimate().difficulty_N
    plan = step_of(loop, generator)
    count = len(loop.record.reference_prediction_K)
    assert count > 0
    expected = before[plan.questions[:count]]
    assert loop.record.reference_prediction_K == pytest.approx(expected)


def test_probing_ends_when_the_pool_is_known_and_begins_again_when_it_changes():
    config = FREE.replace(enough_certainty=0.15)
    loop = make_loop(config, num_questions=24)
    generator = np.random.default_rng(0)
    joined = []
    for _ in range(30):
        step_of(loop, generator)
        joined.append(loop.metrics()["select/num_joined"])
    assert joined[0] == 4
    assert joined[-1] == 0
    assert loop.metrics()["select/uncertainty"] < 0.15
    # the policy turns round: what was easy fails, and the posterior notices
    for _ in range(8):
        loop.plan_references()
        plan = loop.plan_batch()
        turned = (plan.questions < 12).astype(np.float32)
        loop.observe(observation(plan.questions, np.where(turned, 1.0, 0.0)))
        joined.append(loop.metrics()["select/num_joined"])
    assert max(joined[-8:]) == 4


def test_the_posterior_learns_to_pick_effective_groups():
    loop = make_loop(FREE.replace(criterion="signal"))
    generator = np.random.default_rng(0)
    effective = []
    for _ in range(30):
        step_of(loop, generator)
        effective.append(loop.record.fresh.effective_K.mean())
    assert np.mean(effective[20:]) > 0.9


def test_more_references_than_the_batch_holds_fill_it():
    loop = make_loop(FREE.replace(num_references=20))
    step_of(loop, np.random.default_rng(0))
    assert loop.metrics()["select/num_joined"] == 8


def test_a_refilled_batch_takes_groups_that_are_not_in_it_yet():
    config = EfficiencyConfig.preset("rr", refill=True, fresh_fraction=0.5, capacity=8)
    loop = make_loop(config)
    loop.store([make_group(question) for question in range(7)])
    plan = loop.plan_batch()
    more = loop.refill(2)
    taken = [group.question for group in (*plan.replayed, *more)]
    assert len(taken) == len(set(taken)) == 6
    assert len(loop.refill(5)) == 1  # only one is left
    loop.observe(observation([20, 21, 22, 23], [1.0, 1.0, 0.5, 0.5]))
    assert loop.record.replayed.tolist() == [*taken, loop._plan.replayed[-1].question]


def test_bad_ratios_lower_what_is_replayed():
    config = EfficiencyConfig.preset("rr", fresh_fraction=0.5, capacity=8, min_ess=0.5)
    loop = make_loop(config)
    loop.store([make_group(question) for question in range(8)])
    assert len(loop.plan_batch().replayed) == 4
    loop.note_ratios(0.3, 1.0)
    plan = loop.plan_batch()
    assert (len(plan.replayed), plan.num_fresh) == (2, 6)
    assert loop.replay_share.factor == 0.5


def test_a_run_with_everything_on_is_restored(tmp_path):
    config = FREE.replace(
        fresh_fraction=0.5,
        replay_fraction=0.25,
        criterion="thompson",
        explore_share=0.25,
        oldest_share=0.25,
        park_after=1,
        retest_after=3,
        replay_policy="priority",
        max_age=5,
        max_uses=2,
        min_ess=0.5,
    )
    one, generator = make_loop(config), np.random.default_rng(1)
    for _ in range(5):
        step_of(one, generator)
        one.note_ratios(0.4, 1.0)
    two = make_loop(config, seed=9)
    two.restore(one.state())
    for _ in range(4):
        draws = generator.bit_generator.state
        left = step_of(one, generator)
        generator.bit_generator.state = draws
        right = step_of(two, generator)
        assert left.questions.tolist() == right.questions.tolist()
        assert [g.question for g in left.replayed] == [g.question for g in right.replayed]
        assert one.metrics() == pytest.approx(two.metrics(), nan_ok=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"explore_share": 0.6, "oldest_share": 0.6}, "more than all"),
        ({"adapt_references": True}, "needs the posterior"),
        ({"refill": True, "fresh_fraction": 1.0}, "replay buffer"),
        ({"prior_labels": "l.csv"}, "needs the posterior"),
    ],
)
def test_settings_that_contradict_each_other(settings, words):
    with pytest.raises(ConfigError, match=words):
        EfficiencyConfig(**settings)
