"""Train a difficulty predictor on label tables, and remember what it has not seen."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from evenodds.difficulty import FitConfig, FitReport, PredictorModel, fit_predictor
from evenodds.embedding_file import EmbeddingFile
from evenodds.errors import DataError, some
from evenodds.labels import LabelTable
from evenodds.study.splits import Split, make_split
from evenodds.study_config import SplitConfig

VALIDATION_SHARE = 0.15  # of what is trained on, kept aside for early stopping


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained predictor.

    Attributes:
        model: The trained part; its `record` says what was held out.
        report: The learning curve.
        split: What was held out.
        policies: Names of the policies that were trained on.
    """

    model: PredictorModel
    report: FitReport
    split: Split
    policies: tuple[str, ...]


def fit(
    labels: LabelTable,
    embeddings: EmbeddingFile,
    *,
    config: FitConfig | None = None,
    hold_out: SplitConfig | None = None,
    further: LabelTable | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> Fitted:
    """Train adapters and calibration on labels, keeping the best epoch on a validation part.

    Where policies may be kept aside, the validation part is some of the policies; where unseen
    questions are to be predicted, or there are fewer than three policies, it is some of the
    questions.

    Args:
        labels: How often each policy solved each question.
        embeddings: Of at least the questions that have labels.
        config: How to train; the paper's setting by default.
        hold_out: What to leave for `evaluate`; nothing by default.
        further: Labels to train on besides, of any questions; held-out ones are left out here too.
        on_epoch: Called with each finished epoch.

    Raises:
        DataError: a labelled question has no embedding, or there are too few labels.
    """
    config = config or FitConfig()
    split = Split("none", (), ()) if hold_out is None else make_split(labels, hold_out)
    tables = [labels] if further is None else [labels, further]
    rows = [_training_rows(table, embeddings, split) for table in tables]
    difficulty_LN = torch.from_numpy(np.concatenate([values for _, values in rows]))
    policies = tuple(name for names, _ in rows for name in names)
    if not policies:
        raise DataError("no policy is left to train on", got=f"{some(labels.policies)} held out")
    fitting_LN, validation_VN, queries_N = _validation_part(
        difficulty_LN, len(rows[0][0]), split, config
    )
    model, report = fit_predictor(
        embeddings.values_NE.float(),
        fitting_LN,
        config,
        validation_VN=validation_VN,
        validation_queries_N=queries_N,
        embedding_model=embeddings.model,
        on_epoch=on_epoch,
    )
    model.record = _record(split, policies, config)
    return Fitted(model, report, split, policies)


def _record(split: Split, policies: tuple[str, ...], config: FitConfig) -> dict[str, Any]:
    return {"split": split.as_dict(), "policies": list(policies), "fit": config.as_dict()}


def _training_rows(
    labels: LabelTable, embeddings: EmbeddingFile, split: Split
) -> tuple[list[str], Float[np.ndarray, "L N"]]:
    """Policies and their difficulties in the order of the embeddings, less what is held out."""
    embedded = set(embeddings.ids)
    strange = [name for name in labels.ids if name not in embedded]
    if strange:
        raise DataError(
            "labelled questions have no embedding",
            got=f"{len(strange)} of {len(labels)}, for example {strange[0]}",
            expected="embeddings of every labelled question",
            fix="embed the label table itself: `evenodds embed LABELS`; or leave them out with "
            "--known-only",
        )
    kept_L = split.trains_on_policy(labels)
    names = [name for name, kept in zip(labels.policies, kept_L, strict=True) if kept]
    aligned = labels.of_policies(names).aligned(embeddings.ids)
    trains_N = split.trains_on_question(aligned)
    return names, np.where(trains_N, aligned.difficulty_LN, np.float32(np.nan))


def _validation_part(
    difficulty_LN: Float[Tensor, "L N"], num_own: int, split: Split, config: FitConfig
) -> tuple[Tensor, Tensor, Bool[Tensor, " N"] | None]:
    """(training labels, validation labels, queries of the validation).

    Of the policies only the first `num_own` can be kept aside: further tables are for training.
    """
    generator = np.random.default_rng([config.seed, 1])
    num_policies, num_questions = difficulty_LN.shape
    if num_own < 3 or split.questions:
        queries_N = torch.from_numpy(generator.random(num_questions) < VALIDATION_SHARE)
        return difficulty_LN.masked_fill(queries_N, torch.nan), difficulty_LN, queries_N
    count = max(1, round(VALIDATION_SHARE * num_own))
    places = np.arange(num_own)[-count:]
    if split.kind != "time":
        places = generator.choice(num_own, size=count, replace=False)
    validation_L = torch.zeros(num_policies, dtype=torch.bool)
    validation_L[torch.from_numpy(np.sort(places))] = True
    return difficulty_LN[~validation_L], difficulty_LN[validation_L], None
