"""Replay a recorded training history: what would a strategy have chosen, and known?"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from evenodds.bootstrap import Interval, bootstrap_mean, columns
from evenodds.difficulty import Estimate
from evenodds.difficulty.scores import (
    Reliability,
    effective_chance,
    pearson,
    reliability,
    spearman,
    standardised_error,
)
from evenodds.embeddings import Track, untracked
from evenodds.errors import ConfigError, DataError
from evenodds.labels import LabelTable
from evenodds.loop import DataEfficientLoop
from evenodds.study.entrants import observed
from evenodds.study.strategies import Strategy
from evenodds.study_config import SimulationConfig

logger = logging.getLogger(__name__)

HIDDEN_SHARE = 0.25  # of the pool, drawn anew at each visit, that nobody may pick

METRICS = {
    "pearson": "Pearson r",
    "spearman": "Spearman r",
    "calibration_error": "calibration error",
    "standardised_error": "error² over stated",
    "effective_fraction": "effective fraction",
    "mean_signal": "mean p(1-p)",
    "rollouts": "rollouts a visit",
    "visited": "share of the pool visited",
}


@dataclass(frozen=True, eq=False)
class Course:
    """What one strategy did, visit by visit.

    Attributes:
        strategy: Its name.
        values: Of each metric in `METRICS`, a row a seed, a column a visit. `visited` counts all
            visits so far.
        reliability: Over all scored visits and seeds.
    """

    strategy: str
    values: dict[str, Float[np.ndarray, "S V"]]
    reliability: Reliability

    def summary(self) -> dict[str, Interval]:
        """Each metric over visits from 1 on, with an interval over seeds.

        Visit 0 is left out, where nothing is known; `visited` is that at the end.
        """
        return {
            name: bootstrap_mean(
                values_SV[:, -1] if name == "visited" else _known_mean(values_SV[:, 1:])
            )
            for name, values_SV in self.values.items()
        }


@dataclass(frozen=True, eq=False)
class Simulation:
    """What `simulate` found.

    Attributes:
        courses: A strategy each.
        visits: Number of visits that were replayed.
        num_questions: Questions of the history.
        config: How it was replayed.
    """

    courses: tuple[Course, ...]
    visits: int
    num_questions: int
    config: SimulationConfig

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values: a row a strategy, means over visits from 1 on and over seeds."""
        return {
            "visits": self.visits,
            "questions": self.num_questions,
            "config": self.config.as_dict(),
            "rows": [
                {"strategy": course.strategy, **columns(course.summary())}
                for course in self.courses
            ],
        }


def simulate(
    history: LabelTable,
    strategies: Sequence[Strategy],
    *,
    config: SimulationConfig | None = None,
    track: Track = untracked,
) -> Simulation:
    """Let strategies choose from a recorded history.

    At each visit a strategy sees the labels of what it probes and picks there, and no others.
    Then its estimate of a random quarter of the pool, which nobody could pick at that visit, is
    scored against the labels of that visit; the quarter is the same for every strategy.

    Args:
        history: Labels; its policies are the visits, in order. Visits from the first one that
            lacks a question are left out.
        strategies: From `make_strategy`.
        config: How to replay.
        track: Shows progress.

    Raises:
        DataError: fewer than two visits are complete.
        ConfigError: the budget does not fit the pool.
    """
    config = config or SimulationConfig()
    history = _complete(history)
    num_questions = len(history)
    free = num_questions - _num_hidden(num_questions)
    if config.budget > free:
        raise ConfigError(
            "the budget is larger than what may be picked at a visit",
            got=f"{config.budget} a visit, {num_questions} questions",
            expected=f"at most {free}, three quarters of the pool",
        )
    tasks = [(s, seed) for s in range(len(strategies)) for seed in range(config.seeds)]
    runs: list[list[_Run]] = [[] for _ in strategies]
    for strategy, seed in track(tasks, "Replaying the history"):
        runs[strategy].append(_replay(history, strategies[strategy], config, seed))
    courses = tuple(
        _course(strategy.name, part) for strategy, part in zip(strategies, runs, strict=True)
    )
    return Simulation(courses, len(history.policies), num_questions, config)


@dataclass(frozen=True, eq=False)
class _Run:
    values: dict[str, list[float]]
    predicted: list[np.ndarray]
    labels: list[np.ndarray]


def _replay(history: LabelTable, strategy: Strategy, config: SimulationConfig, seed: int) -> _Run:
    """One strategy and seed: the loop of the library, with the history as its sampler."""
    seed += config.first_seed
    setting, groups = strategy.config(config)
    estimator = strategy.make()
    loop = DataEfficientLoop(setting, len(history), groups, estimator=estimator, seed=seed)
    run = _Run({name: [] for name in METRICS}, [], [])
    seen_N: Bool[np.ndarray, " N"] = np.zeros(len(history), dtype=bool)
    for visit in range(len(history.policies)):
        hidden = _hidden(len(history), seed, visit)
        probes = loop.plan_references(hidden)
        if len(probes):
            loop.observe_references(observed(history, visit, probes))
        picked = loop.plan_batch(hidden).questions
        before = estimator.estimate()
        loop.observe(observed(history, visit, picked))
        estimated = estimator.estimate() if strategy.learns else before
        shown = np.concatenate([probes, picked])  # what is probed and picked is generated twice
        seen_N[shown] = True
        rollouts = int(history.samples_LN[visit, shown].sum())
        _score(run, history, visit, hidden, picked, estimated, config)
        run.values["rollouts"].append(float(rollouts))
        run.values["visited"].append(float(seen_N.mean()))
    return run


def _score(
    run: _Run,
    history: LabelTable,
    visit: int,
    hidden: np.ndarray,
    picked: np.ndarray,
    estimated: Estimate,
    config: SimulationConfig,
) -> None:
    label_N, estimated_N = history.difficulty_LN[visit], estimated.difficulty_N
    correct, samples = history.correct_LN[visit, picked], history.samples_LN[visit, picked]
    chance = effective_chance(correct, samples, config.group_size)
    run.values["pearson"].append(pearson(estimated_N[hidden], label_N[hidden]))
    run.values["spearman"].append(spearman(estimated_N[hidden], label_N[hidden]))
    run.values["calibration_error"].append(reliability(estimated_N[hidden], label_N[hidden]).error)
    run.values["standardised_error"].append(
        standardised_error(
            estimated_N[hidden],
            estimated.variance_N[hidden],
            label_N[hidden],
            history.samples_LN[visit, hidden],
        )
    )
    run.values["effective_fraction"].append(float(chance.mean()))
    run.values["mean_signal"].append(float((label_N[picked] * (1 - label_N[picked])).mean()))
    if visit:
        run.predicted.append(estimated_N[hidden])
        run.labels.append(label_N[hidden])


def _course(name: str, runs: Sequence[_Run]) -> Course:
    predicted = np.concatenate([part for run in runs for part in run.predicted])
    labels = np.concatenate([part for run in runs for part in run.labels])
    values = {metric: np.array([run.values[metric] for run in runs]) for metric in METRICS}
    return Course(name, values, reliability(predicted, labels))


def _hidden(num_questions: int, seed: int, visit: int) -> np.ndarray:
    generator = np.random.default_rng([seed, visit])
    return generator.choice(num_questions, _num_hidden(num_questions), replace=False)


def _num_hidden(num_questions: int) -> int:
    return round(HIDDEN_SHARE * num_questions)


def _complete(history: LabelTable) -> LabelTable:
    """The visits before the first that lacks a question."""
    complete_V = np.asarray((history.samples_LN > 0).all(axis=1))
    count = len(complete_V) if complete_V.all() else int(np.argmin(complete_V))
    if count < 2:
        raise DataError(
            "the history has too few complete visits",
            got=f"{count} of {len(complete_V)} at its start with a label for each of "
            f"{len(history)} questions",
            expected="at least 2",
        )
    if count < len(complete_V):
        logger.info("the first %d of %d visits are complete", count, len(complete_V))
    return history.of_policies(history.policies[:count])


def _known_mean(values_SV: Float[np.ndarray, "S V"]) -> Float[np.ndarray, " S"]:
    """Means of rows without their NaN; NaN where there is nothing else."""
    known_SV = ~np.isnan(values_SV)
    count_S = known_SV.sum(axis=1)
    total_S = np.where(known_SV, values_SV, 0.0).sum(axis=1)
    return np.where(count_S > 0, total_S / np.maximum(count_S, 1), np.nan)
