"""Stage 2. Frozen embeddings of the questions, made once and cached on disk.

A backbone's last hidden states are averaged over the real tokens of each question (method,
step 2). The cache key is the content of the texts and of the weights, so that neither a renamed
file nor a changed model can give wrong embeddings.
"""

import hashlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.files import read_tensors, write_tensors

logger = logging.getLogger(__name__)

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Wraps a sequence so that a person sees how far its work is; the text says what it is."""

SENTENCE_TRANSFORMERS = "sentence-transformers:"


def untracked(items: Sequence[Any], description: str) -> Iterable[Any]:
    """No progress display."""
    return items


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings of a pool and what made them.

    Attributes:
        values_NE: One row a question, float32.
        model: `name@digest of the weights`; a predictor names what it was trained on this way.
    """

    values_NE: Float[Tensor, "N E"]
    model: str


def embed_with_policy(
    model: nn.Module,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    name: str = "policy",
    batch_size: int = 32,
    cache: Path | None = None,
    track: Track = untracked,
) -> Embeddings:
    """Mean-pooled last hidden states of a causal language model in memory.

    Args:
        model: A Hugging Face model, also one wrapped by PEFT (its adapters are left out).
        tokenizer: Its tokenizer.
        texts: The questions, N texts.
        name: For error messages and file names.
        batch_size: Questions in one forward pass.
        cache: Folder of the cache; none takes the user's (`EVENODDS_CACHE`, or `~/.cache`).
        track: Shows progress.
    """
    source = f"{name}@{weights_digest(model)}"
    return _cached(
        source,
        texts,
        cache,
        lambda: _embed_backbone(model, tokenizer, texts, batch_size, track),
    )


def embed_with_model(
    spec: str,
    texts: Sequence[str],
    *,
    batch_size: int = 32,
    device: str = "cpu",
    cache: Path | None = None,
    track: Track = untracked,
) -> Embeddings:
    """Embeddings by a named model.

    Args:
        spec: A Hugging Face backbone (name or folder), or `sentence-transformers:NAME`.
        texts: The questions, N texts.
        batch_size: Questions in one forward pass.
        device: Where to run it.
        cache: As in `embed_with_policy`.
        track: Shows progress.
    """
    if spec.startswith(SENTENCE_TRANSFORMERS):
        return _embed_sentences(spec, texts, batch_size, device, cache, track)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(spec)
        model.to(device)
        tokenizer = AutoTokenizer.from_pretrained(spec)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the embedding model {spec!r} cannot be loaded",
            got=str(error).splitlines()[0],
            expected="`policy`, a Hugging Face model name or folder, or sentence-transformers:NAME",
        ) from error
    return embed_with_policy(
        model, tokenizer, texts, name=spec, batch_size=batch_size, cache=cache, track=track
    )


def check_embedding_model(spec: str) -> None:
    """Refuse a sentence encoder where the library for it is not installed."""
    needs_library = spec.startswith(SENTENCE_TRANSFORMERS)
    if needs_library and importlib.util.find_spec("sentence_transformers") is None:
        raise ConfigError(
            f"{spec!r} needs the sentence-transformers library",
            fix='pip install "evenodds[sentence-transformers]"',
        )


@torch.inference_mode()
def mean_pooled(
    backbone: Callable[..., Any], input_ids_NT: Tensor, mask_NT: Tensor
) -> Float[Tensor, "N E"]:
    """Average of the last hidden states over real tokens, in float32.

    Args:
        backbone: Returns an object with `last_hidden_state` of shape (N, T, E).
        input_ids_NT: Token ids, padded on either side.
        mask_NT: 1 for real tokens.
    """
    hidden_NTE = backbone(input_ids=input_ids_NT, attention_mask=mask_NT).last_hidden_state.float()
    weight_NT1 = mask_NT[..., None].to(hidden_NTE.dtype)
    return (hidden_NTE * weight_NT1).sum(dim=1) / weight_NT1.sum(dim=1).clamp_min(1.0)


def weights_digest(model: nn.Module) -> str:
    """Hash of all weights, the same with and without PEFT adapters around them."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(_base_weights(model).items()):
        digest.update(name.encode())
        data = tensor.detach().cpu().contiguous().flatten()
        digest.update(data.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where embeddings are cached: `EVENODDS_CACHE`, else `evenodds` in the user's cache."""
    if "EVENODDS_CACHE" in os.environ:
        return Path(os.environ["EVENODDS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "evenodds"


def _embed_backbone(
    model: Any, tokenizer: Any, texts: Sequence[str], batch_size: int, track: Track
) -> Float[Tensor, "N E"]:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    backbone = base.base_model
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        without_adapters = getattr(model, "disable_adapter", None)
        if without_adapters is None:
            return _embed_sorted(backbone, tokenizer, texts, batch_size, device, track)
        with without_adapters():
            return _embed_sorted(backbone, tokenizer, texts, batch_size, device, track)
    finally:
        model.train(was_training)


def _embed_sorted(
    backbone: Any,
    tokenizer: Any,
    texts: Sequence[str],
    batch_size: int,
    device: torch.device,
    track: Track,
) -> Float[Tensor, "N E"]:
    """Batches sorted by length, so that little of the work is padding."""
    tokens = tokenizer(list(texts), add_special_tokens=True)["input_ids"]
    empty = [row for row, ids in enumerate(tokens) if not ids]
    if empty:
        raise DataError(
            "a question has no tokens to embed", got=f"row {empty[0]}: {texts[empty[0]]!r}"
        )
    order = sorted(range(len(texts)), key=lambda row: len(tokens[row]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    values_NE: Tensor | None = None
    for rows in track(batches, "Embedding questions"):
        longest = len(tokens[rows[-1]])
        ids_NT = torch.zeros(len(rows), longest, dtype=torch.int64)
        mask_NT = torch.zeros(len(rows), longest, dtype=torch.int64)
        for place, row in enumerate(rows):
            ids_NT[place, : len(tokens[row])] = torch.tensor(tokens[row])
            mask_NT[place, : len(tokens[row])] = 1
        pooled = mean_pooled(backbone, ids_NT.to(device), mask_NT.to(device)).cpu()
        if values_NE is None:
            values_NE = torch.empty(len(texts), pooled.shape[1])
        values_NE[rows] = pooled
    assert values_NE is not None, "a pool is never empty"
    return values_NE


def _embed_sentences(
    spec: str,
    texts: Sequence[str],
    batch_size: int,
    device: str,
    cache: Path | None,
    track: Track,
) -> Embeddings:
    check_embedding_model(spec)
    from sentence_transformers import SentenceTransformer

    name = spec.removeprefix(SENTENCE_TRANSFORMERS)
    encoder = SentenceTransformer(name, device=device)

    def compute() -> Tensor:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        parts = [
            encoder.encode(
                [texts[row] for row in rows],
                batch_size=batch_size,
                convert_to_tensor=True,
                show_progress_bar=False,
            ).cpu()
            for rows in track(batches, "Embedding questions")
        ]
        values_NE = torch.cat(parts).float()
        return values_NE[torch.argsort(torch.tensor(order))]

    return _cached(f"{spec}@{weights_digest(encoder)}", texts, cache, compute)


def _cached(
    source: str, texts: Sequence[str], cache: Path | None, compute: Callable[[], Tensor]
) -> Embeddings:
    digest = hashlib.blake2b(source.rpartition("@")[2].encode(), digest_size=16)
    for text in texts:
        digest.update(len(text.encode()).to_bytes(8, "little") + text.encode())
    path = (cache or cache_folder()) / "embeddings" / f"{digest.hexdigest()}.safetensors"
    if path.exists():
        try:
            tensors, _ = read_tensors(path)
            return Embeddings(values_NE=tensors["embeddings"], model=source)
        except CheckpointError:
            logger.warning("%s is damaged; the embeddings are made again", path)
    values_NE = compute()
    if not torch.isfinite(values_NE).all():
        raise DataError(
            "an embedding is not finite",
            got=f"row {int((~torch.isfinite(values_NE)).any(dim=1).nonzero()[0])}",
            fix="load the embedding model in float32 or bfloat16",
        )
    try:
        write_tensors(path, {"embeddings": values_NE}, {"model": source})
    except OSError as error:
        logger.warning("the embeddings are not cached: %s", error)
    return Embeddings(values_NE=values_NE, model=source)


def _base_weights(model: nn.Module) -> dict[str, Tensor]:
    """Weights by their name in the bare model; adapters are left out."""
    weights = {}
    for name, tensor in model.state_dict().items():
        if "lora_" in name or "modules_to_save" in name:
            continue
        weights[name.removeprefix("base_model.model.").replace(".base_layer.", ".")] = tensor
    return weights
