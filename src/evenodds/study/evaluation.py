"""Judge a predictor on labels that it has not seen, beside every baseline."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenodds.bootstrap import Interval, bootstrap_mean, columns
from evenodds.difficulty import PredictorModel
from evenodds.difficulty.scores import Reliability, noise_ceiling, reliability
from evenodds.embedding_file import EmbeddingFile
from evenodds.embeddings import Track, untracked
from evenodds.errors import DataError, some
from evenodds.labels import LabelTable
from evenodds.study.entrants import Entrant, all_entrants, observed
from evenodds.study.scoring import METRICS, draw_true_rates, score
from evenodds.study.splits import Split
from evenodds.study_config import ScoringConfig

ORACLE = "oracle, with the labels' noise"


@dataclass(frozen=True, eq=False)
class Row:
    """One predictor's scores.

    Attributes:
        name: Of the predictor.
        scores: Of each metric in `METRICS`, over reference draws.
        reliability: Over all draws and policies.
    """

    name: str
    scores: dict[str, Interval]
    reliability: Reliability


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found.

    Attributes:
        rows: The predictor first, then the baselines, the oracle last.
        split: What was held out, and scored.
        policies: The policies whose labels were predicted.
        num_questions: Questions that were predicted for each, on average.
        config: How it was judged.
        noise_ceiling: Largest Pearson r that the labels' sampling noise allows, mean over the
            policies; NaN where labels have a single sample.
        predicted: Of the judged predictor, on the first draw, for the picture.
        observed: The labels of the same questions.
    """

    rows: tuple[Row, ...]
    split: Split
    policies: tuple[str, ...]
    num_questions: float
    config: ScoringConfig
    noise_ceiling: float
    predicted: Float[np.ndarray, " P"]
    observed: Float[np.ndarray, " P"]

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values: a row a predictor, each metric with its interval."""
        return {
            "split": self.split.kind,
            "policies": list(self.policies),
            "questions": self.num_questions,
            "noise_ceiling": self.noise_ceiling if np.isfinite(self.noise_ceiling) else None,
            "config": self.config.as_dict(),
            "rows": [{"predictor": row.name, **columns(row.scores)} for row in self.rows],
        }


def evaluate(
    model: PredictorModel,
    labels: LabelTable,
    embeddings: EmbeddingFile,
    *,
    kind: str | None = None,
    config: ScoringConfig | None = None,
    track: Track = untracked,
) -> Evaluation:
    """Predict held-out labels from reference sets, and score every predictor on the same ones.

    References are drawn from the questions that were trained on, where some were not; all others
    with a label are scored.

    Args:
        model: From `fit` with something held out.
        labels: Those it was fitted on, or others of the same questions.
        embeddings: Of the labelled questions.
        kind: What must be held out: `policy`, `question`, `both` or `time`; by default what was.
        config: How to judge.
        track: Shows progress.

    Raises:
        DataError: the predictor has seen what it is to be judged on, or nothing is left to score.
    """
    config = config or ScoringConfig()
    split = _held_out(model, labels, kind)
    embeddings_NE = embeddings.aligned(labels.ids)
    trained = set(model.record["policies"])
    training = _training(labels, split, trained)
    entrants = all_entrants(model, embeddings_NE, embeddings.model, training, labels.texts)
    tested = _tested_policies(labels, split, trained)
    trains_N = split.trains_on_question(labels)
    rounds = [
        _Round(labels, policy, trains_N, bool(split.questions), config, draw)
        for draw in range(config.draws)
        for policy in tested
    ]
    rows, first = _judge(entrants, rounds, config, track)
    return Evaluation(
        rows=(*rows, _oracle(rounds, config)),
        split=split,
        policies=tuple(labels.policies[policy] for policy in tested),
        num_questions=float(np.mean([len(part.test_M) for part in rounds])),
        config=config,
        noise_ceiling=float(np.mean([part.ceiling for part in rounds])),
        predicted=first[0],
        observed=first[1],
    )


class _Round:
    """One policy and one reference set: what is given, and what is to be predicted."""

    def __init__(
        self,
        labels: LabelTable,
        policy: int,
        trains_N: np.ndarray,
        holds_questions: bool,
        config: ScoringConfig,
        draw: int,
    ) -> None:
        self.draw = draw
        self.generator = np.random.default_rng([config.seed, draw, policy])
        labelled_N = labels.samples_LN[policy] > 0
        candidates = np.flatnonzero(labelled_N & trains_N)
        if len(candidates) < config.num_references:
            raise DataError(
                f"{labels.policies[policy]} has too few labels for a reference set",
                got=f"{len(candidates)} questions to draw from, {config.num_references} references",
                expected="at least as many",
                fix="lower --num-references",
            )
        rows_K = self.generator.choice(candidates, config.num_references, replace=False)
        self.references = observed(labels, policy, rows_K)
        test_N = labelled_N & ~trains_N if holds_questions else labelled_N.copy()
        test_N[rows_K] = False
        self.test_M = np.flatnonzero(test_N)
        if len(self.test_M) < 2:
            raise DataError(
                f"nothing is left to score for {labels.policies[policy]}",
                got=f"{int(labelled_N.sum())} labels, {config.num_references} of them references",
                fix="lower --num-references",
            )
        self.correct_M = labels.correct_LN[policy, self.test_M]
        self.samples_M = labels.samples_LN[policy, self.test_M]

    @property
    def ceiling(self) -> float:
        return noise_ceiling(self.correct_M, self.samples_M)


def _judge(
    entrants: Sequence[Entrant],
    rounds: Sequence[_Round],
    config: ScoringConfig,
    track: Callable[[Sequence[Any], str], Iterable[Any]],
) -> tuple[list[Row], tuple[np.ndarray, np.ndarray]]:
    scores: dict[str, list[tuple[int, dict[str, float]]]] = {e.name: [] for e in entrants}
    pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {e.name: [] for e in entrants}
    for part in track(rounds, "Judging predictors"):
        truth_M = 1.0 - part.correct_M / part.samples_M
        choice_seed = int(part.generator.integers(2**32))
        for entrant in entrants:
            estimator = entrant.make()
            estimator.probe(part.references)
            estimate = estimator.estimate()
            predicted_M = estimate.difficulty_N[part.test_M]
            variance_M = estimate.variance_N[part.test_M]
            choice = np.random.default_rng(choice_seed)
            found = score(predicted_M, variance_M, part.correct_M, part.samples_M, config, choice)
            scores[entrant.name].append((part.draw, found))
            pairs[entrant.name].append((predicted_M, truth_M))
    rows = [Row(e.name, _intervals(scores[e.name]), _pooled(pairs[e.name])) for e in entrants]
    of_first_draw = [
        pair for part, pair in zip(rounds, pairs[entrants[0].name], strict=True) if part.draw == 0
    ]
    predicted, truth = (np.concatenate(side) for side in zip(*of_first_draw, strict=True))
    return rows, (predicted, truth)


def _oracle(rounds: Sequence[_Round], config: ScoringConfig) -> Row:
    """Who knows the true rates, and is scored against labels with as much noise as these."""
    scores, pairs = [], []
    for part in rounds:
        rate_M = draw_true_rates(part.correct_M, part.samples_M, part.generator)
        if np.isnan(rate_M).any():
            scores.append((part.draw, dict.fromkeys(METRICS, float("nan"))))
            continue
        correct_M = part.generator.binomial(part.samples_M, rate_M)
        certain_M = np.zeros(len(rate_M))
        found = score(1.0 - rate_M, certain_M, correct_M, part.samples_M, config, part.generator)
        scores.append((part.draw, found))
        pairs.append((1.0 - rate_M, 1.0 - correct_M / part.samples_M))
    return Row(ORACLE, _intervals(scores), _pooled(pairs))


def _intervals(scores: Sequence[tuple[int, dict[str, float]]]) -> dict[str, Interval]:
    """Over draws, of the mean over policies."""
    draws = sorted({draw for draw, _ in scores})
    return {
        name: bootstrap_mean(
            np.array([np.mean([s[name] for d, s in scores if d == draw]) for draw in draws])
        )
        for name in METRICS
    }


def _pooled(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Reliability:
    if not pairs:
        nothing: Int[np.ndarray, " R"] = np.empty(0, dtype=np.int64)
        return Reliability(nothing.astype(float), nothing.astype(float), nothing)
    predicted, truth = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return reliability(predicted, truth)


def _held_out(model: PredictorModel, labels: LabelTable, kind: str | None) -> Split:
    """What the predictor has not seen, and a check that it is what was asked for."""
    split = Split.from_dict(model.record.get("split", {}))
    wanted = kind or split.kind
    seen = set(model.record["policies"])
    new = tuple(name for name in labels.policies if name not in seen)
    needs_policies, needs_questions = wanted != "question", wanted in ("question", "both")
    if (needs_policies and not new) or (needs_questions and not split.questions):
        raise DataError(
            f"the predictor has seen everything that a split by {wanted} would judge it on",
            got=f"{len(seen)} policies were trained on, {len(split.questions)} questions held out",
            expected="held-out policies or questions, as the split says",
            fix=f"evenodds fit LABELS --hold-out {wanted if wanted != 'none' else 'policy'} ...",
        )
    if wanted == "time" and split.kind != "time":
        raise DataError(
            "the predictor was not fitted on the past alone",
            got=f"fitted with --hold-out {split.kind}",
            expected="--hold-out time",
        )
    return Split(wanted, new if needs_policies else (), split.questions if needs_questions else ())


def _training(labels: LabelTable, split: Split, trained: set[str]) -> LabelTable:
    """The labels that any predictor may know."""
    names = [name for name in labels.policies if name in trained]
    known = labels.of_policies(names)
    trains_N = split.trains_on_question(labels)
    return LabelTable(
        known.ids,
        known.texts,
        known.policies,
        np.where(trains_N, known.samples_LN, 0),
        np.where(trains_N, known.correct_LN, 0),
    )


def _tested_policies(labels: LabelTable, split: Split, trained: set[str]) -> list[int]:
    tested = [
        place
        for place, name in enumerate(labels.policies)
        if (name in split.policies or (not split.policies and name in trained))
        and labels.samples_LN[place].any()
    ]
    if not tested:
        raise DataError(
            "the labels hold no policy to judge by", got=some(labels.policies), expected=split.kind
        )
    return tested
