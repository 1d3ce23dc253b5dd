"""From the settings to what knows the difficulty of every question of a pool."""

from collections.abc import Callable, Sequence
from pathlib import Path

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import (
    AttentionPredictor,
    DifficultyEstimator,
    EvidencePosterior,
    PredictorModel,
)
from evenodds.embeddings import Embeddings
from evenodds.errors import ConfigError
from evenodds.labels import difficulty_of_one, read_labels
from evenodds.resources import resolved_path


def check_estimator(config: EfficiencyConfig) -> None:
    """Refuse the attention predictor without references.

    Raises:
        ConfigError: it would never learn anything.
    """
    if config.predicts and config.estimator == "attention" and not config.num_references:
        raise ConfigError(
            "the attention predictor learns from references only",
            got="num_references = 0",
            expected="num_references of at least 2",
        )


def make_estimator(
    config: EfficiencyConfig, ids: Sequence[str], embed: Callable[[], Embeddings]
) -> DifficultyEstimator:
    """Attention to references, or the evidence posterior over it.

    Args:
        config: With estimator, predictor and labels.
        ids: Content id of each of the N questions.
        embed: Embeds them.

    Raises:
        ConfigError: the predictor or the labels do not fit the pool or the embeddings.
    """
    embeddings = embed()
    attention = None
    if config.num_references and (config.estimator == "attention" or config.predictor):
        attention = _attention(config, embeddings)
    if config.estimator == "attention":
        assert attention is not None, "checked with the settings"
        return attention
    labels_N = None
    if config.prior_labels is not None:
        labels_N = difficulty_of_one(read_labels(Path(config.prior_labels)), ids)
    return EvidencePosterior(
        len(ids),
        prior=attention,
        features_ND=embeddings.values_NE.float().cpu().numpy(),
        labels_N=labels_N,
    )


def _attention(config: EfficiencyConfig, embeddings: Embeddings) -> AttentionPredictor:
    if config.predictor is None:
        return AttentionPredictor.untrained(embeddings.values_NE)
    return AttentionPredictor.trained(
        PredictorModel.load(resolved_path(config.predictor)),
        embeddings.values_NE,
        embedding_model=embeddings.model,
    )
