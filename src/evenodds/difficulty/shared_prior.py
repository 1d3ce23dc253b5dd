"""What questions share: a linear prior of their logits, learned from those that were observed.

x_q = phi_q . w + u_q, with u_q ~ N(0, spread). phi_q holds an intercept, another policy's label,
what a predictor says of the question, and features of its text. Every observed question is
evidence about w, so that what was seen of some questions moves all like them.

Labels sort the questions into kinds, which have w and spread each to themselves: no label, one
between, one near 0, one near 1. Text says most of those without a label, and labels at the ends
are censored: most of these questions are as extreme as they say, and some are far from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from evenodds.errors import CheckpointError, DataError
from evenodds.state import State

EXTREME = 0.02  # labels this near to 0 or 1 are censored: their logit says little
AXES = 128  # principal axes of the features that are kept
SPREAD = 4.0  # of the logits of questions, before any was observed: rates in (0.02, 0.98)
STRENGTH = 10.0  # of that guess, in questions
ROUNDS = 2  # of expectation maximisation at each fit; they go on from fit to fit
ROWS = 4096  # most questions fitted at once, the latest observed; bounds the time in large pools
CHUNK = 65536  # questions at once where all are predicted

UNLABELLED, BETWEEN, EASY, HARD = range(4)  # kinds of questions
INTERCEPTS = (0.0, 0.0, 2.0, -2.0)  # of each kind at first, in nats
INTERCEPT_VARIANCE = 4.0
LABEL = ((1.0, 0.25),)  # mean and variance of the weight of a label's logit
PREDICTED = ((0.0, 4.0), (1.0, 0.25), (2.0, 4.0), (-2.0, 4.0))  # and of a prediction's columns


class SharedPrior:
    """Mean and variance of the logit of every question, before its own observations.

    Args:
        num_questions: N.
        features_ND: A row a question; more than 128 columns are projected on their principal
            axes. The prior covariance they give is linear in them.
        labels_N: Another policy's difficulties; NaN where it has none.
    """

    def __init__(
        self,
        num_questions: int,
        features_ND: Float[np.ndarray, "N D"] | None = None,
        labels_N: Float[np.ndarray, " N"] | None = None,
    ) -> None:
        self.num_questions = num_questions
        self._raw_ND = features_ND
        self._axes = np.zeros((0, 0), dtype=np.float32)
        parts = [_ones(num_questions)]
        self._kind_N = np.full(num_questions, UNLABELLED, dtype=np.int8)
        self._num_kinds = 1
        if labels_N is not None:
            self._kind_N, logit_N = _read(labels_N)
            self._num_kinds = len(INTERCEPTS)
            parts.append(logit_N[:, None])
        projected_NF = np.zeros((num_questions, 0), dtype=np.float32)
        if features_ND is not None:
            _check_features(features_ND, num_questions)
            self._axes = _principal_axes(features_ND)
            projected_NF = _project(features_ND, self._axes)
        self._num_features = projected_NF.shape[1]
        self._design_NC = np.concatenate([*parts, projected_NF], axis=1)
        self._begin(LABEL if labels_N is not None else ())

    def _begin(self, weights: Sequence[tuple[float, float]]) -> None:
        """Nothing is learned; `weights` are those between the intercept and the features."""
        self._weights = tuple(weights)
        table = np.array([(0.0, INTERCEPT_VARIANCE), *weights])
        extra, kinds = self._num_features, self._num_kinds
        self._fixed = table[:, 1]
        self._start_GC = np.tile(np.concatenate([table[:, 0], np.zeros(extra)]), (kinds, 1))
        self._start_GC[:, 0] = INTERCEPTS[:kinds]
        self.spread_G = np.full(kinds, SPREAD)
        self.reach_G = np.ones(kinds)  # variance that the features explain
        self.weights_GC = self._start_GC.copy()
        self.covariance_GCC = np.stack([np.diag(1.0 / self._precision(g)) for g in range(kinds)])

    def inform(self, predicted_N: Float[np.ndarray, " N"] | None) -> None:
        """Take in the difficulties that a predictor states, which may change from step to step.

        They make four columns: whether it says anything, its success logit, and two for
        difficulties within 0.02 of 0 and of 1, which have an intercept of their own instead of a
        logit.

        Args:
            predicted_N: NaN where it says nothing of a question; none where it says nothing yet.
        """
        columns_N4 = _prediction_columns(predicted_N, self.num_questions)
        features_NF = self._features_NF
        last = self._design_NC.shape[1] - self._num_features
        if len(self._weights) < len(PREDICTED):  # the first time
            parts = [self._design_NC[:, :last], columns_N4, features_NF]
            self._design_NC = np.concatenate(parts, axis=1)
            self._begin([*self._weights, *PREDICTED])
        else:
            self._design_NC[:, last - 4 : last] = columns_N4

    @property
    def _features_NF(self) -> Float[np.ndarray, "N F"]:
        """The projected features: the last columns."""
        return self._design_NC[:, self._design_NC.shape[1] - self._num_features :]

    def moments(
        self, rows_K: Int[np.ndarray, " K"] | None = None
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Mean phi . w and variance spread + phi' cov(w) phi of the logits.

        Args:
            rows_K: Questions; all where none are given.
        """
        if rows_K is not None:
            return self._moments(self._design_NC[rows_K], self._kind_N[rows_K])
        mean_N = np.empty(self.num_questions)
        variance_N = np.empty(self.num_questions)
        for start in range(0, self.num_questions, CHUNK):
            part = slice(start, start + CHUNK)
            moments = self._moments(self._design_NC[part], self._kind_N[part])
            mean_N[part], variance_N[part] = moments
        return mean_N, variance_N

    def _moments(
        self, design_KC: Float[np.ndarray, "K C"], kind_K: Int[np.ndarray, " K"]
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        mean_K, variance_K = np.empty(len(kind_K)), np.empty(len(kind_K))
        for kind, mine in self._of_each_kind(kind_K):
            mean_K[mine] = _linear(design_KC[mine], self.weights_GC[kind])
            explained = _quadratic(design_KC[mine], self.covariance_GCC[kind])
            variance_K[mine] = self.spread_G[kind] + explained
        return mean_K, variance_K

    def _of_each_kind(
        self, kind_K: Int[np.ndarray, " K"]
    ) -> Iterator[tuple[int, slice | Int[np.ndarray, " M"]]]:
        """Each kind there is, and the places of its questions."""
        if self._num_kinds == 1:
            yield UNLABELLED, slice(None)
        else:
            for kind in np.unique(kind_K):
                yield int(kind), np.flatnonzero(kind_K == kind)

    def fit(
        self,
        rows_K: Int[np.ndarray, " K"],
        mean_K: Float[np.ndarray, " K"],
        precision_K: Float[np.ndarray, " K"],
    ) -> None:
        """Learn from what observations alone say of these questions' logits.

        For each kind, Bayesian linear regression of mean_K with noise 1 / precision_K + spread
        gives w. Then spread, and the variance that features explain, become what the posterior
        expects of u^2 and w^2 (expectation maximisation), beside a weak guess.

        Args:
            rows_K: Each once.
            mean_K: Mean of the logit by its observations alone.
            precision_K: 1 / variance of that, above 0.
        """
        for kind, mine in self._of_each_kind(self._kind_N[rows_K]):
            design_MC = self._design_NC[rows_K[mine]]
            for _ in range(ROUNDS):
                self._regress(kind, design_MC, mean_K[mine], precision_K[mine])

    def _regress(
        self,
        kind: int,
        design_MC: Float[np.ndarray, "M C"],
        mean_M: Float[np.ndarray, " M"],
        precision_M: Float[np.ndarray, " M"],
    ) -> None:
        """A round of expectation maximisation over the observed questions of a kind."""
        noise_M = self.spread_G[kind] + 1.0 / precision_M
        prior_C = self._precision(kind)
        weighted_MC = design_MC / noise_M.astype(np.float32)[:, None]
        seen_C = _product(mean_M.astype(np.float32), weighted_MC).astype(np.float64)
        seen_CC = _product(weighted_MC.T, design_MC).astype(np.float64)
        information_CC = torch.from_numpy(seen_CC + np.diag(prior_C))
        covariance_CC = torch.linalg.inv(information_CC).numpy()
        weights_C = covariance_CC @ (seen_C + prior_C * self._start_GC[kind])
        self.covariance_GCC[kind], self.weights_GC[kind] = covariance_CC, weights_C

        # u given w is N(share (mean - phi w), share / precision); w is uncertain too.
        share_M = self.spread_G[kind] / noise_M
        residual_M = mean_M - _linear(design_MC, weights_C)
        explained_M = _quadratic(design_MC, covariance_CC)
        square_M = np.square(share_M) * (np.square(residual_M) + explained_M)
        total = float((square_M + share_M / precision_M).sum())
        self.spread_G[kind] = (STRENGTH * SPREAD + total) / (STRENGTH + len(mean_M))
        extra = self._num_features
        if extra:
            squares = np.square(weights_C[-extra:]) + np.diag(covariance_CC)[-extra:]
            self.reach_G[kind] = (STRENGTH + float(squares.sum())) / (STRENGTH + extra)

    def _precision(self, kind: int) -> Float[np.ndarray, " C"]:
        features_F = np.full(self._num_features, 1.0 / self.reach_G[kind])
        return np.concatenate([1.0 / self._fixed, features_F])

    def state(self) -> State:
        """What was learned, and the axes that the features were projected on."""
        tensors = {
            "weights": self.weights_GC,
            "covariance": self.covariance_GCC,
            "spread": self.spread_G,
            "reach": self.reach_G,
            "axes": self._axes,
        }
        return State(
            tensors={name: torch.from_numpy(value.copy()) for name, value in tensors.items()}
        )

    def restore(self, state: State) -> None:
        """Take over what was learned.

        Raises:
            CheckpointError: it was learned with other features or other sources of difficulty.
        """
        learned = {name: tensor.numpy().copy() for name, tensor in state.tensors.items()}
        shapes, own = _shapes(learned), _shapes(self.state().tensors)
        if shapes != own:
            raise CheckpointError(
                "the checkpoint's prior does not fit this run",
                got=f"arrays {shapes}",
                expected=f"arrays {own}, as these features and labels make them",
                fix="resume with the settings and files the run began with",
            )
        self.weights_GC, self.covariance_GCC = learned["weights"], learned["covariance"]
        self.spread_G, self.reach_G = learned["spread"], learned["reach"]
        if self._raw_ND is not None and not np.array_equal(learned["axes"], self._axes):
            self._axes = learned["axes"]
            self._features_NF[:] = _project(self._raw_ND, self._axes)


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in sorted(arrays.items())}


def _linear(
    design_KC: Float[np.ndarray, "K C"], weights_C: Float[np.ndarray, " C"]
) -> Float[np.ndarray, " K"]:
    """phi . w of each row, in single precision."""
    return _product(design_KC, weights_C.astype(np.float32)).astype(np.float64)


def _quadratic(
    design_KC: Float[np.ndarray, "K C"], covariance_CC: Float[np.ndarray, "C C"]
) -> Float[np.ndarray, " K"]:
    """phi' covariance phi of each row, in single precision."""
    rows_KC = _product(design_KC, covariance_CC.astype(np.float32))
    return np.einsum("kc,kc->k", rows_KC, design_KC).astype(np.float64)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix product on the threads that the policy uses too; numpy's own would fight them.

    Nor does it warn of invalid values where all are finite, as BLAS at times does under numpy.
    """
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def _ones(count: int) -> Float[np.ndarray, "N 1"]:
    return np.ones((count, 1), dtype=np.float32)


def _prediction_columns(
    predicted_N: Float[np.ndarray, " N"] | None, num_questions: int
) -> Float[np.ndarray, "N 4"]:
    columns_N4 = np.zeros((num_questions, 4), dtype=np.float32)
    if predicted_N is not None:
        kind_N, columns_N4[:, 1] = _read(predicted_N)
        for column, kind in ((0, BETWEEN), (2, EASY), (3, HARD)):
            columns_N4[:, column] = kind_N == kind
    return columns_N4


def _read(
    difficulty_N: Float[np.ndarray, " N"],
) -> tuple[Int[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """The kind of each question, and the success logit of those between; 0 for the others."""
    kind_N = np.full(len(difficulty_N), UNLABELLED, dtype=np.int8)
    kind_N[~np.isnan(difficulty_N)] = BETWEEN
    kind_N[difficulty_N <= EXTREME] = EASY
    kind_N[difficulty_N >= 1.0 - EXTREME] = HARD
    logit_N = np.zeros(len(difficulty_N), dtype=np.float32)
    rate_M = 1.0 - difficulty_N[kind_N == BETWEEN].astype(np.float64)
    logit_N[kind_N == BETWEEN] = np.log(rate_M / (1.0 - rate_M))
    return kind_N, logit_N


def _check_features(features_ND: np.ndarray, num_questions: int) -> None:
    if features_ND.ndim != 2 or len(features_ND) != num_questions:
        raise DataError(
            "the features do not fit the pool",
            got=f"shape {tuple(features_ND.shape)}",
            expected=f"a row for each of {num_questions} questions",
        )
    for start in range(0, num_questions, CHUNK):
        bad = ~np.isfinite(features_ND[start : start + CHUNK]).all(axis=1)
        if bad.any():
            raise DataError(
                "the features of a question are not finite",
                got=f"question {start + int(np.argmax(bad))}",
                expected="finite numbers",
                fix="embed that question again",
            )


def _principal_axes(features_ND: np.ndarray) -> Float[np.ndarray, "F D"]:
    """Mean of the features in the first row, then the axes, scaled to a mean square norm of 1."""
    size = features_ND.shape[1]
    total_D, outer_DD = np.zeros(size), np.zeros((size, size))
    for start in range(0, len(features_ND), CHUNK):
        part = features_ND[start : start + CHUNK].astype(np.float64)
        total_D += part.sum(axis=0)
        outer_DD += _product(part.T, part)
    mean_D = total_D / len(features_ND)
    scatter_DD = outer_DD / len(features_ND) - np.outer(mean_D, mean_D)
    values_D, vectors_DD = np.linalg.eigh(scatter_DD)
    kept = vectors_DD[:, ::-1][:, :AXES]
    norm = np.sqrt(max(float(values_D[::-1][:AXES].sum()), np.finfo(np.float32).tiny))
    return np.concatenate([mean_D[None], kept.T / norm]).astype(np.float32)


def _project(features_ND: np.ndarray, axes: Float[np.ndarray, "F D"]) -> np.ndarray:
    projected = np.empty((len(features_ND), len(axes) - 1), dtype=np.float32)
    for start in range(0, len(features_ND), CHUNK):
        part = features_ND[start : start + CHUNK].astype(np.float32)
        projected[start : start + CHUNK] = _product(part - axes[0], axes[1:].T)
    return projected
