"""Training the predictor on labels of other policies (method, "Training the predictor").

Every batch belongs to one policy: a fresh random reference set of K of its labels, and queries
of the same policy, scored by cross-entropy between calibrated prediction and label.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from evenodds.difficulty.predictor import PredictorModel
from evenodds.difficulty.scores import pearson
from evenodds.errors import DataError
from evenodds.study_config import FitConfig


@dataclass(frozen=True)
class FitReport:
    """The learning curve, one entry an epoch.

    Attributes:
        loss: Mean training cross-entropy, in nats.
        validation_loss: Mean cross-entropy on the validation policies, in nats.
        validation_pearson: Mean Pearson correlation on the validation policies.
        best_epoch: The epoch whose weights were kept, from 0.
    """

    loss: tuple[float, ...]
    validation_loss: tuple[float, ...]
    validation_pearson: tuple[float, ...]
    best_epoch: int


def fit_predictor(
    embeddings_NE: Float[Tensor, "N E"],
    difficulty_LN: Float[Tensor, "L N"],
    config: FitConfig,
    *,
    validation_VN: Float[Tensor, "V N"] | None = None,
    validation_queries_N: Bool[Tensor, " N"] | None = None,
    embedding_model: str = "",
    on_epoch: Callable[[int], None] | None = None,
) -> tuple[PredictorModel, FitReport]:
    """Train adapters and calibration.

    Args:
        embeddings_NE: Frozen embeddings of the pool.
        difficulty_LN: Observed difficulty under each of L policies; NaN where there is no label.
        config: How to train.
        validation_VN: Labels that are held out; the epoch with the lowest loss on them is kept.
            None keeps the last epoch.
        validation_queries_N: Predict only these, from references that are not among them; None
            predicts all that are no reference.
        embedding_model: Name of what made the embeddings; stored with the predictor.
        on_epoch: Called with the epoch after each.

    Raises:
        DataError: a policy has too few labels for a reference set and a query, or labels lie
            outside [0, 1].
    """
    _check_labels(difficulty_LN, config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        validation = None
        if validation_VN is not None:
            validation = _Validation(validation_VN, validation_queries_N, config)
        return _fit(embeddings_NE, difficulty_LN, config, validation, embedding_model, on_epoch)


def _fit(
    embeddings_NE: Tensor,
    difficulty_LN: Tensor,
    config: FitConfig,
    validation: "_Validation | None",
    embedding_model: str,
    on_epoch: Callable[[int], None] | None,
) -> tuple[PredictorModel, FitReport]:
    model = PredictorModel(
        embeddings_NE.shape[1],
        config.width,
        dropout=config.dropout,
        embedding_model=embedding_model,
    )
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    total = config.epochs * len(_batches(difficulty_LN, config.batch_size, generator))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _warmup_then_linear(step, config.warmup_steps, total)
    )
    losses, validation_losses, correlations = [], [], []
    best_epoch, best_loss, best_weights = config.epochs - 1, float("inf"), None
    for epoch in range(config.epochs):
        model.train()
        epoch_losses = []
        for policy, query_Q in _batches(difficulty_LN, config.batch_size, generator):
            label_N = difficulty_LN[policy]
            reference_K = _draw(label_N, config.num_references, generator)
            loss = _loss(model, embeddings_NE, label_N, query_Q, reference_K)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            epoch_losses.append(loss.item())
        losses.append(float(np.mean(epoch_losses)))
        if validation is not None:
            loss, correlation = validation(model, embeddings_NE)
            validation_losses.append(loss)
            correlations.append(correlation)
            if loss < best_loss:
                best_epoch, best_loss = epoch, loss
                best_weights = {k: v.clone() for k, v in model.state_dict().items()}
        if on_epoch is not None:
            on_epoch(epoch)
    if best_weights is not None:
        model.load_state_dict(best_weights)
    report = FitReport(tuple(losses), tuple(validation_losses), tuple(correlations), best_epoch)
    return model.eval(), report


def _loss(
    model: PredictorModel,
    embeddings_NE: Tensor,
    label_N: Tensor,
    query_Q: Tensor,
    reference_K: Tensor,
) -> Tensor:
    own_K = _positions(reference_K, query_Q, len(label_N))
    predicted_Q = model(
        embeddings_NE[query_Q], embeddings_NE[reference_K], label_N[reference_K], own_K
    )
    return functional.binary_cross_entropy(predicted_Q, label_N[query_Q])


def _positions(reference_K: Tensor, query_Q: Tensor, num_questions: int) -> Tensor:
    """For each reference its place among the queries, or -1."""
    place_N = torch.full((num_questions,), -1, dtype=torch.int64)
    place_N[query_Q] = torch.arange(len(query_Q))
    return place_N[reference_K]


def _batches(
    difficulty_LN: Tensor, batch_size: int, generator: torch.Generator
) -> list[tuple[int, Tensor]]:
    """(policy, queries) pairs that cover every label once, in random order."""
    batches = []
    for policy, label_N in enumerate(difficulty_LN):
        labelled = torch.nonzero(~label_N.isnan()).squeeze(1)
        order = labelled[torch.randperm(len(labelled), generator=generator)]
        batches += [(policy, part) for part in order.split(batch_size)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def _draw(label_N: Tensor, count: int, generator: torch.Generator) -> Tensor:
    labelled = torch.nonzero(~label_N.isnan()).squeeze(1)
    return labelled[torch.randperm(len(labelled), generator=generator)[:count]]


class _Validation:
    """Loss and correlation on held-out labels, from the same reference sets each time."""

    def __init__(self, difficulty_VN: Tensor, queries_N: Tensor | None, config: FitConfig) -> None:
        generator = torch.Generator().manual_seed(config.seed + 1)
        self.sets = []
        for label_N in difficulty_VN:
            known_N = ~label_N.isnan()
            source_N = label_N if queries_N is None else label_N.masked_fill(queries_N, torch.nan)
            reference_K = _draw(source_N, config.num_references, generator)
            known_N[reference_K] = False
            if queries_N is not None:
                known_N &= queries_N
            if len(reference_K) < 2 or not known_N.any():
                raise DataError(
                    "a validation policy has too few labels",
                    got=f"{len(reference_K)} references, {int(known_N.sum())} questions to predict",
                    expected="at least 2 references and a question besides",
                    fix="lower num_references, or leave that policy out",
                )
            self.sets.append((label_N, reference_K, torch.nonzero(known_N).squeeze(1)))

    @torch.inference_mode()
    def __call__(self, model: PredictorModel, embeddings_NE: Tensor) -> tuple[float, float]:
        model.eval()
        losses, correlations = [], []
        for label_N, reference_K, query_Q in self.sets:
            predicted_Q = model(
                embeddings_NE[query_Q], embeddings_NE[reference_K], label_N[reference_K]
            )
            losses.append(functional.binary_cross_entropy(predicted_Q, label_N[query_Q]).item())
            correlations.append(pearson(predicted_Q.numpy(), label_N[query_Q].numpy()))
        known = [value for value in correlations if not np.isnan(value)]
        return float(np.mean(losses)), float(np.mean(known)) if known else float("nan")


def _warmup_then_linear(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total - step) / max(1, total - warmup))


def _check_labels(difficulty_LN: Tensor, config: FitConfig) -> None:
    known_LN = difficulty_LN[~difficulty_LN.isnan()]
    if ((known_LN < 0) | (known_LN > 1)).any():
        raise DataError(
            "a label lies outside [0, 1]",
            got=known_LN[(known_LN < 0) | (known_LN > 1)][0].item(),
            expected="difficulty = 1 - n_correct / n_samples",
        )
    fewest = int((~difficulty_LN.isnan()).sum(dim=1).min()) if len(difficulty_LN) else 0
    if fewest <= config.num_references:
        raise DataError(
            "too few labels to train a predictor",
            got=f"a policy with {fewest} labelled questions, num_references = "
            f"{config.num_references}",
            expected="more labelled questions for every policy than references",
            fix="lower num_references, or leave that policy out",
        )
