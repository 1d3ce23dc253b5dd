"""What questions share: a linear prior of their logits, learned from those that were observed.

x_q = phi_q . w + u_q, with u_q ~ N(0, spread). phi_q holds an intercept, what other policies'
labels or a predictor say of the question, and features of its text. Every observed question is
evidence about w, so that what was seen of some questions moves all like them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from evenodds.errors import DataError
from evenodds.state import State

EXTREME = 0.02  # labels this near to 0 or 1 are censored: their logit says little
AXES = 128  # principal axes of the features that are kept
SPREAD = 4.0  # of the logits of questions, before any was observed: rates in (0.02, 0.98)
STRENGTH = 10.0  # of that guess, in questions
ROUNDS = 2  # of expectation maximisation at each fit; they go on from fit to fit
ROWS = 4096  # most questions fitted at once, the latest observed; bounds the time in large pools
CHUNK = 65536  # questions at once where all are predicted

INTERCEPT = ((0.0, 4.0),)  # mean and variance of the weights of each block of columns
LABEL = ((0.0, 4.0), (1.0, 0.25), (2.0, 4.0), (-2.0, 4.0))


class SharedPrior:
    """Mean and variance of the logit of every question, before its own observations.

    Args:
        num_questions: N.
        features_ND: A row a question; more than 128 columns are projected on their principal
            axes. The prior covariance they give is linear in them.
    """

    def __init__(
        self, num_questions: int, features_ND: Float[np.ndarray, "N D"] | None = None
    ) -> None:
        self.num_questions = num_questions
        self._raw_ND = features_ND
        self._axes = np.zeros((0, 0), dtype=np.float32)
        projected_NF = np.zeros((num_questions, 0), dtype=np.float32)
        if features_ND is not None:
            _check_features(features_ND, num_questions)
            self._axes = _principal_axes(features_ND)
            projected_NF = _project(features_ND, self._axes)
        self._num_features = projected_NF.shape[1]
        self._design_NC = np.concatenate([_ones(num_questions), projected_NF], axis=1)
        self.spread = SPREAD
        self.reach = 1.0  # variance that the features explain
        self._begin(INTERCEPT)

    def _begin(self, weights: Sequence[tuple[float, float]]) -> None:
        table = np.array(weights)
        extra = self._num_features
        self._fixed = table[:, 1]
        self._start = np.concatenate([table[:, 0], np.zeros(extra)])
        self.weights = self._start.copy()
        self.covariance = np.diag(1.0 / self._precision())

    def inform(self, labels: Sequence[Float[np.ndarray, " N"] | None]) -> None:
        """Take in difficulties that others state, which may change from step to step.

        Each makes four columns: whether it says anything, its success logit, and two for labels
        within 0.02 of 0 and of 1, which have an intercept of their own instead of a logit.

        Args:
            labels: The same number each time; NaN where one says nothing of a question, none
                where it says nothing yet.
        """
        columns_NL = [_label_columns(label_N, self.num_questions) for label_N in labels]
        if self._design_NC.shape[1] == 1 + self._num_features and columns_NL:  # the first time
            parts = [_ones(self.num_questions), *columns_NL, self._features_NF]
            self._design_NC = np.concatenate(parts, axis=1)
            self._begin([*INTERCEPT, *(LABEL * len(labels))])
        elif columns_NL:
            last = self._design_NC.shape[1] - self._num_features
            self._design_NC[:, 1:last] = np.concatenate(columns_NL, axis=1)

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
            return self._moments(self._design_NC[rows_K])
        mean_N = np.empty(self.num_questions)
        variance_N = np.empty(self.num_questions)
        for start in range(0, self.num_questions, CHUNK):
            part = slice(start, start + CHUNK)
            mean_N[part], variance_N[part] = self._moments(self._design_NC[part])
        return mean_N, variance_N

    def fit(
        self,
        rows_K: Int[np.ndarray, " K"],
        mean_K: Float[np.ndarray, " K"],
        precision_K: Float[np.ndarray, " K"],
    ) -> None:
        """Learn from what observations alone say of these questions' logits.

        Bayesian linear regression of mean_K with noise 1 / precision_K + spread gives w. Then
        spread, and the variance that features explain, become what the posterior expects of
        u^2 and w^2 (expectation maximisation), beside a weak guess.

        Args:
            rows_K: Each once.
            mean_K: Mean of the logit by its observations alone.
            precision_K: 1 / variance of that, above 0.
        """
        design_KD = self._design_NC[rows_K]
        for _ in range(ROUNDS):
            noise_K = self.spread + 1.0 / precision_K
            prior_D = self._precision()
            weighted_KD = design_KD / noise_K.astype(np.float32)[:, None]
            seen_D = _product(mean_K.astype(np.float32), weighted_KD).astype(np.float64)
            seen_DD = _product(weighted_KD.T, design_KD).astype(np.float64)
            information_DD = torch.from_numpy(seen_DD + np.diag(prior_D))
            self.covariance = torch.linalg.inv(information_DD).numpy()
            self.weights = self.covariance @ (seen_D + prior_D * self._start)
            self._maximise(design_KD, mean_K, precision_K, self.spread / noise_K)

    def _maximise(
        self,
        design_KD: np.ndarray,
        mean_K: np.ndarray,
        precision_K: np.ndarray,
        share_K: np.ndarray,
    ) -> None:
        """u given w is N(share (mean - phi w), share / precision); w is uncertain too."""
        explained_K = _quadratic(design_KD, self.covariance)
        residual_K = mean_K - self._linear(design_KD)
        square_K = np.square(share_K) * (np.square(residual_K) + explained_K)
        total = float((square_K + share_K / precision_K).sum())
        self.spread = (STRENGTH * SPREAD + total) / (STRENGTH + len(mean_K))
        extra = self._num_features
        if extra:
            squares = np.square(self.weights[-extra:]) + np.diag(self.covariance)[-extra:]
            self.reach = (STRENGTH + float(squares.sum())) / (STRENGTH + extra)

    def _precision(self) -> Float[np.ndarray, " D"]:
        extra = self._num_features
        return np.concatenate([1.0 / self._fixed, np.full(extra, 1.0 / self.reach)])

    def _moments(self, design_KD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._linear(design_KD), self.spread + _quadratic(design_KD, self.covariance)

    def _linear(self, design_KD: np.ndarray) -> Float[np.ndarray, " K"]:
        """phi . w of each row, in single precision."""
        return _product(design_KD, self.weights.astype(np.float32)).astype(np.float64)

    def state(self) -> State:
        """What was learned, and the axes that the features were projected on."""
        tensors = {"weights": self.weights, "covariance": self.covariance, "axes": self._axes}
        return State(
            values={"spread": self.spread, "reach": self.reach},
            tensors={name: torch.from_numpy(value.copy()) for name, value in tensors.items()},
        )

    def restore(self, state: State) -> None:
        """Take over what was learned."""
        self.spread, self.reach = state.values["spread"], state.values["reach"]
        self.weights = state.tensors["weights"].numpy().copy()
        self.covariance = state.tensors["covariance"].numpy().copy()
        axes = state.tensors["axes"].numpy()
        if self._raw_ND is not None and not np.array_equal(axes, self._axes):
            self._axes = axes.copy()
            self._features_NF[:] = _project(self._raw_ND, self._axes)


def _quadratic(
    design_KD: Float[np.ndarray, "K D"], covariance: Float[np.ndarray, "D D"]
) -> Float[np.ndarray, " K"]:
    """phi' covariance phi of each row, in single precision."""
    rows_KD = _product(design_KD, covariance.astype(np.float32))
    return np.einsum("kd,kd->k", rows_KD, design_KD).astype(np.float64)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Matrix product on the threads that the policy uses too; numpy's own would fight them.

    Nor does it warn of invalid values where all are finite, as BLAS at times does under numpy.
    """
    return (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()


def _ones(count: int) -> Float[np.ndarray, "N 1"]:
    return np.ones((count, 1), dtype=np.float32)


def _label_columns(
    label_N: Float[np.ndarray, " N"] | None, num_questions: int
) -> Float[np.ndarray, "N 4"]:
    columns_N4 = np.zeros((num_questions, 4), dtype=np.float32)
    if label_N is None:
        return columns_N4
    known_N: Bool[np.ndarray, " N"] = ~np.isnan(label_N)
    easy_N, hard_N = label_N <= EXTREME, label_N >= 1.0 - EXTREME
    between_N = known_N & ~easy_N & ~hard_N
    rate_N = 1.0 - label_N[between_N].astype(np.float64)
    columns_N4[:, 0] = between_N
    columns_N4[between_N, 1] = np.log(rate_N / (1.0 - rate_N))
    columns_N4[:, 2], columns_N4[:, 3] = easy_N, hard_N
    return columns_N4


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
