"""The difficulty predictor: frozen projections of the pool, and what a reference set adds."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from evenodds.difficulty.attention import Adapter, attention_difficulty, standardise
from evenodds.difficulty.calibration import GroupPlatt, fit_platt, platt
from evenodds.difficulty.estimator import Estimate
from evenodds.errors import CheckpointError, DataError
from evenodds.files import read_tensors, write_tensors
from evenodds.state import State
from evenodds.types import Observation

FORMAT = 1


class PredictorModel(nn.Module):
    """The trained part: an adapter for queries, one for references, and group calibration.

    Args:
        embedding_size: E.
        width: H.
        dropout: While training.
        embedding_model: Name of what made the embeddings; another one is refused.
    """

    def __init__(
        self, embedding_size: int, width: int, *, dropout: float = 0.1, embedding_model: str = ""
    ) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.width = width
        self.embedding_model = embedding_model
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
        }
        write_tensors(path, self.state_dict(), header)

    @classmethod
    def load(cls, path: Path) -> "PredictorModel":
        """Read a file of `save`."""
        tensors, header = read_tensors(path)
        if header.get("format") != FORMAT:
            raise CheckpointError(
                f"{path.name} is not a predictor this version can read",
                got=f"format {header.get('format')!r}",
                expected=f"format {FORMAT}",
                fix="fit the predictor again",
            )
        model = cls(
            header["embedding_size"], header["width"], embedding_model=header["embedding_model"]
        )
        model.load_state_dict(tensors)
        return model.eval()


class AttentionPredictor:
    """The paper's estimator: attention over the last reference set, calibrated.

    Embeddings and adapters are frozen during a run, so their projections are computed once and a
    refresh with a new reference set is one (N, H) x (H, K) product, a softmax and a weighted
    mean. What was seen of trained groups is not used, and no uncertainty is claimed.

    Args:
        query_NH: Adapted query of each question of the pool.
        reference_NH: The same questions as references.
        calibration: Trained group calibration; none fits w and b on each reference set.
        chunk: Questions projected against the references at once, which bounds memory.
    """

    needs_references = True

    def __init__(
        self,
        query_NH: Float[Tensor, "N H"],
        reference_NH: Float[Tensor, "N H"],
        calibration: GroupPlatt | None = None,
        *,
        chunk: int = 65536,
    ) -> None:
        self.query_NH = query_NH
        self.reference_NH = reference_NH
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
    def untrained(cls, embeddings_NE: Float[Tensor, "N E"]) -> "AttentionPredictor":
        """Attention over the embeddings as they are, each dimension standardised."""
        standard_NE = standardise(embeddings_NE)
        return cls(standard_NE, standard_NE)

    @classmethod
    @torch.inference_mode()
    def trained(
        cls, model: PredictorModel, embeddings_NE: Float[Tensor, "N E"], *, embedding_model: str
    ) -> "AttentionPredictor":
        """Attention over adapted embeddings.

        Args:
            model: The trained part.
            embeddings_NE: Embeddings of the pool.
            embedding_model: Name of what made them.

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
        model = model.eval()
        queries, references = [], []
        for rows_NE in embeddings_NE.split(8192):
            queries.append(model.query_adapter(rows_NE.float()))
            references.append(model.reference_adapter(rows_NE.float()))
        return cls(torch.cat(queries), torch.cat(references), model.calibration)

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
        reference_KH = self.reference_NH[rows_K]
        parts = []
        for start in range(0, len(self.query_NH), self.chunk):
            query_CH = self.query_NH[start : start + self.chunk]
            own_K = rows_K - start
            own_K = torch.where((own_K >= 0) & (own_K < len(query_CH)), own_K, -1)
            parts.append(attention_difficulty(query_CH, reference_KH, observed_K, own_rows_K=own_K))
        return torch.cat(parts)


def _digest(embedding_model: str) -> str:
    """What identifies the weights; the name before it is for people."""
    return embedding_model.rpartition("@")[2]
