"""Attention over question embeddings (method, step 2; arXiv 2506.05316, Section 3.1).

a_i = softmax_i(z_q . z_i / sqrt(h)),  d_hat_q = sum_i a_i d_i
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

ROWS = 8192  # read at once from a pool that is stored in 16 bits


class Adapter(nn.Module):
    """LayerNorm, a 3-layer MLP with GELU and dropout, LayerNorm.

    Args:
        embedding_size: E.
        width: H; the paper uses 896.
        dropout: Probability of dropping a hidden unit while training.
    """

    def __init__(self, embedding_size: int, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(embedding_size),
            nn.Linear(embedding_size, width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.LayerNorm(width),
        )

    def forward(self, embeddings_NE: Float[Tensor, "N E"]) -> Float[Tensor, "N H"]:
        """Adapted vectors z."""
        return self.layers(embeddings_NE)


def standardiser(
    embeddings_NE: Float[Tensor, "N E"],
) -> Callable[[Float[Tensor, "M E"]], Float[Tensor, "M E"]]:
    """What brings each dimension to mean 0 and variance 1 over the pool, for any of its rows.

    Hidden states of language models have a few dimensions that are much larger than the rest;
    without an adapter these alone would decide the attention.
    """
    mean_E, spread_E = _mean_and_spread(embeddings_NE)
    return lambda rows_ME: (rows_ME.float() - mean_E) / spread_E.clamp_min(1e-6)


def _mean_and_spread(embeddings_NE: Tensor) -> tuple[Tensor, Tensor]:
    """Of each dimension, without a copy of a pool that is stored in 16 bits."""
    if embeddings_NE.dtype == torch.float32:
        return embeddings_NE.mean(dim=0), embeddings_NE.std(dim=0, correction=0)
    parts, count = embeddings_NE.split(ROWS), len(embeddings_NE)
    zero_E = torch.zeros(embeddings_NE.shape[1], dtype=torch.float64)
    mean_E = sum((rows_ME.double().sum(dim=0) for rows_ME in parts), zero_E) / count
    squares = ((rows_ME.double() - mean_E).square().sum(dim=0) for rows_ME in parts)
    return mean_E.float(), (sum(squares, zero_E) / count).sqrt().float()


def attention_difficulty(
    query_NH: Float[Tensor, "N H"],
    reference_KH: Float[Tensor, "K H"],
    difficulty_K: Float[Tensor, " K"],
    *,
    own_rows_K: Int[Tensor, " K"] | None = None,
) -> Float[Tensor, " N"]:
    """Attention-weighted mean of the reference difficulties, in float32.

    Args:
        query_NH: Adapted queries.
        reference_KH: Adapted references.
        difficulty_K: Observed difficulty of the references, in [0, 1].
        own_rows_K: For each reference its row among the queries, or -1. There the query does
            not attend to itself, so that its prediction never contains its own label.

    Returns:
        d_hat in [0, 1].
    """
    scores_NK = (query_NH @ reference_KH.T).float() / math.sqrt(query_NH.shape[1])
    if own_rows_K is not None:
        mine_K = own_rows_K >= 0
        columns = torch.arange(len(own_rows_K), device=scores_NK.device)[mine_K]
        scores_NK[own_rows_K[mine_K], columns] = -torch.inf
    return torch.softmax(scores_NK, dim=1) @ difficulty_K.float()
