"""Stage 2. Embeddings in a file of their own, which belongs to a list of question ids.

One safetensors file: `embeddings` (N, E) in the storage type, `ids` (N, 16) with the bytes of the
ids, and a header that names the model. It is mapped into memory, so that only the rows that are
looked at are read. `embed` makes it in shards and goes on where it was killed.
"""

import hashlib
import json
import logging
import re
import shutil
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from evenodds.embeddings import Encoder, Track, check_finite, cut, load_encoder, untracked
from evenodds.errors import CheckpointError, ConfigError, DataError, some
from evenodds.files import read_tensors, replacing, write_tensors

logger = logging.getLogger(__name__)

FORMAT = 1
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
ID_BYTES = 16
_SAFETENSORS = {"float16": "F16", "bfloat16": "BF16", "float32": "F32"}
_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, eq=False)
class EmbeddingFile:
    """Embeddings of a list of questions.

    Attributes:
        ids: Content id of each question, 32 hexadecimal digits.
        model: `name@digest of the weights`, as `Embeddings.model`.
        values_NE: One row a question, float16, bfloat16 or float32; mapped from the file.
    """

    ids: tuple[str, ...]
    model: str
    values_NE: Float[Tensor, "N E"]

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def read(cls, path: Path) -> "EmbeddingFile":
        """Open a file of `embed`; its rows are read when they are used.

        Raises:
            DataError: there is no such file, or it holds something else.
            CheckpointError: it is damaged.
        """
        file, _ = _read(path)
        return file

    def aligned(self, ids: Sequence[str]) -> Float[Tensor, "N E"]:
        """The embeddings of these questions, in this order.

        In the order of the file they stay mapped; any other order is a copy in memory.

        Args:
            ids: Of a pool.

        Raises:
            DataError: a question has no embedding, or an embedding is not finite.
        """
        values_NE = self.values_NE
        if tuple(ids) != self.ids:
            values_NE = values_NE[self._rows(ids)]
        for start in range(0, len(ids), 65536):
            part = slice(start, start + 65536)
            check_finite(values_NE[part], ids[part])
        return values_NE

    def _rows(self, ids: Sequence[str]) -> list[int]:
        place = {name: row for row, name in enumerate(self.ids)}
        missing = [name for name in ids if name not in place]
        if missing:
            raise DataError(
                "these are embeddings of another pool",
                got=f"no embedding of {len(missing)} of {len(ids)} questions, such as {missing[0]}",
                expected="an embedding of every question",
                fix="evenodds embed POOL --model M --out E",
            )
        return [place[name] for name in ids]


def embed(
    ids: Sequence[str],
    texts: Sequence[str],
    spec: str | Encoder,
    out: Path,
    *,
    dtype: str = "float16",
    batch_size: int = 32,
    shard_size: int = 2048,
    track: Track = untracked,
) -> EmbeddingFile:
    """Embed questions into a file, or go on with it; a complete file is opened as it is.

    Finished shards wait in `<out>.parts/`. They hold questions of similar length, the longest
    first: a batch too large for memory is found at once.

    Args:
        ids: Content id of each question.
        texts: The questions, N texts.
        spec: A model's name, as `load_encoder` takes it, or one that is loaded.
        out: The file.
        dtype: How numbers are stored: float16, bfloat16 or float32.
        batch_size: Questions in one forward pass.
        shard_size: Questions that are lost at most when the process is killed.
        track: Shows progress; an item is a list of rows.

    Raises:
        DataError: the file or its shards belong to another pool, model or type, or an embedding
            is not finite.
    """
    assert len(ids) == len(texts), (len(ids), len(texts))
    encoder = spec if isinstance(spec, Encoder) else load_encoder(spec, texts)
    header = _header(ids, encoder.source, dtype)
    parts = out.with_name(f"{out.name}.parts")
    if not out.exists():
        shards = [
            _Shard(parts / f"{number:06}.safetensors", rows)
            for number, rows in enumerate(cut(encoder.by_length(texts)[::-1], shard_size))
        ]
        _make_shards(shards, ids, texts, encoder, header, batch_size, track)
        _put_together(shards, ids, header, parts / "whole.safetensors").replace(out)
    file, found = _read(out)
    _check_same(found, header, out)
    shutil.rmtree(parts, ignore_errors=True)
    return file


@dataclass(frozen=True)
class _Shard:
    """Rows of the pool that are embedded together, and where their embeddings are kept."""

    path: Path
    rows: list[int]

    def is_finished(self, header: Mapping[str, Any]) -> bool:
        """Whether it holds these rows; a damaged one does not."""
        if not self.path.exists():
            return False
        try:
            tensors, found = read_tensors(self.path)
        except CheckpointError:
            logger.warning("%s is damaged; its embeddings are made again", self.path)
            return False
        _check_same(found, header, self.path.parent)
        return tensors["rows"].tolist() == self.rows

    def write(self, values_NE: Float[Tensor, "N E"], header: Mapping[str, Any]) -> None:
        """Keep the embeddings of its rows."""
        tensors = {"rows": torch.tensor(self.rows), "embeddings": values_NE}
        write_tensors(self.path, tensors, header)


def _make_shards(
    shards: Sequence[_Shard],
    ids: Sequence[str],
    texts: Sequence[str],
    encoder: Encoder,
    header: Mapping[str, Any],
    batch_size: int,
    track: Track,
) -> None:
    """Embed what no finished shard holds."""
    waiting = [shard for shard in shards if not shard.is_finished(header)]
    batches = [rows for shard in waiting for rows in cut(shard.rows, batch_size)]
    values: list[Tensor] = []
    for rows in track(batches, "Embedding questions"):
        stored_NE = encoder.encode_rows(texts, rows).to(DTYPES[header["dtype"]])
        check_finite(stored_NE, [ids[row] for row in rows])
        values.append(stored_NE)
        if sum(map(len, values)) == len(waiting[0].rows):
            waiting.pop(0).write(torch.cat(values), header)
            values = []


def _put_together(
    shards: Sequence[_Shard], ids: Sequence[str], header: Mapping[str, Any], path: Path
) -> Path:
    """Copy the shards, one after the other, to their places in one file."""
    width = read_tensors(shards[0].path)[0]["embeddings"].shape[1]
    row_bytes = width * DTYPES[header["dtype"]].itemsize
    head = _safetensors_head(len(ids), width, header)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(head)
        for shard in shards:
            tensors, _ = read_tensors(shard.path)
            rows_NB = tensors["embeddings"].view(torch.uint8).numpy()
            for row, data_B in zip(shard.rows, rows_NB, strict=True):
                file.seek(len(head) + row * row_bytes)
                file.write(data_B)
        file.seek(len(head) + len(ids) * row_bytes)
        file.write(_bytes_of_ids(ids))
    return path


def _safetensors_head(num_questions: int, width: int, header: Mapping[str, Any]) -> bytes:
    """What stands before the numbers: the length of the description, and the description.

    The library writes whole tensors only. The layout is its documented one
    (https://github.com/huggingface/safetensors#format), padded to 8 bytes.
    """
    middle = num_questions * width * DTYPES[header["dtype"]].itemsize
    description = {
        "__metadata__": {"evenodds": json.dumps(header, sort_keys=True)},
        "embeddings": {
            "dtype": _SAFETENSORS[header["dtype"]],
            "shape": [num_questions, width],
            "data_offsets": [0, middle],
        },
        "ids": {
            "dtype": "U8",
            "shape": [num_questions, ID_BYTES],
            "data_offsets": [middle, middle + num_questions * ID_BYTES],
        },
    }
    text = json.dumps(description).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _header(ids: Sequence[str], model: str, dtype: str) -> dict[str, Any]:
    if dtype not in DTYPES:
        raise ConfigError(
            "embeddings cannot be stored so",
            got=repr(dtype),
            expected=f"one of {', '.join(DTYPES)}",
        )
    pool = hashlib.blake2b(_bytes_of_ids(ids), digest_size=8).hexdigest()
    return {"format": FORMAT, "kind": "embeddings", "model": model, "dtype": dtype, "pool": pool}


def _check_same(found: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    """Refuse embeddings of another pool, model (by its digest) or storage type."""
    if _what(found) != _what(wanted):
        raise DataError(
            f"{path} holds other embeddings",
            got=_spell(found),
            expected=_spell(wanted),
            fix=f"write to another file, or remove {path}",
        )


def _what(header: Mapping[str, Any]) -> tuple[Any, ...]:
    digest = str(header.get("model")).rpartition("@")[2]
    return (header.get("kind"), digest, header.get("dtype"), header.get("pool"))


def _spell(header: Mapping[str, Any]) -> str:
    if header.get("kind") != "embeddings":
        return "no embeddings"
    return f"pool {header['pool']} by {header['model']} in {header['dtype']}"


def _read(path: Path) -> tuple[EmbeddingFile, dict[str, Any]]:
    if not path.exists():
        raise DataError(
            "there is no such embedding file",
            got=path,
            fix=f"evenodds embed POOL --model M --out {path}",
        )
    tensors, header = read_tensors(path)
    if header.get("kind") != "embeddings" or header.get("format") != FORMAT:
        raise DataError(
            f"{path.name} is not an embedding file this version can read",
            got=f"{header.get('kind', 'something else')!r}, format {header.get('format')!r}",
            expected=f"'embeddings', format {FORMAT}",
        )
    ids, values_NE = tensors.get("ids"), tensors.get("embeddings")
    if ids is None or values_NE is None or ids.shape != (len(values_NE), ID_BYTES):
        raise CheckpointError(
            f"{path.name} lacks ids or embeddings", got=path, fix="remove it and embed again"
        )
    return EmbeddingFile(_ids_of_bytes(ids.numpy()), header["model"], values_NE), header


def _bytes_of_ids(ids: Sequence[str]) -> bytes:
    wrong = [name for name in ids if not _ID.fullmatch(name)]
    if wrong:
        raise DataError(
            "these are no content ids of questions",
            got=some(map(repr, wrong)),
            expected="32 hexadecimal digits, as `question_id` gives",
        )
    return bytes.fromhex("".join(ids))


def _ids_of_bytes(data_NB: UInt8[np.ndarray, "N B"]) -> tuple[str, ...]:
    digits, size = data_NB.tobytes().hex(), 2 * ID_BYTES
    return tuple(digits[start : start + size] for start in range(0, len(digits), size))
