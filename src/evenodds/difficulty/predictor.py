"""The difficulty predictor: frozen projections of the pool, and what a reference set adds."""

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from evenodds.difficulty.attention import Adapter, attention_difficulty, standardiser
from evenodds.difficulty.calibration import GroupPlatt, fit_platt, platt
from evenodds.difficulty.estimator import Estimate
from evenodds.errors import CheckpointError, DataError
from evenodds.files import read_tensors, write_tensors
from evenodds.state import State
from evenodds.types import Observation

FORMAT = 1
# Measured on 2 cores: 1,000 to 32,000 are equally fast on an idle machine and 65,000 takes a third
# longer; beside another process, small chunks take longest, as threads wait for each other often.
CHUNK = 16384
PROJECTED = 8192  # questions adapted at once


class PredictorModel(nn.Module):
    """The trained part: an adapter for queries, one for references, and group calibration.

    Args:
        embedding_size: E.
        width: H.
        dropout: While training.
        embedding_model: Name of what made the embeddings; another one is refused.
        record: What it was trained on, JSON-able; saved with it.
    """

    def __init__(
        self,
        embedding_size: int,
        width: int,
        *,
        dropout: float = 0.1,
        embedding_model: str = "",
        record: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.width = width
        self.embedding_model = embedding_model
        self.record = dict(record or {})
        self.query_adapter = Adapter(embedding_size, width, dropout)
        self.reference_adapter = Adapter(embedding_size, width, dropout)
        self.calibration = GroupPlatt()

    def forward(
        self,
        queries_NE: Float[Tensor, "N E"],
        references_KE: Float[Tensor, "K E"],
        difficulty_K: Float[Tensor, " K"],
        own_rows_K: Int[Tensor, " K"] | None = None,
    ) -> Float[Tensor, " N"]:
        """Calibrated difficulty of the queries, in (0, 1)."""
        d_hat_N = attention_difficulty(
            self.query_adapter(queries_NE),
            self.reference_adapter(references_KE),
            difficulty_K,
            own_rows_K=own_rows_K,
        )
        return platt(d_hat_N, *self.calibration(difficulty_K))

    def save(self, path: Path) -> None:
        """Write weights and sizes to one safetensors file."""
        header = {
            "format": FORMAT,
            "embedding_size": self.embedding_size,
            "width": self.width,
            "embedding_model": self.embedding_model,
            "record": self.record,
        }
        write_tensors(path, self.state_dict(), header)

    @classmethod
    def load(cls, path: Path) -> "PredictorModel":
        """Read a file of `save`."""
        tensors, header = read_tensors(path)
        wanted = {"embedding_size", "width", "embedding_model"}
        sizes = [header.get(name) for name in ("embedding_size", "width")]
        sound = wanted <= set(header) and all(isinstance(size, int) and size > 0 for size in sizes)
        if header.get("format") != FORMAT or not sound:
            raise CheckpointError(
                f"{path.name} is not a predictor this version can read",
                got=f"format {header.get('format')!r} with {', '.join(sorted(header))}",
                expected=f"a file of `evenodds fit`, format {FORMAT}",
                fix="fit the predictor again",
            )
        model = cls(
            header["embedding_size"],
            header["width"],
            embedding_model=header["embedding_model"],
            record=header.get("record"),
        )
        try:
            model.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(f"{path.name} holds other weights", got=error) from error
        bad = [name for name, tensor in tensors.items() if not torch.isfinite(tensor).all()]
        if bad:
            raise CheckpointError(
                f"{path.name} has weights that are not finite", got=bad[0], fix="fit it again"
            )
        return model.eval()


class AttentionPredictor:
    """The paper's estimator: attention over the last reference set, calibrated.

    Embeddings and adapters are frozen during a run, so the queries are adapted once. A refresh
    with a new reference set adapts K references, and is one (N, H) x (H, K) product, a softmax
    and a weighted mean. What was seen of trained groups is not used, and no uncertainty is
    claimed.

    Args:
        query_NH: Adapted query of each question of the pool, float32, bfloat16 or float16; all
            arithmetic is in float32.
        references: Gives the adapted references of K rows of the pool, (K, H) in float32.
        calibration: Gives w and b of a reference set, as `GroupPlatt` does; none fits them.
        chunk: Questions held against the references at once. It bounds memory, and the default
            is the fastest that was measured.
    """

    needs_references = True

    def __init__(
        self,
        query_NH: Float[Tensor, "N H"],
        references: Callable[[Int[Tensor, " K"]], Float[Tensor, "K H"]],
        calibration: Callable[[Tensor], tuple[Tensor | float, Tensor | float]] | None = None,
        *,
        chunk: int = CHUNK,
    ) -> None:
        self.query_NH = query_NH
        self.references = references
        self.calibration = calibration
        self.chunk = chunk
        self._difficulty_N: Float[np.ndarray, " N"] | None = None

    def probe(self, references: Observation) -> None:
        """Predict every question from these references alone."""
        self._difficulty_N = self.predict(references)

    def observe(self, fresh: Observation) -> None:
        """Nothing: the paper learns from references only."""

    def estimate(self) -> Estimate:
        """The prediction from the last reference set."""
        assert self._difficulty_N is not None, "probe comes before estimate"
        return Estimate(self._difficulty_N, np.zeros_like(self._difficulty_N))

    def state(self) -> State:
        """The prediction itself, so that going on needs no arithmetic to be repeatable."""
        if self._difficulty_N is None:
            return State()
        return State(tensors={"difficulty": torch.from_numpy(self._difficulty_N.copy())})

    def restore(self, state: State) -> None:
        """Take over a saved prediction.

        Raises:
            CheckpointError: it belongs to a pool of another size.
        """
        saved = state.tensors.get("difficulty")
        if saved is not None and len(saved) != len(self.query_NH):
            raise CheckpointError(
                "the checkpoint belongs to another question pool",
                got=f"{len(self.query_NH)} questions",
                expected=f"{len(saved)} questions, as when it was saved",
            )
        self._difficulty_N = None if saved is None else saved.numpy().copy()

    @classmethod
    @torch.inference_mode()
    def untrained(
        cls, embeddings_NE: Float[Tensor, "N E"], *, dtype: torch.dtype = torch.float32
    ) -> "AttentionPredictor":
        """Attention over the embeddings as they are, each dimension standardised.

        Args:
            embeddings_NE: Embeddings of the pool; they can be mapped from a file.
            dtype: How the queries are stored.
        """
        standard_NE = _rowwise(embeddings_NE, standardiser(embeddings_NE), dtype)
        return cls(standard_NE, lambda rows_K: standard_NE[rows_K].float())

    @classmethod
    @torch.inference_mode()
    def trained(
        cls,
        model: PredictorModel,
        embeddings_NE: Float[Tensor, "N E"],
        *,
        embedding_model: str,
        dtype: torch.dtype = torch.float32,
    ) -> "AttentionPredictor":
        """Attention over adapted embeddings.

        Args:
            model: The trained part; what becomes of it afterwards does not matter.
            embeddings_NE: Embeddings of the pool, of which each refresh looks at K rows; they can
                be mapped from a file.
            embedding_model: Name of what made them.
            dtype: How the queries are stored.

        Raises:
            DataError: the model was trained on other embeddings.
        """
        wanted = (_digest(model.embedding_model), model.embedding_size)
        if (_digest(embedding_model), embeddings_NE.shape[1]) != wanted:
            raise DataError(
                "the predictor was trained on other embeddings",
                got=f"embeddings of {embedding_model!r}, size {embeddings_NE.shape[1]}",
                expected=f"embeddings of {model.embedding_model!r}, size {model.embedding_size}",
                fix="set `embeddings` to what the predictor was trained on, or fit it again",
            )
        model = copy.deepcopy(model).eval()
        query_NH = _rowwise(embeddings_NE, model.query_adapter, dtype)

        def references(rows_K: Tensor) -> Tensor:
            return model.reference_adapter(embeddings_NE[rows_K].float())

        return cls(query_NH, references, model.calibration)

    @torch.inference_mode()
    def predict(self, references: Observation) -> Float[np.ndarray, " N"]:
        """Calibrated difficulty of every question from one reference set.

        No reference attends to itself: also its own prediction is made from the others only,
        and comparing it with what was observed is an honest test.

        Args:
            references: What was observed of the K references.

        Returns:
            Difficulty in (0, 1), float32.
        """
        rows_K = torch.from_numpy(references.questions_K)
        observed_K = torch.from_numpy(references.difficulty_K)
        d_hat_N = self._attend(rows_K, observed_K)
        if self.calibration is not None:
            slope, shift = self.calibration(observed_K)
        else:
            slope, shift = fit_platt(d_hat_N[rows_K].numpy(), references.difficulty_K)
        return platt(d_hat_N, slope, shift).numpy()

    def _attend(
        self, rows_K: Int[Tensor, " K"], observed_K: Float[Tensor, " K"]
    ) -> Float[Tensor, " N"]:
        reference_KH = self.references(rows_K)
        d_hat_N = torch.empty(len(self.query_NH))
        buffer_CH = torch.empty(min(self.chunk, len(d_hat_N)), self.query_NH.shape[1])
        for start in range(0, len(d_hat_N), self.chunk):
            query_CH = self.query_NH[start : start + self.chunk]
            if query_CH.dtype != torch.float32:
                query_CH = buffer_CH[: len(query_CH)].copy_(query_CH)
            own_K = rows_K - start
            own_K = torch.where((own_K >= 0) & (own_K < len(query_CH)), own_K, -1)
            d_hat_N[start : start + self.chunk] = attention_difficulty(
                query_CH, reference_KH, observed_K, own_rows_K=own_K
            )
        return d_hat_N


def _rowwise(
    embeddings_NE: Tensor, function: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> Tensor:
    """The function of each row, some rows at a time, in one tensor of this type."""
    results_NH: Tensor | None = None
    for start in range(0, len(embeddings_NE), PROJECTED):
        part_MH = function(embeddings_NE[start : start + PROJECTED].float())
        if results_NH is None:
            results_NH = torch.empty(len(embeddings_NE), part_MH.shape[1], dtype=dtype)
        results_NH[start : start + PROJECTED] = part_MH
    assert results_NH is not None, "a pool is never empty"
    return results_NH


def _digest(embedding_model: str) -> str:
    """What identifies the weights; the name before it is for people."""
    return embedding_model.rpartition("@")[2]
