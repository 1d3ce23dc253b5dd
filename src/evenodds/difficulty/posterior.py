"""The evidence posterior: what every scored group, old and new, says of every question now.

An item-response model that moves. The success logit of question q at step t is

    x_q(t) = theta_q(t) + ability(t).

The ability of the policy moves all questions at once; theta, how easy a question is, starts at
what questions share (shared_prior.py) and drifts slowly. What was observed of a question is kept
as a Gaussian factor of theta: mean y and precision lambda at the step it was last seen. A step

1. ages factors: lambda(t) = lambda / (1 + lambda drift (t - seen));
2. moves the ability by what questions that were seen before say of it;
3. multiplies prior, aged factor and the binomial likelihood of the new rollouts, matches moments
   (assumed density filtering), and divides the prior out again: the question's new factor;
4. fits what questions share to all factors.

An estimate takes all logits times a sharpness, which is 1 where the model is true. It, the drift
and the size of the ability's steps are weighted by how well each of a few values predicted what
was then observed; nothing is to be tuned.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from evenodds.difficulty.estimator import DifficultyEstimator, Estimate
from evenodds.difficulty.logit_normal import binomial_posterior, success_moments
from evenodds.difficulty.shared_prior import ROWS, SharedPrior
from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.state import State
from evenodds.types import Observation

DRIFTS = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0])  # variance of theta a step
ABILITY_STEPS = np.array([0.003, 0.01, 0.03, 0.1, 0.3, 1.0])  # standard deviation a step
SHARPNESS = 1.1 ** np.arange(-3.0, 4.0)  # of all logits
MEMORY = 0.98  # of a step's evidence for them, per further step: all may change in a run
LEARNERS = 256  # most questions of a step that the sharpness and the dynamics are learned from
PASSES = 2  # of factors and shared prior over a new observation, as each depends on the other
LEAST_PRECISION = 1e-9  # of a factor; rounding can take it to 0


class EvidencePosterior:
    """Mean and variance of every question's failure rate, from all evidence so far.

    Args:
        num_questions: N, size of the pool.
        prior: An estimator whose difficulty of a question becomes a column of the prior, such as
            `AttentionPredictor`. It is shown the reference sets, and says nothing before the
            first if it needs one. It must predict a question without that question's own label.
        features_ND: Of the questions' text, such as embeddings; what was seen of a question then
            moves those like it.
        labels_N: Another policy's difficulties, in [0, 1]; NaN where it has none.

    Raises:
        ConfigError: the pool is empty.
        DataError: features or labels do not fit the pool, or are no numbers.
    """

    needs_references = False

    def __init__(
        self,
        num_questions: int,
        *,
        prior: DifficultyEstimator | None = None,
        features_ND: Float[np.ndarray, "M D"] | None = None,
        labels_N: Float[np.ndarray, " M"] | None = None,
    ) -> None:
        if num_questions < 1:
            raise ConfigError(
                "a pool has no questions", got=num_questions, expected="at least 1 question"
            )
        _check_labels(labels_N, num_questions)
        self.num_questions = num_questions
        self.prior = prior
        self.shared = SharedPrior(num_questions, features_ND, labels_N)
        self.ability = Ability()
        self.drift = Weighted(DRIFTS)
        self.sharpness = Weighted(SHARPNESS)
        self.step = 0  # of the next observation; the first has 0
        self._probed = False  # at this step, so that its batch is no new step
        self._prior_speaks = prior is not None and not prior.needs_references
        self._factors = Factors.empty(num_questions)
        self._inform()

    def probe(self, references: Observation) -> None:
        """Take in a reference set, of the same step as the batch that follows."""
        if self.prior is not None:
            self.prior.probe(references)
            self._prior_speaks = True
            self._inform()
        if not self._probed:
            self._begin_step()
        self._probed = True
        self._take(references)

    def observe(self, fresh: Observation) -> None:
        """Take in the groups of a batch; where none has a sample, nothing happened."""
        if not self._probed and fresh.samples_K.any():
            self._begin_step()
        self._probed = False
        self._take(fresh)

    def estimate(self) -> Estimate:
        """What is known of every question, under the policy of the last observation."""
        mean_N, variance_N = self._combined(None, self.drift.value)
        sharpness = self.sharpness.value
        rate_N, spread_N = success_moments(
            sharpness * (mean_N + self.ability.value), sharpness**2 * variance_N
        )
        return Estimate(1.0 - rate_N, spread_N)

    def _inform(self) -> None:
        if self.prior is not None:
            says = self.prior.estimate().difficulty_N if self._prior_speaks else None
            self.shared.inform(says)

    def _begin_step(self) -> None:
        self.step += 1
        self.drift.forget()
        self.sharpness.forget()
        if self.step > 1:
            self.ability.forget()

    def _combined(
        self, rows_K: Int[np.ndarray, " K"] | None, drift: float
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Mean and variance of theta: the prior times the question's aged factor."""
        prior_K, variance_K = self.shared.moments(rows_K)
        factor_K, precision_K = self._factors.aged(rows_K, drift, self.step)
        return product(prior_K, variance_K, factor_K, precision_K)

    def _take(self, observation: Observation) -> None:
        rows_K, solved_K, samples_K = merged(observation)
        if not len(rows_K):
            return
        if self.step > 1:  # before, the prior is a guess, and so is where all logits lie
            some = _spread_evenly(np.arange(len(rows_K)), LEARNERS)
            self._learn_sharpness(rows_K[some], solved_K[some], samples_K[some])
        seen = np.flatnonzero(self._factors.precision_N[rows_K] > 0)
        if len(seen):
            some = _spread_evenly(seen, LEARNERS)
            self._learn_dynamics(rows_K[some], solved_K[some], samples_K[some])
        before = self._factors.aged(rows_K, self.drift.value, self.step)
        for _ in range(PASSES):
            self._update(rows_K, solved_K, samples_K, before)
            self._fit()

    def _learn_sharpness(
        self,
        rows_K: Int[np.ndarray, " K"],
        solved_K: Float[np.ndarray, " K"],
        samples_K: Float[np.ndarray, " K"],
    ) -> None:
        """How well each sharpness predicts what was observed, from what was known before."""
        mean_K, variance_K = self._combined(rows_K, self.drift.value)
        mean_K = mean_K + self.ability.value
        mean_JK = SHARPNESS[:, None] * mean_K
        variance_JK = np.square(SHARPNESS)[:, None] * variance_K
        self.sharpness.learn(evidence(mean_JK, variance_JK, solved_K, samples_K))

    def _learn_dynamics(
        self,
        rows_K: Int[np.ndarray, " K"],
        solved_K: Float[np.ndarray, " K"],
        samples_K: Float[np.ndarray, " K"],
    ) -> None:
        """The ability, then the drift, from questions that were seen before.

        Questions seen for the first time say nothing of either: they are off by the error of the
        prior, which they have in common.
        """
        prior_K, variance_K = self.shared.moments(rows_K)
        factor = self._factors.aged(rows_K, self.drift.value, self.step)
        self.ability.learn(*product(prior_K, variance_K, *factor), solved_K, samples_K)
        aged = [self._factors.aged(rows_K, drift, self.step) for drift in DRIFTS]
        moments = [product(prior_K, variance_K, *factor) for factor in aged]
        mean_JK, spread_JK = np.stack(moments, axis=1)
        self.drift.learn(evidence(mean_JK + self.ability.value, spread_JK, solved_K, samples_K))

    def _update(
        self,
        rows_K: Int[np.ndarray, " K"],
        solved_K: Float[np.ndarray, " K"],
        samples_K: Float[np.ndarray, " K"],
        before: tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]],
    ) -> None:
        """New factors of these questions: (prior x old factor x likelihood) / prior."""
        prior_K, variance_K = self.shared.moments(rows_K)
        mean_K, spread_K = product(prior_K, variance_K, *before)
        ability = self.ability.value
        after_K, left_K, _ = binomial_posterior(mean_K + ability, spread_K, solved_K, samples_K)
        precision_K = np.maximum(1.0 / left_K - 1.0 / variance_K, LEAST_PRECISION)
        factor_K = ((after_K - ability) / left_K - prior_K / variance_K) / precision_K
        self._factors.put(rows_K, factor_K, precision_K, self.step)

    def _fit(self) -> None:
        rows_K = self._factors.latest(ROWS)
        self.shared.fit(rows_K, *self._factors.aged(rows_K, self.drift.value, self.step))

    def state(self) -> State:
        """Every factor and what was learned."""
        own = State(
            values={
                "step": self.step,
                "probed": self._probed,
                "prior_speaks": self._prior_speaks,
            },
        )
        parts = {
            "own": own,
            "factors": self._factors.state(),
            "ability": self.ability.state(),
            "drift": self.drift.state(),
            "sharpness": self.sharpness.state(),
            "shared": self.shared.state(),
        }
        if self.prior is not None:
            parts["prior"] = self.prior.state()
        return State.of_parts(parts)

    def restore(self, state: State) -> None:
        """Take over a state of `state`, of the same pool.

        Raises:
            CheckpointError: it belongs to a pool of another size, or was made without this prior.
        """
        own = state.part("own").values
        self._factors.restore(state.part("factors"))
        self.step, self._probed = own["step"], own["probed"]
        self._prior_speaks = own["prior_speaks"]
        if self.prior is not None:
            self.prior.restore(state.part("prior"))
        self._inform()
        self.ability.restore(state.part("ability"))
        self.drift.restore(state.part("drift"))
        self.sharpness.restore(state.part("sharpness"))
        self.shared.restore(state.part("shared"))


@dataclass(eq=False)
class Factors:
    """What observations alone say of theta of each question, as Gaussian factors.

    Attributes:
        mean_N: y, in nats.
        precision_N: lambda when last seen; 0 where nothing was.
        seen_N: Step at which each was last seen, from 1; 0 for never.
    """

    mean_N: Float[np.ndarray, " N"]
    precision_N: Float[np.ndarray, " N"]
    seen_N: Int[np.ndarray, " N"]

    @classmethod
    def empty(cls, num_questions: int) -> "Factors":
        """Nothing is known."""
        zeros_N = np.zeros(num_questions)
        return cls(zeros_N, zeros_N.copy(), np.zeros(num_questions, dtype=np.int32))

    def aged(
        self, rows_K: Int[np.ndarray, " K"] | None, drift: float, step: int
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
        """Mean, and precision lambda / (1 + lambda drift age), at this step.

        1 / lambda is the variance of theta when it was seen, and each step since has added
        `drift` to it.
        """
        rows = slice(None) if rows_K is None else rows_K
        precision_K = self.precision_N[rows]
        age_K = step - self.seen_N[rows]
        return self.mean_N[rows], precision_K / (1.0 + precision_K * (drift * age_K))

    def put(
        self,
        rows_K: Int[np.ndarray, " K"],
        mean_K: Float[np.ndarray, " K"],
        precision_K: Float[np.ndarray, " K"],
        step: int,
    ) -> None:
        """Replace the factors of these questions."""
        self.mean_N[rows_K], self.precision_N[rows_K] = mean_K, precision_K
        self.seen_N[rows_K] = step

    def latest(self, count: int) -> Int[np.ndarray, " K"]:
        """The questions seen last, at most `count`."""
        rows = np.flatnonzero(self.precision_N)
        if len(rows) <= count:
            return rows
        return np.sort(rows[np.argsort(-self.seen_N[rows], kind="stable")[:count]])

    def state(self) -> State:
        """The factors."""
        return State(
            tensors={
                "mean": torch.from_numpy(self.mean_N.copy()),
                "precision": torch.from_numpy(self.precision_N.copy()),
                "seen": torch.from_numpy(self.seen_N.copy()),
            }
        )

    def restore(self, state: State) -> None:
        """Take over factors.

        Raises:
            CheckpointError: they belong to a pool of another size.
        """
        saved = len(state.tensors["mean"])
        if saved != len(self.mean_N):
            raise CheckpointError(
                "the checkpoint belongs to another question pool",
                got=f"{len(self.mean_N)} questions",
                expected=f"{saved} questions, as when it was saved",
            )
        self.mean_N = state.tensors["mean"].numpy().copy()
        self.precision_N = state.tensors["precision"].numpy().copy()
        self.seen_N = state.tensors["seen"].numpy().copy()


class Weighted:
    """A positive number that is one of a few, weighted by how well each predicts.

    Args:
        candidates: Equally likely at first.
    """

    def __init__(self, candidates: Float[np.ndarray, " J"]) -> None:
        self.candidates = candidates
        self.evidence_J = np.zeros(len(candidates))  # in nats

    @property
    def weights_J(self) -> Float[np.ndarray, " J"]:
        """Probability of each candidate."""
        likelihood_J = np.exp(self.evidence_J - self.evidence_J.max())
        return likelihood_J / likelihood_J.sum()

    @property
    def value(self) -> float:
        """Geometric mean of the candidates."""
        return float(np.exp(self.weights_J @ np.log(self.candidates)))

    def learn(self, log_likelihood_J: Float[np.ndarray, " J"]) -> None:
        """Add what was observed, as predicted with each candidate."""
        self.evidence_J = self.evidence_J + log_likelihood_J

    def forget(self) -> None:
        """Go on a step."""
        self.evidence_J = MEMORY * self.evidence_J

    def state(self) -> State:
        """The evidence."""
        return State(tensors={"evidence": torch.from_numpy(self.evidence_J.copy())})

    def restore(self, state: State) -> None:
        """Take over evidence."""
        self.evidence_J = state.tensors["evidence"].numpy().copy()


class Ability:
    """How much better the policy became since the first step, on all questions alike.

    A scalar random walk, filtered once for each of a few step sizes; each counts by how well it
    predicted.
    """

    def __init__(self) -> None:
        self.steps = Weighted(ABILITY_STEPS)
        self.mean_J = np.zeros(len(ABILITY_STEPS))
        self.variance_J = np.zeros(len(ABILITY_STEPS))

    @property
    def value(self) -> float:
        """In nats of every question's logit."""
        return float(self.steps.weights_J @ self.mean_J)

    def forget(self) -> None:
        """Go on a step: the walk may have moved."""
        self.steps.forget()
        self.variance_J = self.variance_J + np.square(ABILITY_STEPS)

    def learn(
        self,
        mean_K: Float[np.ndarray, " K"],
        variance_K: Float[np.ndarray, " K"],
        solved_K: Float[np.ndarray, " K"],
        samples_K: Float[np.ndarray, " K"],
    ) -> None:
        """A filter step with what the questions say together.

        Under a shift a of all logits, question k has the log-evidence log Z_k(a). Its slope and
        curvature are (M - m) / V and -(1 - T / V) / V, of its mean and variance m, V before and
        M, T after (exact for any likelihood). Their sums locate the ability by Newton's method;
        1 / curvature is the variance of that reading.
        """
        if not self.variance_J.any():  # the first step, to which all others are relative
            return
        at = self.value
        reading = variance = 0.0
        for _ in range(2):
            after_K, left_K, _ = binomial_posterior(mean_K + at, variance_K, solved_K, samples_K)
            slope = float(((after_K - mean_K - at) / variance_K).sum())
            curvature = float(((1.0 - left_K / variance_K) / variance_K).sum())
            if curvature <= 0.0:
                return
            reading, variance = at + slope / curvature, 1.0 / curvature
            at = reading
        total_J = self.variance_J + variance
        error_J = reading - self.mean_J
        self.steps.learn(-0.5 * (np.log(total_J) + np.square(error_J) / total_J))
        gain_J = self.variance_J / total_J
        self.mean_J = self.mean_J + gain_J * error_J
        self.variance_J = (1.0 - gain_J) * self.variance_J

    def state(self) -> State:
        """The filters."""
        return State(
            tensors={
                "mean": torch.from_numpy(self.mean_J.copy()),
                "variance": torch.from_numpy(self.variance_J.copy()),
                "evidence": torch.from_numpy(self.steps.evidence_J.copy()),
            }
        )

    def restore(self, state: State) -> None:
        """Take over filters."""
        self.mean_J = state.tensors["mean"].numpy().copy()
        self.variance_J = state.tensors["variance"].numpy().copy()
        self.steps.restore(state)


def product(
    mean_K: Float[np.ndarray, " K"],
    variance_K: Float[np.ndarray, " K"],
    factor_K: Float[np.ndarray, " K"],
    precision_K: Float[np.ndarray, " K"],
) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Mean and variance of N(mean, variance) times a factor of this mean and precision."""
    left_K = variance_K / (1.0 + variance_K * precision_K)
    return mean_K + left_K * precision_K * (factor_K - mean_K), left_K


def _spread_evenly(places_K: Int[np.ndarray, " K"], most: int) -> Int[np.ndarray, " M"]:
    """At most so many of them, from first to last."""
    if len(places_K) <= most:
        return places_K
    return places_K[np.linspace(0, len(places_K) - 1, most).round().astype(np.int64)]


def evidence(
    mean_JK: Float[np.ndarray, "J K"],
    variance_JK: Float[np.ndarray, "J K"],
    solved_K: Float[np.ndarray, " K"],
    samples_K: Float[np.ndarray, " K"],
) -> Float[np.ndarray, " J"]:
    """Log-likelihood of what was observed, under each of J predictions of the logits, in nats."""
    repeat = len(mean_JK)
    log_evidence = binomial_posterior(
        mean_JK.ravel(),
        variance_JK.ravel(),
        np.tile(solved_K, repeat),
        np.tile(samples_K, repeat),
    )[2]
    return log_evidence.reshape(mean_JK.shape).sum(axis=1)


def merged(
    observation: Observation,
) -> tuple[Int[np.ndarray, " K"], Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Questions once each, in order, with their successes and samples; those without are left out.

    Raises:
        DataError: a difficulty is not in [0, 1].
    """
    difficulty_K = observation.difficulty_K.astype(np.float64)
    samples_K = observation.samples_K.astype(np.float64)
    bad_K = (samples_K > 0) & ~((difficulty_K >= 0) & (difficulty_K <= 1))  # also for NaN
    if bad_K.any():
        raise DataError(
            f"what was observed of question {observation.questions_K[bad_K][0]} cannot be used",
            got=difficulty_K[bad_K][0],
            expected="a failure rate in [0, 1]",
            fix="report 1 - the mean reward, with rewards in [0, 1]",
        )
    kept_K = samples_K > 0
    rows_M, place_K = np.unique(observation.questions_K[kept_K], return_inverse=True)
    samples_K, difficulty_K = samples_K[kept_K], difficulty_K[kept_K]
    counts_M2 = np.zeros((len(rows_M), 2))
    np.add.at(counts_M2, place_K, np.stack([samples_K * (1.0 - difficulty_K), samples_K], axis=1))
    return rows_M, counts_M2[:, 0], counts_M2[:, 1]


def _check_labels(labels_N: Float[np.ndarray, " M"] | None, num_questions: int) -> None:
    if labels_N is None:
        return
    if labels_N.shape != (num_questions,):
        raise DataError(
            "another policy's labels do not fit the pool",
            got=f"shape {tuple(labels_N.shape)}",
            expected=f"a label for each of {num_questions} questions, NaN where there is none",
        )
    bad_N = ~np.isnan(labels_N) & ~((labels_N >= 0) & (labels_N <= 1))
    if bad_N.any():
        raise DataError(
            f"another policy's label of question {int(np.argmax(bad_N))} cannot be used",
            got=float(labels_N[bad_N][0]),
            expected="a failure rate in [0, 1], or NaN for none",
            fix="give 1 - the success rate",
        )
