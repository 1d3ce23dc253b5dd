import numpy as np
import pytest
import torch

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import AttentionPredictor, Estimate
from evenodds.difficulty.baselines import DecayedBeta
from evenodds.errors import CheckpointError, ConfigError, RewardError
from evenodds.files import read_tensors, write_tensors
from evenodds.loop import DataEfficientLoop
from evenodds.state import State
from evenodds.types import observation_of_groups

from builders import make_group, observation

SMALL = EfficiencyConfig(num_references=6, capacity=4)


class Known:
    """Estimates what it is told, and remembers what it was shown."""

    needs_references = False

    def __init__(self, difficulty):
        self.difficulty = np.array(difficulty, dtype=np.float32)
        self.probed, self.observed = [], []

    def probe(self, references):
        self.probed.append(references)

    def observe(self, fresh):
        self.observed.append(fresh)

    def estimate(self):
        return Estimate(self.difficulty, np.zeros_like(self.difficulty))

    def state(self):
        return State()

    def restore(self, state):
        pass


def make_loop(config=SMALL, num_questions=40, groups=8, estimator=None, seed=0, **settings):
    if estimator is None and config.predicts:
        estimator = Known(np.linspace(0, 1, num_questions))
    return DataEfficientLoop(
        config, num_questions, groups, estimator=estimator, seed=seed, **settings
    )


def success_of(question, num_questions=40):
    return 1 - question / (num_questions - 1)


def rollout(questions, step, generator, group_size=4):
    return [
        make_group(int(q), generator.uniform(size=group_size) < success_of(q), step=step, length=2)
        for q in questions
    ]


def take_step(loop, generator):
    step = loop.step
    probes = loop.plan_references()
    if len(probes):
        loop.observe_references(observation_of_groups(rollout(probes, step, generator)))
    plan = loop.plan_batch()
    groups = rollout(plan.questions, step, generator)
    loop.observe(observation_of_groups(groups))
    loop.store(groups)
    return probes, plan, groups


def test_references_are_probed_every_mu_steps_and_selection_lasts_as_long():
    loop, generator = make_loop(SMALL.replace(steps_per_selection=3)), np.random.default_rng(0)
    probed = [len(take_step(loop, generator)[0]) for _ in range(7)]
    assert probed == [6, 0, 0, 6, 0, 0, 6]


def test_batches_are_fresh_until_the_buffer_is_full_enough():
    loop, generator = make_loop(), np.random.default_rng(0)
    sizes, stored = [], []
    for _ in range(6):
        stored.append(len(loop.buffer))
        _, plan, _ = take_step(loop, generator)
        sizes.append((plan.num_fresh, len(plan.replayed)))
        assert len(plan.questions) == plan.num_fresh
    for before, size in zip(stored, sizes, strict=True):
        assert size == ((4, 4) if before >= 4 else (8, 0))
    assert sizes[0] == (8, 0)
    assert sizes[-1] == (4, 4)


def test_near_zero_temperature_takes_the_questions_nearest_the_target():
    loop = make_loop(SMALL.replace(selection_temperature=1e-9, fresh_fraction=1.0))
    _, plan, _ = take_step(loop, np.random.default_rng(0))
    nearest = np.argsort(np.abs(np.linspace(0, 1, 40) - 0.5))[:8]
    assert set(plan.questions) == set(nearest)


def test_questions_within_one_selection_do_not_repeat():
    loop, generator = make_loop(SMALL.replace(steps_per_selection=4)), np.random.default_rng(0)
    chosen = np.concatenate([take_step(loop, generator)[1].questions for _ in range(4)])
    assert len(set(chosen)) == len(chosen)


def test_no_replay_never_stores_or_replays():
    loop = make_loop(SMALL.replace(fresh_fraction=1.0))
    generator = np.random.default_rng(0)
    for _ in range(4):
        _, plan, _ = take_step(loop, generator)
        assert plan.replayed == ()
        assert plan.num_fresh == 8
    assert len(loop.buffer) == 0


def test_uniform_selection_passes_over_the_pool_without_references():
    config = SMALL.replace(selection="uniform", fresh_fraction=1.0)
    loop, generator = make_loop(config), np.random.default_rng(0)
    seen = []
    for _ in range(10):
        probes, plan, _ = take_step(loop, generator)
        assert len(probes) == 0
        seen += plan.questions.tolist()
    assert np.bincount(seen, minlength=40).tolist() == [2] * 40


def test_host_selection_leaves_the_questions_open_but_replays():
    config = SMALL.replace(selection="host")
    loop = make_loop(config)
    for step in range(3):
        plan = loop.plan_batch()
        assert len(plan.questions) == 0
        groups = [make_group(8 * step + i, step=step) for i in range(plan.num_fresh)]
        loop.observe(observation_of_groups(groups))
        loop.store(groups)
    assert len(plan.replayed) == 4


def test_record_and_metrics_by_hand():
    loop = make_loop(estimator=Known([0.5] * 40), config=SMALL.replace(capacity=8))
    references = loop.plan_references()
    loop.observe_references(observation(references, np.full(6, 0.25)))
    plan = loop.plan_batch()
    first = [make_group(int(q), (0, 1)) for q in plan.questions[:6]]
    first += [make_group(int(q), (1, 1)) for q in plan.questions[6:]]
    loop.observe(observation_of_groups(first))
    loop.store(first)
    metrics = loop.metrics()
    assert metrics["select/num_fresh"] == 8
    assert metrics["select/num_references"] == 6
    assert metrics["select/predicted_difficulty_mean"] == 0.5
    assert metrics["select/observed_difficulty_mean"] == pytest.approx(6 * 0.5 / 8)
    assert metrics["select/effective_fraction"] == 0.75
    assert np.isnan(metrics["select/pearson"])  # neither side varies
    assert metrics["replay/num_replayed"] == 0
    assert metrics["replay/size"] == 0
    loop.plan_references()
    plan = loop.plan_batch()
    second = [make_group(int(q), (0, 1), step=1) for q in plan.questions]
    loop.observe(observation_of_groups(second))
    metrics = loop.metrics()
    assert metrics["select/num_references"] == 0
    assert metrics["replay/num_replayed"] == 4
    assert metrics["replay/size"] == 6
    assert metrics["replay/age_mean"] == 1.0
    assert loop.record is not None
    assert loop.record.replayed_difficulty.tolist() == [0.5] * 4


def test_pearson_compares_predictions_and_labels_of_the_references():
    loop = make_loop()
    references = loop.plan_references()
    truth = np.linspace(0, 1, 40, dtype=np.float32)[references]
    loop.observe_references(observation(references, truth))
    plan = loop.plan_batch()
    loop.observe(observation_of_groups([make_group(int(q)) for q in plan.questions]))
    assert loop.metrics()["select/pearson"] == pytest.approx(1.0)


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_restored_loop_goes_on_exactly(tmp_path, at):
    torch.manual_seed(0)
    embeddings = torch.randn(40, 5)

    def fresh(seed=0):
        return make_loop(estimator=AttentionPredictor.untrained(embeddings), seed=seed)

    def go_on(loop, generator, steps):
        lines = []
        for _ in range(steps):
            probes, plan, _ = take_step(loop, generator)
            ages = [(group.question, group.step) for group in plan.replayed]
            lines.append((probes.tolist(), plan.questions.tolist(), ages))
        return lines

    loop, generator = fresh(), np.random.default_rng(0)
    go_on(loop, generator, at)
    state = loop.state()
    write_tensors(tmp_path / "s.safetensors", state.tensors, state.values)
    rollouts = generator.bit_generator.state
    expected = go_on(loop, generator, 5)

    tensors, values = read_tensors(tmp_path / "s.safetensors")
    other = fresh(seed=99)
    other.restore(State(values, tensors))
    generator.bit_generator.state = rollouts
    assert go_on(other, generator, 5) == expected


def test_seeds_differ_and_repeat():
    def chosen(seed):
        return take_step(make_loop(seed=seed), np.random.default_rng(0))[0].tolist()

    assert chosen(1) == chosen(1)
    assert chosen(1) != chosen(2)


def test_state_of_another_pool_is_refused():
    state = make_loop().state()
    with pytest.raises(CheckpointError, match="expected: 40 questions"):
        make_loop(num_questions=41).restore(state)


class Two:
    """One of two processes; `other` is what the other one would send."""

    count = 2

    def __init__(self, index, sent):
        self.index, self.sent = index, sent

    def broadcast(self, value):
        if self.index == 0:
            self.sent.append(value)
            return value
        return self.sent.pop(0)

    def gather(self, value):
        return [value, value]


def test_two_processes_share_one_selection_and_split_it():
    sent = []
    first = make_loop(ranks=Two(0, sent))
    references = first.plan_references()
    seen = observation(references, np.full(6, 0.5))
    first.observe_references(seen)
    one = first.plan_batch()
    second = DataEfficientLoop(SMALL, 40, 8, ranks=Two(1, sent))  # needs no estimator
    assert second.plan_references().tolist() == references.tolist()
    second.observe_references(seen)
    two = second.plan_batch()
    assert len(one.questions) == len(two.questions) == 4
    assert not set(one.questions) & set(two.questions)
    assert first.buffer.capacity + second.buffer.capacity == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": 41}, "41 groups a step, 40 questions"),
        ({"config": SMALL.replace(num_references=41)}, "41 references, 40 questions"),
        ({"config": SMALL.replace(fresh_fraction=0.01)}, "at least one group of each kind"),
        ({"config": SMALL.replace(fresh_fraction=0.99)}, "at least one group of each kind"),
        ({"config": SMALL.replace(capacity=3)}, "set capacity to 4 or more"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make_loop(**settings)


def test_a_missing_estimator_is_refused():
    with pytest.raises(ConfigError, match="needs an estimator"):
        DataEfficientLoop(SMALL, 40, 8)


def test_processes_that_cannot_share_a_batch_are_refused():
    with pytest.raises(ConfigError, match="7 groups a step, 2 processes"):
        make_loop(groups=7, ranks=Two(0, []))
    with pytest.raises(ConfigError, match="7 references, 2 processes"):
        make_loop(config=SMALL.replace(num_references=7), ranks=Two(0, []))


def test_the_estimator_sees_references_and_batches():
    estimator = Known(np.linspace(0, 1, 40))
    loop, generator = make_loop(estimator=estimator), np.random.default_rng(0)
    for _ in range(3):
        take_step(loop, generator)
    assert [len(seen.questions_K) for seen in estimator.probed] == [6, 6]
    assert len(estimator.observed) == 3
    assert estimator.observed[0].samples_K.tolist() == [4] * 8


def test_a_step_leaves_out_what_is_excluded():
    config = SMALL.replace(fresh_fraction=1.0, steps_per_selection=1)
    loop = make_loop(config)
    middle = np.arange(15, 25)  # what Known would choose
    probes = loop.plan_references(middle)
    assert not set(probes.tolist()) & set(middle.tolist())
    loop.observe_references(observation(probes, np.zeros(len(probes))))
    chosen = loop.plan_batch(middle).questions
    assert set(chosen.tolist()) == {11, 12, 13, 14, 25, 26, 27, 28}


def test_an_estimator_that_learns_from_batches_needs_no_references():
    config = EfficiencyConfig(num_references=0, fresh_fraction=1.0, steps_per_selection=2)
    estimator = Known(np.linspace(0, 1, 40))
    loop = make_loop(config, estimator=estimator)
    for _ in range(4):
        assert len(loop.plan_references()) == 0
        plan = loop.plan_batch()
        loop.observe(observation(plan.questions, np.full(8, 0.5)))
    assert estimator.probed == []
    assert len(estimator.observed) == 4
    assert loop.metrics()["select/predicted_difficulty_mean"] == pytest.approx(0.5, abs=0.2)


def test_the_papers_estimator_needs_references():
    estimator = AttentionPredictor.untrained(torch.randn(40, 4))
    with pytest.raises(ConfigError, match="learns from references only"):
        make_loop(EfficiencyConfig(num_references=0, capacity=8), estimator=estimator)


def test_excluding_again_and_again_neither_repeats_nor_runs_dry():
    config = EfficiencyConfig(selection="uniform", fresh_fraction=1.0)
    generator = np.random.default_rng(0)
    for num_questions, groups in ((5, 2), (6, 4), (3, 2)):
        loop = make_loop(config, num_questions, groups)
        for step in range(60):
            excluded = np.array([0]) if step < 20 else generator.integers(num_questions, size=1)
            loop.plan_references(excluded)
            chosen = loop.plan_batch(excluded).questions.tolist()
            assert len(set(chosen)) == groups
            assert not set(chosen) & set(excluded.tolist())
        assert len(loop.queue) <= 3 * num_questions
    with pytest.raises(ConfigError, match="too few questions are left"):
        loop.plan_batch(np.array([0, 1]))


def test_one_scored_reference_is_too_few():
    loop = make_loop()
    probes = loop.plan_references()
    with pytest.raises(RewardError, match="1 of 6"):
        loop.observe_references(observation(probes[:1], [0.5]))


def test_an_estimator_that_learns_from_batches_goes_on_exactly():
    config = EfficiencyConfig(num_references=0, fresh_fraction=1.0, steps_per_selection=4)

    def make():
        return make_loop(config, 12, 8, estimator=DecayedBeta(12))

    def take(loop):
        loop.plan_references()
        chosen = loop.plan_batch().questions
        loop.observe(observation(chosen, chosen / 11))
        return chosen.tolist(), loop.record.fresh_prediction_F.tolist()

    whole = make()
    take(whole)
    state = whole.state()
    other = make()
    other.restore(state)
    for _ in range(6):
        assert take(other) == take(whole)


def test_the_target_difficulty_is_the_configs():
    config = SMALL.replace(fresh_fraction=1.0, target_difficulty=0.25, steps_per_selection=1)
    loop = make_loop(config)
    probes = loop.plan_references()
    loop.observe_references(observation(probes, np.zeros(len(probes))))
    chosen = loop.plan_batch().questions / 39  # the difficulty that Known tells
    assert chosen.mean() == pytest.approx(0.25, abs=0.02)
