"""Plain estimators to hold any predictor against. Each does what its name says, and no more."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from evenodds.difficulty.estimator import Estimate
from evenodds.state import State
from evenodds.types import Observation

RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class ConstantMean:
    """Every question is as difficult as the last reference set was on average."""

    needs_references = True

    def __init__(self, num_questions: int) -> None:
        self.num_questions = num_questions
        self._mean = 0.5

    def probe(self, references: Observation) -> None:
        """Take the mean of the references."""
        self._mean = float(references.difficulty_K.mean())

    def observe(self, fresh: Observation) -> None:
        """Nothing: a batch was chosen, and its mean says little of the pool."""

    def estimate(self) -> Estimate:
        """The same number everywhere."""
        return _certain(np.full(self.num_questions, self._mean))

    def state(self) -> State:
        """The mean."""
        return State(values={"mean": self._mean})

    def restore(self, state: State) -> None:
        """Take over a mean."""
        self._mean = state.values["mean"]


class FeatureRidge:
    """Ridge regression on features of the text, from the references alone.

    Solved in its dual form, K x K. The ridge is chosen among `RIDGES` by the exact leave-one-out
    error on the references.

    Args:
        features_NV: A row a question: an array, or a scipy sparse matrix such as TF-IDF.
    """

    needs_references = True

    def __init__(self, features_NV: Any) -> None:
        self.features_NV = features_NV
        self._difficulty_N = np.full(features_NV.shape[0], 0.5)

    def probe(self, references: Observation) -> None:
        """Fit the references and predict every question."""
        reference_KV = self.features_NV[references.questions_K]
        kernel_NK = _dense(self.features_NV @ reference_KV.T)
        kernel_KK = kernel_NK[references.questions_K]
        target_K = references.difficulty_K.astype(np.float64)
        mean = target_K.mean()
        weights_K = _dual_ridge(kernel_KK, target_K - mean)
        self._difficulty_N = np.clip(mean + kernel_NK @ weights_K, 0.0, 1.0)

    def observe(self, fresh: Observation) -> None:
        """Nothing: a batch was chosen by difficulty, which would bend the fit."""

    def estimate(self) -> Estimate:
        """The fit, cut to [0, 1]."""
        return _certain(self._difficulty_N)

    def state(self) -> State:
        """The fit."""
        return State(tensors={"difficulty": torch.from_numpy(self._difficulty_N.copy())})

    def restore(self, state: State) -> None:
        """Take over a fit."""
        self._difficulty_N = state.tensors["difficulty"].numpy().copy()


class LastLabel:
    """A question is as difficult as it was when last seen; unseen ones as seen ones on average.

    Args:
        difficulty_N: What to start from, for example another policy's labels; NaN is unseen.
    """

    needs_references = False

    def __init__(self, difficulty_N: Float[np.ndarray, " N"]) -> None:
        self._last_N = difficulty_N.astype(np.float64)

    def probe(self, references: Observation) -> None:
        """Remember."""
        self._last_N[references.questions_K] = references.difficulty_K

    def observe(self, fresh: Observation) -> None:
        """Remember."""
        self.probe(fresh)

    def estimate(self) -> Estimate:
        """The labels; the mean of all where there is none, 0.5 before anything was seen."""
        seen_N: Bool[np.ndarray, " N"] = ~np.isnan(self._last_N)
        mean = self._last_N[seen_N].mean() if seen_N.any() else 0.5
        return _certain(np.where(seen_N, self._last_N, mean))

    def state(self) -> State:
        """The labels."""
        return State(tensors={"last": torch.from_numpy(self._last_N.copy())})

    def restore(self, state: State) -> None:
        """Take over labels."""
        self._last_N = state.tensors["last"].numpy().copy()


class DecayedBeta:
    """A Beta posterior of each question on its own, that forgets (after arXiv 2507.04632).

    With every batch the counts shrink by `decay` toward the prior, then what was seen is added.

    Args:
        num_questions: N.
        decay: Share of the evidence that is left after a step.
        prior: Failures and successes that every question starts with.
    """

    needs_references = False

    def __init__(
        self, num_questions: int, *, decay: float = 0.5, prior: tuple[float, float] = (1.0, 1.0)
    ) -> None:
        self.decay = decay
        self.prior = prior
        self._failed_N = np.zeros(num_questions)
        self._solved_N = np.zeros(num_questions)

    def probe(self, references: Observation) -> None:
        """Count."""
        failed_K = references.difficulty_K.astype(np.float64) * references.samples_K
        self._failed_N[references.questions_K] += failed_K
        self._solved_N[references.questions_K] += references.samples_K - failed_K

    def observe(self, fresh: Observation) -> None:
        """Forget a part, then count."""
        self._failed_N *= self.decay
        self._solved_N *= self.decay
        self.probe(fresh)

    def estimate(self) -> Estimate:
        """Mean and variance of the posterior."""
        failed_N, solved_N = self._failed_N + self.prior[0], self._solved_N + self.prior[1]
        total_N = failed_N + solved_N
        mean_N = failed_N / total_N
        variance_N = mean_N * (1 - mean_N) / (total_N + 1)
        return Estimate(mean_N.astype(np.float32), variance_N.astype(np.float32))

    def state(self) -> State:
        """The counts."""
        counts = np.stack([self._failed_N, self._solved_N])
        return State(tensors={"counts": torch.from_numpy(counts)})

    def restore(self, state: State) -> None:
        """Take over counts."""
        self._failed_N, self._solved_N = state.tensors["counts"].numpy().copy()


def _certain(difficulty_N: Float[np.ndarray, " N"]) -> Estimate:
    return Estimate(difficulty_N.astype(np.float32), np.zeros(len(difficulty_N), dtype=np.float32))


def _dense(matrix: Any) -> Float[np.ndarray, "N K"]:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)


def _dual_ridge(
    kernel_KK: Float[np.ndarray, "K K"], target_K: Float[np.ndarray, " K"]
) -> Float[np.ndarray, " K"]:
    """Dual weights (Kernel + ridge I)^-1 y at the ridge with the least leave-one-out error.

    That error is w_i / [(Kernel + ridge I)^-1]_ii for reference i, without fitting again.
    """
    values_K, vectors_KK = np.linalg.eigh(kernel_KK)
    rotated_K = vectors_KK.T @ target_K
    best_error, best_K = np.inf, np.zeros_like(target_K)
    for ridge in RIDGES:
        inverse_K = 1.0 / (np.maximum(values_K, 0.0) + ridge)
        weights_K = vectors_KK @ (inverse_K * rotated_K)
        diagonal_K = np.square(vectors_KK) @ inverse_K
        error = float(np.square(weights_K / diagonal_K).mean())
        if error < best_error:
            best_error, best_K = error, weights_K
    return best_K
