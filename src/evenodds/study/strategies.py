"""Ways to choose questions, each made of the library's own loop and an estimator."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from evenodds.config import EfficiencyConfig, unknown_key
from evenodds.difficulty import (
    AttentionPredictor,
    DifficultyEstimator,
    Estimate,
    EvidencePosterior,
    PredictorModel,
)
from evenodds.difficulty.baselines import ConstantMean, DecayedBeta, FeatureRidge, LastLabel
from evenodds.difficulty.logit_normal import success_moments
from evenodds.difficulty.shared_prior import AXES
from evenodds.errors import ConfigError
from evenodds.labels import LabelTable
from evenodds.state import State
from evenodds.study_config import SimulationConfig
from evenodds.text_features import text_axes, text_features
from evenodds.types import Observation

REFERENCE_SHARE = 1 / 3  # of what is observed at a visit: the paper's 128 to 256 fresh groups


@dataclass(frozen=True)
class Strategy:
    """A loop setting, and the estimator that goes with it.

    Attributes:
        name: In tables.
        make: A new estimator that has seen nothing of the history.
        selection: As `EfficiencyConfig.selection`.
        probes: Whether a part of the budget goes to reference sets.
        learns: Whether what is picked at a visit changes what is known of that visit.
        criterion: As `EfficiencyConfig.criterion`.
    """

    name: str
    make: Callable[[], DifficultyEstimator]
    selection: str = "difficulty"
    probes: bool = False
    learns: bool = True
    criterion: str = "target"

    def config(self, replayed: SimulationConfig) -> tuple[EfficiencyConfig, int]:
        """The loop's setting, and groups a step."""
        references = max(2, round(REFERENCE_SHARE * replayed.budget)) if self.probes else 0
        config = EfficiencyConfig.from_mapping(
            {
                "selection": self.selection,
                "num_references": references,
                "steps_per_selection": 1,
                "selection_temperature": replayed.selection_temperature,
                "fresh_fraction": 1.0,
                "criterion": self.criterion,
                "curiosity": replayed.curiosity if self.criterion == "signal" else 0.0,
            }
        )
        return config, replayed.budget - references


class Oracle:
    """Knows how often the neighbouring visits failed each question; never the visit itself.

    Two visits before and two after: what an estimate could be at best, with the noise of labels
    of 32 rollouts and a policy that moves.

    Args:
        history: Every label, visits in order.
    """

    needs_references = False

    def __init__(self, history: LabelTable) -> None:
        self.difficulty_VN = history.difficulty_LN
        self.visit = 0

    def probe(self, references: Observation) -> None:
        """Nothing: it knows already."""

    def observe(self, fresh: Observation) -> None:
        """Go on to the next visit."""
        self.visit += 1

    def estimate(self) -> Estimate:
        """The mean of the visits around the present one."""
        around = [
            visit
            for visit in range(self.visit - 2, self.visit + 3)
            if visit != self.visit and 0 <= visit < len(self.difficulty_VN)
        ]
        difficulty_N = np.nanmean(self.difficulty_VN[around], axis=0)
        return Estimate(difficulty_N, np.zeros_like(difficulty_N))

    def state(self) -> State:
        """The present visit."""
        return State(values={"visit": self.visit})

    def restore(self, state: State) -> None:
        """Take over a visit."""
        self.visit = state.values["visit"]


@dataclass(frozen=True, eq=False)
class Material:
    """What strategies may be made from.

    Attributes:
        history: The recorded labels; only the oracle looks at them.
        embeddings_NE: Of the questions, where there are any.
        embedding_model: What made them.
        predictor: Trained on other policies' labels.
        prior_N: Another policy's difficulties; NaN where it has none.
    """

    history: LabelTable
    embeddings_NE: Tensor | None = None
    embedding_model: str = ""
    predictor: PredictorModel | None = None
    prior_N: Float[np.ndarray, " N"] | None = None

    def embedded(self, strategy: str) -> Tensor:
        """The embeddings that a strategy needs."""
        return _given(self.embeddings_NE, strategy, "--embeddings")

    def other_labels(self, strategy: str) -> Float[np.ndarray, " N"]:
        """Another policy's labels that a strategy needs."""
        return _given(self.prior_N, strategy, "--prior")

    def features(self) -> Float[np.ndarray, "N D"] | None:
        """Dense features of the text: the embeddings, else TF-IDF; none where there is no text."""
        if self.embeddings_NE is not None:
            return self.embeddings_NE.float().numpy()
        return text_axes(self.history.texts, AXES) if self.history.texts else None

    def trained(self, strategy: str) -> AttentionPredictor:
        """The trained predictor that a strategy needs."""
        model = _given(self.predictor, strategy, "--predictor")
        return AttentionPredictor.trained(
            model, self.embedded(strategy), embedding_model=self.embedding_model
        )


def make_strategy(name: str, material: Material) -> Strategy:
    """A strategy by name, checked for what it needs.

    Raises:
        ConfigError: there is none of that name, or something it needs was not given.
    """
    if name not in STRATEGIES:
        raise unknown_key(name, list(STRATEGIES), kind="strategy")
    return STRATEGIES[name](name, material)


def usable_strategies(material: Material) -> list[Strategy]:
    """The strategies that this material suffices for."""
    usable = []
    for name in STRATEGIES:
        with contextlib.suppress(ConfigError):
            usable.append(make_strategy(name, material))
    return usable


def _uniform(name: str, material: Material) -> Strategy:
    size = len(material.history)
    return Strategy(name, lambda: DecayedBeta(size), selection="uniform")


def _constant(name: str, material: Material) -> Strategy:
    return Strategy(name, lambda: ConstantMean(len(material.history)), probes=True)


def _tfidf(name: str, material: Material) -> Strategy:
    if not material.history.texts:
        raise ConfigError(f"the strategy {name!r} needs the questions' text", got="ids only")
    features = text_features(material.history.texts)
    return Strategy(name, lambda: FeatureRidge(features), probes=True)


def _raw(name: str, material: Material) -> Strategy:
    embeddings_NE = material.embedded(name)
    return Strategy(name, lambda: AttentionPredictor.untrained(embeddings_NE), probes=True)


def _paper(name: str, material: Material) -> Strategy:
    predictor = material.trained(name)
    return Strategy(name, lambda: predictor, probes=True)


def _prior(name: str, material: Material) -> Strategy:
    prior_N = material.other_labels(name)
    return Strategy(name, lambda: Fixed(prior_N))


def _last_label(name: str, material: Material) -> Strategy:
    return Strategy(name, lambda: LastLabel(np.full(len(material.history), np.nan)))


def _beta(name: str, material: Material) -> Strategy:
    return Strategy(name, lambda: DecayedBeta(len(material.history)))


def _posterior(name: str, material: Material) -> Strategy:
    """Knows the text, and what it observed."""
    size, features = len(material.history), material.features()
    return Strategy(name, lambda: EvidencePosterior(size, features_ND=features), criterion="signal")


def _posterior_prior(name: str, material: Material) -> Strategy:
    """Knows another policy's labels besides."""
    size, labels_N = len(material.history), material.other_labels(name)
    features = material.features()
    return Strategy(
        name,
        lambda: EvidencePosterior(size, features_ND=features, labels_N=labels_N),
        criterion="signal",
    )


def _shared_model(name: str, material: Material) -> Strategy:
    """Only what questions share, learned from the whole history: no memory of single ones."""
    size, features = len(material.history), material.features()
    return Strategy(name, lambda: SharedModel(size, features_ND=features), criterion="signal")


def _oracle(name: str, material: Material) -> Strategy:
    return Strategy(name, lambda: Oracle(material.history), learns=False)


class SharedModel(EvidencePosterior):
    """The evidence posterior, asked as if it had never seen the question itself."""

    def estimate(self) -> Estimate:
        """By the text alone, under the policy of the last observation."""
        mean_N, variance_N = self.shared.moments()
        rate_N, spread_N = success_moments(mean_N + self.ability.value, variance_N)
        return Estimate(1.0 - rate_N, spread_N)


class Fixed(LastLabel):
    """Labels that are never brought up to date."""

    def probe(self, references: Observation) -> None:
        """Nothing."""


STRATEGIES: dict[str, Callable[[str, Material], Strategy]] = {
    "uniform": _uniform,
    "constant": _constant,
    "tfidf": _tfidf,
    "raw": _raw,
    "paper": _paper,
    "other-policy": _prior,
    "last-label": _last_label,
    "beta": _beta,
    "shared-model": _shared_model,
    "posterior": _posterior,
    "posterior-prior": _posterior_prior,
    "oracle": _oracle,
}


def _given(value: Any, strategy: str, option: str) -> Any:
    if value is None:
        raise ConfigError(f"the strategy {strategy!r} needs {option}", fix=f"give {option} FILE")
    return value
