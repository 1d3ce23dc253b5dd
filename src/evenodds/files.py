"""Files that survive being killed: written under a temporary name, synced, then renamed."""

import contextlib
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenodds.errors import CheckpointError

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it takes the place of `path` at once.

    Whatever goes wrong (an error, a full disk, a kill), an earlier `path` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the lock ends with it, however it ends.

    Raises:
        CheckpointError: another process holds it.
    """
    import fcntl

    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CheckpointError(
                "the run folder is in use",
                got=f"another process works in {folder}",
                fix="wait until it ends, or use another --out",
            ) from error
        yield


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Write `value` as JSON, atomically. NaN is refused: it is not JSON."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; a missing or damaged one is a `CheckpointError` that names it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path.name} cannot be read", got=f"{path}: {error}", expected="a complete JSON file"
        ) from error


def write_tensors(
    path: Path, tensors: Mapping[str, "torch.Tensor"], header: Mapping[str, Any]
) -> None:
    """Write named tensors and a JSON-able `header` to one safetensors file, atomically."""
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(header, sort_keys=True, allow_nan=False)
    with replacing(path) as temporary:
        save_file(contiguous, temporary, metadata={"evenodds": text})


def read_tensors(path: Path) -> tuple[dict[str, "torch.Tensor"], dict[str, Any]]:
    """Read a file of `write_tensors`: its tensors and its header.

    Raises:
        CheckpointError: the file is missing, truncated, or was not written by evenodds.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header = json.loads(metadata["evenodds"])
        if not isinstance(header, dict):
            raise KeyError("evenodds")
        return tensors, header
    except (OSError, SafetensorError, struct.error, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{path.name} cannot be read",
            got=f"{path}: {error!r}",
            expected="a complete safetensors file written by evenodds",
            fix="name another file; of checkpoints, an older one",
        ) from error


def append_line(path: Path, record: object) -> None:
    """Append one JSON line and flush it to the operating system."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, allow_nan=False) + "\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a JSON-lines file; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    records = []
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines) - 1:  # no newline behind it: its writer was killed
                break
            raise CheckpointError(
                f"line {number + 1} of {path.name} is damaged",
                got=f"{path}: {error}",
                expected="one JSON object a line",
            ) from error
    return records


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
