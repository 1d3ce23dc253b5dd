"""The predictors that are judged side by side, each as an estimator of the loop."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from evenodds.difficulty import (
    AttentionPredictor,
    DifficultyEstimator,
    EvidencePosterior,
    PredictorModel,
)
from evenodds.difficulty.baselines import ConstantMean, DecayedBeta, FeatureRidge, LastLabel
from evenodds.labels import LabelTable
from evenodds.text_features import text_features
from evenodds.types import Observation


@dataclass(frozen=True)
class Entrant:
    """A predictor under a name.

    Attributes:
        name: In tables.
        make: A new one, which has seen training labels only.
    """

    name: str
    make: Callable[[], DifficultyEstimator]


def uncalibrated(difficulty_K: Tensor) -> tuple[float, float]:
    """w = 1 and b = 0: predictions stay as attention gives them."""
    return 1.0, 0.0


def all_entrants(
    model: PredictorModel,
    embeddings_NE: Tensor,
    embedding_model: str,
    training: LabelTable,
    texts: Sequence[str],
) -> list[Entrant]:
    """The paper's predictor and every baseline.

    Args:
        model: A trained predictor.
        embeddings_NE: Of the N questions.
        embedding_model: What made them.
        training: Labels of the N questions under the policies that were trained on, oldest
            first, without the held-out questions.
        texts: The questions; where there are none, the row of TF-IDF is left out.
    """
    difficulty_LN = training.difficulty_LN
    calibrated = AttentionPredictor.trained(model, embeddings_NE, embedding_model=embedding_model)
    plain = AttentionPredictor(calibrated.query_NH, calibrated.references, uncalibrated)
    raw = AttentionPredictor.untrained(embeddings_NE)
    entrants = [
        Entrant("attention, adapter, calibrated", lambda: calibrated),
        Entrant("attention, adapter", lambda: plain),
        Entrant("attention, raw embeddings", lambda: raw),
    ]
    if texts:
        features = text_features(texts)
        entrants.append(Entrant("TF-IDF, ridge", lambda: FeatureRidge(features)))
    posterior = EvidencePosterior(len(training), features_ND=embeddings_NE.float().numpy())
    _show_all(posterior, training)
    return [
        *entrants,
        Entrant("constant mean", lambda: ConstantMean(len(training))),
        Entrant("mean of other policies' labels", lambda: LastLabel(_mean(difficulty_LN))),
        Entrant("last label", lambda: LastLabel(_last(difficulty_LN))),
        Entrant("decayed Beta posterior", lambda: _beta(training)),
        Entrant("evidence posterior", lambda: copy.deepcopy(posterior)),
    ]


def observed(labels: LabelTable, policy: int, rows_K: Any) -> Observation:
    """One policy's labels of some questions, as a reference set."""
    samples_K, correct_K = labels.samples_LN[policy, rows_K], labels.correct_LN[policy, rows_K]
    return Observation(
        questions_K=np.asarray(rows_K, dtype=np.int64),
        difficulty_K=(1.0 - correct_K / samples_K).astype(np.float32),
        effective_K=(correct_K > 0) & (correct_K < samples_K),
        samples_K=samples_K,
    )


def _mean(difficulty_LN: Float[np.ndarray, "L N"]) -> Float[np.ndarray, " N"]:
    known_LN = ~np.isnan(difficulty_LN)
    count_N = known_LN.sum(axis=0)
    total_N = np.where(known_LN, difficulty_LN, 0.0).sum(axis=0)
    return np.where(count_N, total_N / np.maximum(count_N, 1), np.nan)


def _last(difficulty_LN: Float[np.ndarray, "L N"]) -> Float[np.ndarray, " N"]:
    last_N = np.full(difficulty_LN.shape[1], np.nan)
    for difficulty_N in difficulty_LN:
        last_N = np.where(np.isnan(difficulty_N), last_N, difficulty_N)
    return last_N


def _beta(training: LabelTable) -> DecayedBeta:
    posterior = DecayedBeta(len(training))
    _show_all(posterior, training)
    return posterior


def _show_all(estimator: DifficultyEstimator, training: LabelTable) -> None:
    """Every policy's labels, oldest first, as batches that were observed."""
    for policy, samples_N in enumerate(training.samples_LN):
        estimator.observe(observed(training, policy, np.flatnonzero(samples_N)))
