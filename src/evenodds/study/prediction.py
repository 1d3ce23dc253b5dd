"""Difficulty of every question of a pool, from one policy's labels of some."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from evenodds.difficulty import AttentionPredictor, PredictorModel
from evenodds.difficulty.calibration import spread
from evenodds.difficulty.scores import pearson
from evenodds.embedding_file import EmbeddingFile
from evenodds.errors import DataError, some
from evenodds.labels import LabelTable
from evenodds.study.entrants import observed


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is predicted of a pool.

    Attributes:
        ids: Of the questions.
        difficulty_N: Failure rate, in (0, 1).
        deviation_N: Standard deviation of the true failure rate around it.
        num_references: Labels it was made from.
        pearson: Between the references' labels and what the others predict of them.
    """

    ids: tuple[str, ...]
    difficulty_N: Float[np.ndarray, " N"]
    deviation_N: Float[np.ndarray, " N"]
    num_references: int
    pearson: float

    def summary(self) -> dict[str, float | None]:
        """Numbers of the whole pool, JSON-able."""
        near_N = np.abs(self.difficulty_N - 0.5) <= 0.25
        return {
            "questions": len(self.ids),
            "references": self.num_references,
            "difficulty_mean": float(self.difficulty_N.mean()),
            "share_near_even_odds": float(near_N.mean()),
            "standard_deviation_mean": float(self.deviation_N.mean()),
            "pearson": self.pearson if np.isfinite(self.pearson) else None,
        }


def predict(
    model: PredictorModel,
    ids: Sequence[str],
    embeddings: EmbeddingFile,
    references: LabelTable,
) -> Prediction:
    """Predict every question of a pool.

    The deviation is c d (1 - d) under the root, c measured on the references themselves, each
    predicted from the others (see `evenodds.difficulty.calibration.spread`).

    Args:
        model: A trained predictor.
        ids: The questions to predict.
        embeddings: Of these and of the references.
        references: Labels of one policy; they need not be in the pool.

    Raises:
        DataError: the references are of several policies, fewer than two, or have no embedding.
    """
    if len(references.policies) != 1:
        raise DataError(
            "references are labels of one policy",
            got=f"{len(references.policies)} policies: {some(references.policies)}",
            expected="one, the policy as it is now",
            fix="name one with --policy",
        )
    labelled = np.flatnonzero(references.samples_LN[0])
    if len(labelled) < 2:
        raise DataError(
            "there are too few references",
            got=f"{len(labelled)} labelled questions",
            expected="at least 2, and some hundred for a good prediction",
        )
    known = set(ids)
    outside = [references.ids[row] for row in labelled if references.ids[row] not in known]
    everything = (*ids, *outside)
    predictor = AttentionPredictor.trained(
        model, embeddings.aligned(everything), embedding_model=embeddings.model
    )
    place = {name: row for row, name in enumerate(everything)}
    rows_K = np.array([place[references.ids[row]] for row in labelled])
    aligned = references.aligned(everything)
    evidence = observed(aligned, 0, rows_K)
    difficulty = predictor.predict(evidence)
    at_references_K = difficulty[rows_K]
    share = spread(at_references_K, evidence.difficulty_K, evidence.samples_K)
    difficulty_N = difficulty[: len(ids)]
    return Prediction(
        ids=tuple(ids),
        difficulty_N=difficulty_N,
        deviation_N=np.sqrt(share * difficulty_N * (1.0 - difficulty_N)),
        num_references=len(rows_K),
        pearson=pearson(at_references_K, evidence.difficulty_K),
    )
