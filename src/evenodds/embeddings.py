"""Stage 2. Frozen embeddings of the questions, made once and cached on disk.

A backbone's last hidden states are averaged over the real tokens of each question (method,
step 2). The cache key is the content of the texts and of the weights, so that neither a renamed
file nor a changed model can give wrong embeddings.
"""

import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from evenodds.errors import CheckpointError, ConfigError, DataError
from evenodds.files import read_tensors, write_tensors
from evenodds.resources import PACKAGE, resolved_path
from evenodds.text_features import text_features

logger = logging.getLogger(__name__)

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Wraps a sequence so that a person sees how far its work is; the text says what it is."""

SENTENCE_TRANSFORMERS = "sentence-transformers:"
TFIDF = "tfidf"
TFIDF_SIZE = 384  # dimensions, at most


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


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen model that is ready to embed questions.

    Attributes:
        source: `name@digest of the weights`, as `Embeddings.model`.
        lengths: How long texts are for the model, in tokens or characters; 0 where there is
            nothing to embed.
        encode: Embeddings of a few texts in one forward pass, float32, on the CPU.
    """

    source: str
    lengths: Callable[[Sequence[str]], list[int]]
    encode: Callable[[Sequence[str]], Float[Tensor, "N E"]]

    def encode_rows(self, texts: Sequence[str], rows: Sequence[int]) -> Float[Tensor, "N E"]:
        """Embeddings of some of the texts."""
        return self.encode([texts[row] for row in rows])

    def by_length(self, texts: Sequence[str]) -> list[int]:
        """Rows from the shortest text to the longest: batches in this order need little padding.

        Raises:
            DataError: there is nothing to embed in a text.
        """
        lengths = self.lengths(texts)
        order = sorted(range(len(texts)), key=lengths.__getitem__)
        if lengths[order[0]] == 0:
            row = lengths.index(0)
            raise DataError("a question has no tokens to embed", got=f"row {row}: {texts[row]!r}")
        return order


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
    return _cached(policy_encoder(model, tokenizer, name), texts, batch_size, cache, track)


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
        spec: As in `load_encoder`.
        texts: The questions, N texts.
        batch_size: Questions in one forward pass.
        device: Where to run it.
        cache: As in `embed_with_policy`.
        track: Shows progress.
    """
    return _cached(load_encoder(spec, texts, device=device), texts, batch_size, cache, track)


def load_encoder(spec: str, texts: Sequence[str], *, device: str = "cpu") -> Encoder:
    """Load a named model.

    Args:
        spec: A Hugging Face backbone (name or folder), `sentence-transformers:NAME`, where NAME
            can be a folder in an installed package, `package:NAME/FOLDER`, or `tfidf`.
        texts: The pool; TF-IDF counts words in it.
        device: Where to run it.

    Raises:
        ConfigError: it cannot be loaded; the reason is the library's.
    """
    check_embedding_model(spec)
    if spec == TFIDF:
        return _tfidf_encoder(texts)
    if spec.startswith(SENTENCE_TRANSFORMERS):
        return _sentence_encoder(spec, device)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(spec)
        model.to(device)
        tokenizer = AutoTokenizer.from_pretrained(spec)
    except (OSError, ValueError) as error:
        raise _cannot_load(spec, error) from error
    return policy_encoder(model, tokenizer, spec)


def policy_encoder(model: nn.Module, tokenizer: Any, name: str = "policy") -> Encoder:
    """An encoder of a causal language model in memory; see `embed_with_policy`."""

    def lengths(texts: Sequence[str]) -> list[int]:
        slices = (texts[start : start + 4096] for start in range(0, len(texts), 4096))
        return [len(ids) for part in slices for ids in _tokens(tokenizer, part)]

    def encode(texts: Sequence[str]) -> Tensor:
        tokens = _tokens(tokenizer, texts)
        shape = (len(texts), max(map(len, tokens)))
        ids_NT, mask_NT = torch.zeros(2, *shape, dtype=torch.int64)
        for row, ids in enumerate(tokens):
            ids_NT[row, : len(ids)] = torch.tensor(ids)
            mask_NT[row, : len(ids)] = 1
        device = next(model.parameters()).device
        with _frozen(model) as backbone:
            return mean_pooled(backbone, ids_NT.to(device), mask_NT.to(device)).cpu()

    return Encoder(f"{name}@{weights_digest(model)}", lengths, encode)


def check_embedding_model(spec: str) -> None:
    """Refuse a model where the library for it is not installed."""
    if spec.startswith(SENTENCE_TRANSFORMERS):
        _check_library(spec, "sentence_transformers", "sentence-transformers")
    elif spec == TFIDF:
        _check_library(spec, "sklearn", "predictor")


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


def cut(rows: list[int], size: int) -> list[list[int]]:
    """Pieces of `size` rows; the last one can be shorter."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def check_finite(values_NE: Float[Tensor, "N E"], names: Sequence[object]) -> None:
    """Refuse NaN and infinity.

    Args:
        values_NE: Embeddings.
        names: What to call each row in the message.
    """
    bad_N = ~torch.isfinite(values_NE).all(dim=1)
    if bad_N.any():
        dtype = str(values_NE.dtype).removeprefix("torch.")
        raise DataError(
            f"an embedding is not finite in {dtype}",
            got=f"question {names[int(bad_N.nonzero()[0])]}",
            fix="load the embedding model in float32 or bfloat16, and store what it gives so",
        )


def _check_library(spec: str, module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ConfigError(
            f"{spec!r} needs the library {module}", fix=f'pip install "evenodds[{extra}]"'
        )


def _tokens(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=True)["input_ids"]


@contextlib.contextmanager
def _frozen(model: Any) -> Iterator[Any]:
    """The backbone of a model, without dropout and adapters for the while."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    without_adapters = getattr(model, "disable_adapter", contextlib.nullcontext)
    was_training = model.training
    model.eval()
    try:
        with without_adapters():
            yield base.base_model
    finally:
        model.train(was_training)


def _sentence_encoder(spec: str, device: str) -> Encoder:
    from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]

    name = spec.removeprefix(SENTENCE_TRANSFORMERS)
    name = str(resolved_path(name)) if name.startswith(PACKAGE) else name
    try:
        encoder = SentenceTransformer(name, device=device)
    except (OSError, ValueError) as error:
        raise _cannot_load(spec, error) from error

    def encode(texts: Sequence[str]) -> Tensor:
        size = len(texts)
        return (
            encoder.encode(
                list(texts), batch_size=size, convert_to_tensor=True, show_progress_bar=False
            )
            .cpu()
            .float()
        )

    return Encoder(f"{spec}@{weights_digest(encoder)}", _characters, encode)


def _tfidf_encoder(pool: Sequence[str]) -> Encoder:
    """Reduced TF-IDF, made of the whole pool when the first of its texts is embedded."""

    @functools.cache
    def reduced() -> Tensor:
        return _reduced_features(pool)

    rows = {text: row for row, text in enumerate(pool)}

    def encode(texts: Sequence[str]) -> Tensor:
        return reduced()[[rows[text] for text in texts]]

    settings = f"{TFIDF_SIZE} {version('scikit-learn')}"
    digest = hashlib.blake2b(settings.encode(), digest_size=8)
    _add_texts(digest, pool)
    return Encoder(f"{TFIDF}@{digest.hexdigest()}", _characters, encode)


def _reduced_features(texts: Sequence[str]) -> Float[Tensor, "N E"]:
    """Truncated singular value decomposition of TF-IDF (latent semantic analysis), seeded."""
    from sklearn.decomposition import TruncatedSVD

    try:
        features_NV = text_features(texts)
    except ValueError as error:
        raise DataError(
            "TF-IDF finds no words in the questions",
            got=str(error),
            fix="embed these with a language model or a sentence encoder",
        ) from error
    size = min(TFIDF_SIZE, *features_NV.shape)
    with np.errstate(divide="ignore", invalid="ignore"):  # shares of no variance at all
        reduced_NE = TruncatedSVD(size, random_state=0).fit_transform(features_NV)
    return torch.from_numpy(reduced_NE).float()


def _characters(texts: Sequence[str]) -> list[int]:
    return [len(text) for text in texts]


def _cannot_load(spec: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"the embedding model {spec!r} cannot be loaded",
        got=str(error).splitlines()[0],
        expected="`policy`, a Hugging Face model name or folder, sentence-transformers:NAME, or "
        "`tfidf`",
    )


def _cached(
    encoder: Encoder, texts: Sequence[str], batch_size: int, cache: Path | None, track: Track
) -> Embeddings:
    source = encoder.source
    digest = hashlib.blake2b(source.rpartition("@")[2].encode(), digest_size=16)
    _add_texts(digest, texts)
    path = (cache or cache_folder()) / "embeddings" / f"{digest.hexdigest()}.safetensors"
    if path.exists():
        try:
            tensors, _ = read_tensors(path)
            return Embeddings(values_NE=tensors["embeddings"], model=source)
        except CheckpointError:
            logger.warning("%s is damaged; the embeddings are made again", path)
    values_NE = _embedded(encoder, texts, batch_size, track)
    check_finite(values_NE, range(len(texts)))
    try:
        write_tensors(path, {"embeddings": values_NE}, {"model": source})
    except OSError as error:
        logger.warning("the embeddings are not cached: %s", error)
    return Embeddings(values_NE=values_NE, model=source)


def _embedded(
    encoder: Encoder, texts: Sequence[str], batch_size: int, track: Track
) -> Float[Tensor, "N E"]:
    values_NE: Tensor | None = None
    for rows in track(cut(encoder.by_length(texts), batch_size), "Embedding questions"):
        part = encoder.encode_rows(texts, rows)
        if values_NE is None:
            values_NE = torch.empty(len(texts), part.shape[1])
        values_NE[rows] = part
    assert values_NE is not None, "a pool is never empty"
    return values_NE


def _add_texts(digest: Any, texts: Sequence[str]) -> None:
    for text in texts:
        digest.update(len(text.encode()).to_bytes(8, "little") + text.encode())


def _base_weights(model: nn.Module) -> dict[str, Tensor]:
    """Weights by their name in the bare model; adapters are left out."""
    weights = {}
    for name, tensor in model.state_dict().items():
        if "lora_" in name or "modules_to_save" in name:
            continue
        weights[name.removeprefix("base_model.model.").replace(".base_layer.", ".")] = tensor
    return weights
