"""Fit, predict, evaluate and simulate on a small world whose truth is known."""

from pathlib import Path

import numpy as np
import pytest

from evenodds.difficulty import PredictorModel, pearson
from evenodds.difficulty.baselines import LastLabel
from evenodds.errors import ConfigError, DataError
from evenodds.labels import LabelTable, read_labels
from evenodds.study import (
    STRATEGIES,
    FitConfig,
    Material,
    ScoringConfig,
    SimulationConfig,
    SplitConfig,
    Strategy,
    evaluate,
    fit,
    make_strategy,
    predict,
    simulate,
    usable_strategies,
)

from study_world import IDS, TEXTS, embeddings, make_labels

SMALL = FitConfig(
    width=16, num_references=32, batch_size=64, epochs=25, warmup_steps=5, dropout=0.0
)
SCORING = ScoringConfig(num_references=32, draws=4, choose=16)


@pytest.fixture(scope="module")
def fitted():
    hold_out = SplitConfig(kind="both", share=0.25)
    return fit(make_labels(), embeddings(), config=SMALL, hold_out=hold_out)


def by_name(rows):
    return {row.name: row for row in rows}


# fit


def test_held_out_labels_do_not_reach_the_fit():
    labels = make_labels()
    hold_out = SplitConfig(kind="both", share=0.25)
    config = SMALL.replace(epochs=2)
    one = fit(labels, embeddings(), config=config, hold_out=hold_out)
    held_L = ~one.split.trains_on_policy(labels)
    held_N = ~one.split.trains_on_question(labels)
    correct = labels.correct_LN.copy()
    correct[held_L] = 0
    correct[:, held_N] = 8
    changed = LabelTable(IDS, TEXTS, labels.policies, labels.samples_LN, correct)
    two = fit(changed, embeddings(), config=config, hold_out=hold_out)
    for left, right in zip(
        one.model.state_dict().values(), two.model.state_dict().values(), strict=True
    ):
        assert (left == right).all()


def test_a_predictor_remembers_what_it_has_not_seen(fitted, tmp_path):
    fitted.model.save(tmp_path / "p.safetensors")
    loaded = PredictorModel.load(tmp_path / "p.safetensors")
    assert loaded.record["split"] == fitted.split.as_dict()
    assert len(loaded.record["policies"]) == 6
    assert loaded.embedding_model == "made@1"


def test_further_labels_are_trained_on_too():
    labels = make_labels()
    first = labels.of_policies(labels.policies[:1])
    rest = labels.of_policies(labels.policies[1:])
    both = fit(first, embeddings(), config=SMALL.replace(epochs=1), further=rest)
    assert both.policies == labels.policies


def test_labels_of_unknown_questions_are_refused():
    labels = make_labels()
    other = LabelTable(
        ("f" * 32, *IDS[1:]), TEXTS, labels.policies, labels.samples_LN, labels.correct_LN
    )
    with pytest.raises(DataError, match="1 of 240, for example ffff"):
        fit(other, embeddings(), config=SMALL)


def test_one_policy_is_fitted_with_questions_kept_aside():
    labels = make_labels()
    done = fit(labels.of_policies(["step-30"]), embeddings(), config=SMALL)
    assert max(done.report.validation_pearson) > 0.6


# predict


def test_prediction_is_near_the_truth_and_knows_how_near(fitted):
    labels = make_labels(seed=1)
    now = labels.of_policies(["step-40"])
    references = now.of_questions(np.arange(0, 240, 5))
    found = predict(fitted.model, IDS, embeddings(), references)
    rest = np.setdiff1d(np.arange(240), np.arange(0, 240, 5))
    truth = now.difficulty_LN[0]
    assert pearson(found.difficulty_N[rest], truth[rest]) > 0.75
    inside = np.abs(found.difficulty_N - truth) <= 2 * np.sqrt(
        found.deviation_N**2 + truth * (1 - truth) / 8
    )
    assert inside[rest].mean() > 0.85
    assert found.num_references == 48


@pytest.mark.parametrize("correct", [0, 8])
def test_references_all_alike_leave_predictions_finite(fitted, correct):
    labels = make_labels()
    flat = LabelTable(
        IDS[:20], TEXTS[:20], ("now",), np.full((1, 20), 8), np.full((1, 20), correct)
    )
    found = predict(fitted.model, labels.ids, embeddings(), flat)
    assert np.isfinite(found.difficulty_N).all()
    assert np.isfinite(found.deviation_N).all()
    assert np.isnan(found.pearson)


def test_references_need_not_be_in_the_pool(fitted):
    references = make_labels().of_policies(["step-40"]).of_questions(np.arange(100, 160))
    found = predict(fitted.model, IDS[:50], embeddings(), references)
    assert len(found.difficulty_N) == 50


def test_references_of_several_policies_are_refused(fitted):
    with pytest.raises(DataError, match="8 policies"):
        predict(fitted.model, IDS, embeddings(), make_labels())


# evaluate


def test_evaluation_ranks_predictors_as_this_world_must(fitted):
    found = evaluate(fitted.model, make_labels(), embeddings(), config=SCORING)
    rows = by_name(found.rows)
    assert len(rows) == 10
    best = rows["attention, adapter, calibrated"].scores["pearson"]
    assert best.mean > rows["attention, raw embeddings"].scores["pearson"].mean
    assert np.isnan(rows["constant mean"].scores["pearson"].mean)
    # held-out questions have no other labels: these know nothing of them
    assert np.isnan(rows["last label"].scores["pearson"].mean)
    assert best.low <= best.mean <= best.high
    assert best.mean < found.noise_ceiling
    assert found.num_questions == 60
    assert set(found.policies) == set(fitted.split.policies)


def test_evaluation_by_policy_gives_stale_labels_their_due():
    labels = make_labels()
    hold_out = SplitConfig(kind="time")
    done = fit(labels, embeddings(), config=SMALL.replace(epochs=2), hold_out=hold_out)
    found = evaluate(done.model, labels, embeddings(), config=SCORING)
    rows = by_name(found.rows)
    stale = rows["last label"].scores["pearson"].mean
    assert 0.6 < stale < found.noise_ceiling
    oracle = rows["oracle, with the labels' noise"].scores["pearson"].mean
    assert oracle == pytest.approx(found.noise_ceiling, abs=0.02)
    assert found.policies == ("step-60", "step-70")
    again = evaluate(done.model, labels, embeddings(), config=SCORING)
    assert again.as_dict() == found.as_dict()


def test_what_was_trained_on_is_not_judged():
    labels = make_labels()
    done = fit(labels, embeddings(), config=SMALL.replace(epochs=1))
    with pytest.raises(DataError, match="has seen everything"):
        evaluate(done.model, labels, embeddings(), kind="policy", config=SCORING)


def test_a_split_that_was_not_held_out_is_refused(fitted):
    with pytest.raises(DataError, match="not fitted on the past alone"):
        evaluate(fitted.model, make_labels(), embeddings(), kind="time", config=SCORING)


def test_single_samples_have_no_noise_ceiling():
    labels = make_labels(samples=1)
    done = fit(labels, embeddings(), config=SMALL.replace(epochs=1), hold_out=SplitConfig())
    found = evaluate(done.model, labels, embeddings(), config=SCORING)
    assert np.isnan(found.noise_ceiling)
    assert found.as_dict()["noise_ceiling"] is None
    assert found.as_dict()["rows"][0]["pearson"] is not None


# simulate


class Spy(LastLabel):
    """Remembers what it was shown."""

    def __init__(self):
        super().__init__(np.full(240, np.nan))
        self.shown = []

    def observe(self, fresh):
        self.shown.append(fresh)
        super().observe(fresh)


def test_a_strategy_sees_what_it_picks_and_never_the_hidden_quarter():
    from evenodds.study.simulation import _hidden

    spy = Spy()
    labels = make_labels()
    config = SimulationConfig(budget=24, seeds=1)
    found = simulate(labels, [Strategy("spy", lambda: spy)], config=config)
    assert len(spy.shown) == 8
    for visit, seen in enumerate(spy.shown):
        assert len(seen.questions_K) == 24
        assert not set(seen.questions_K) & set(_hidden(240, 0, visit))
        expected = labels.difficulty_LN[visit, seen.questions_K]
        assert seen.difficulty_K == pytest.approx(expected)
    assert (found.courses[0].values["rollouts"] == 24 * 8).all()


def test_probes_come_out_of_the_same_budget(fitted):
    material = Material(make_labels(), embeddings().values_NE, "made@1", fitted.model)
    config, groups = make_strategy("paper", material).config(SimulationConfig(budget=24))
    assert (config.num_references, groups) == (8, 16)
    config, groups = make_strategy("uniform", material).config(SimulationConfig(budget=24))
    assert (config.num_references, groups) == (0, 24)


def test_simulation_ranks_strategies_as_this_world_must(fitted):
    labels = make_labels(num_policies=12)
    prior = labels.difficulty_LN[3].copy()
    prior[::2] = np.nan
    material = Material(labels, embeddings().values_NE, "made@1", fitted.model, prior)
    strategies = usable_strategies(material)
    assert [strategy.name for strategy in strategies] == list(STRATEGIES)
    found = simulate(labels, strategies, config=SimulationConfig(budget=48, seeds=2))
    rows = {row["strategy"]: row for row in found.as_dict()["rows"]}
    assert rows["oracle"]["pearson"] > rows["paper"]["pearson"] > rows["raw"]["pearson"]
    assert rows["oracle"]["effective_fraction"] > rows["uniform"]["effective_fraction"]
    assert rows["paper"]["mean_signal"] > rows["uniform"]["mean_signal"]
    assert rows["constant"]["pearson"] is None
    assert rows["uniform"]["visited"] == 1.0
    assert all(row["rollouts"] == 48 * 8 for row in rows.values())
    assert rows["posterior"]["pearson"] > rows["paper"]["pearson"]
    assert rows["posterior"]["effective_fraction"] > rows["uniform"]["effective_fraction"]
    # features say all of this world, where it expects them to say a part: surer than it states
    assert 0.5 < rows["posterior"]["standardised_error"] < 1.15
    assert rows["last-label"]["standardised_error"] is None


RECORDED = Path(__file__).parents[4] / "shared" / "data" / "grpo_history.parquet"


@pytest.mark.skipif(not RECORDED.exists(), reason=f"needs {RECORDED.name} in shared/data beside")
def test_a_real_history_is_replayed():
    history = read_labels(RECORDED)
    material = Material(history)
    names = ("uniform", "last-label", "shared-model", "posterior", "oracle")
    strategies = [make_strategy(name, material) for name in names]
    found = simulate(history, strategies, config=SimulationConfig(seeds=1))
    assert found.visits == 44
    rows = {row["strategy"]: row for row in found.as_dict()["rows"]}
    # half of uniformly drawn groups are effective in that run, and knowing better finds more
    assert rows["uniform"]["effective_fraction"] == pytest.approx(0.516, abs=0.02)
    assert rows["last-label"]["effective_fraction"] > 0.7
    assert rows["oracle"]["pearson"] > 0.9
    # from the text and from what was seen
    assert rows["posterior"]["pearson"] > 0.87
    assert rows["posterior"]["effective_fraction"] > 0.86
    assert rows["shared-model"]["pearson"] < rows["last-label"]["pearson"]
    assert rows["posterior"]["calibration_error"] < 0.035
    assert rows["posterior"]["standardised_error"] == pytest.approx(0.9, abs=0.15)


def test_what_a_strategy_needs_is_said():
    material = Material(make_labels())
    assert "paper" not in [strategy.name for strategy in usable_strategies(material)]
    with pytest.raises(ConfigError, match="needs --predictor"):
        make_strategy("paper", material)
    with pytest.raises(ConfigError, match="did you mean 'uniform'"):
        make_strategy("unifrom", material)


def test_incomplete_visits_end_the_history():
    labels = make_labels()
    samples = labels.samples_LN.copy()
    samples[5, 7] = 0
    correct = np.minimum(labels.correct_LN, samples)
    cut = LabelTable(IDS, TEXTS, labels.policies, samples, correct)
    strategies = [make_strategy("uniform", Material(cut))]
    found = simulate(cut, strategies, config=SimulationConfig(budget=24, seeds=1))
    assert found.visits == 5
    with pytest.raises(ConfigError, match="at most 180"):
        simulate(cut, strategies, config=SimulationConfig(budget=200, seeds=1))
