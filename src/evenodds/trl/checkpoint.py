"""Checkpoints that hold safetensors and JSON only, and that are complete or refused.

The host writes a checkpoint in place: weights, optimizer, random states, and last its own
`trainer_state.json`. A manifest is written just before that last file, so a folder whose files
match its manifest and whose `trainer_state.json` can be parsed was written to the end.
"""

import logging
import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenodds.errors import CheckpointError
from evenodds.files import read_json, read_tensors, write_json, write_tensors
from evenodds.state import State

logger = logging.getLogger(__name__)

MANIFEST = "evenodds.json"
TRAINER_STATE = "trainer_state.json"
OPTIMIZER = "optimizer.safetensors"
SCHEDULER = "scheduler.json"
SCALER = "scaler.json"


class PlainCheckpoints:
    """Overrides of transformers' `Trainer` that keep pickles out of checkpoints.

    Sharded optimizers (DeepSpeed, FSDP) have formats of their own and are left to the host, as is
    an optimizer whose state is neither tensors nor JSON. Checkpoints in the host's own format
    can be read too.
    """

    # What the overrides use of the host
    args: Any
    accelerator: Any
    optimizer: Any
    lr_scheduler: Any

    @property
    def _is_sharded(self) -> bool:
        return bool(self.is_deepspeed_enabled or self.is_fsdp_enabled)  # type: ignore[attr-defined]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        packed = None if self._is_sharded else pack_optimizer(self.optimizer.state_dict())
        scheduler = None if self.lr_scheduler is None else self.lr_scheduler.state_dict()
        if packed is None or not is_plain(scheduler):
            super()._save_optimizer_and_scheduler(output_dir)  # type: ignore[misc]
        elif self.args.should_save:
            write_tensors(Path(output_dir) / OPTIMIZER, packed.tensors, packed.values)
            write_json(Path(output_dir) / SCHEDULER, scheduler)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None or not (Path(checkpoint) / OPTIMIZER).exists():
            super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
            return
        tensors, values = read_tensors(Path(checkpoint) / OPTIMIZER)
        self.optimizer.load_state_dict(unpack_optimizer(State(values, tensors)))
        self.lr_scheduler.load_state_dict(read_json(Path(checkpoint) / SCHEDULER))

    def _save_scaler(self, output_dir: str) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and self.args.should_save:
            write_json(Path(output_dir) / SCALER, scaler.state_dict())

    def _load_scaler(self, checkpoint: str | None) -> None:
        path = None if checkpoint is None else Path(checkpoint) / SCALER
        if path is None or not path.exists():
            super()._load_scaler(checkpoint)  # type: ignore[misc]
        elif (scaler := getattr(self.accelerator, "scaler", None)) is not None:
            scaler.load_state_dict(read_json(path))

    def _save_rng_state(self, output_dir: str) -> None:
        rng = rng_state()
        write_tensors(self._rng_path(output_dir), rng.tensors, rng.values)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None or not self._rng_path(checkpoint).exists():
            super()._load_rng_state(checkpoint)  # type: ignore[misc]
            return
        tensors, values = read_tensors(self._rng_path(checkpoint))
        restore_rng(State(values, tensors))

    def _rng_path(self, checkpoint: str) -> Path:
        return Path(checkpoint) / f"rng_state_{self.args.process_index}.safetensors"

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)  # type: ignore[misc]
        folder = Path(output_dir if output_dir is not None else self.args.output_dir)
        (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle of what config.json says


def pack_optimizer(state_dict: dict[str, Any]) -> State | None:
    """An optimizer's state as tensors and JSON-able values; none where it is neither."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, dict[str, Any]] = {}
    for index, entries in state_dict["state"].items():
        for key, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}/{key}"] = value
            elif is_plain(value):
                values.setdefault(str(index), {})[key] = value
            else:
                return None
    groups = state_dict["param_groups"]
    return State({"state": values, "param_groups": groups}, tensors) if is_plain(groups) else None


def unpack_optimizer(state: State) -> dict[str, Any]:
    """The optimizer state of `pack_optimizer`."""
    entries = {int(index): dict(values) for index, values in state.values["state"].items()}
    for name, tensor in state.tensors.items():
        index, _, key = name.partition("/")
        entries.setdefault(int(index), {})[key] = tensor
    groups = [
        {
            key: tuple(value) if isinstance(value, list) and key != "params" else value
            for key, value in group.items()
        }
        for group in state.values["param_groups"]
    ]
    return {"state": entries, "param_groups": groups}


def is_plain(value: Any) -> bool:
    """Whether JSON can hold the value and give it back."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def rng_state() -> State:
    """The global random states: Python, NumPy, torch, and CUDA where there is one."""
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
    }
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    values = {
        "python": [version, list(internal), gauss],
        "numpy": [name, int(position), int(has_gauss), float(cached)],
    }
    return State(values, tensors)


def restore_rng(state: State) -> None:
    """Set the global random states to those of `rng_state`."""
    version, internal, gauss = state.values["python"]
    random.setstate((version, tuple(internal), gauss))
    name, position, has_gauss, cached = state.values["numpy"]
    keys = state.tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state((name, keys, position, has_gauss, cached))  # noqa: NPY002
    torch.set_rng_state(state.tensors["torch"])
    if "cuda" in state.tensors and torch.cuda.is_available():
        torch.cuda.set_rng_state(state.tensors["cuda"])


def write_manifest(folder: Path, world_size: int) -> None:
    """List the files of a checkpoint with their sizes; the last thing before the host's state."""
    sizes = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (MANIFEST, TRAINER_STATE)
    }
    write_json(folder / MANIFEST, {"files": sizes, "world_size": world_size})


def check_complete(folder: Path) -> bool:
    """Refuse a checkpoint that was not written to the end, or was damaged since.

    Returns:
        Whether evenodds wrote it; if not, it is one of the host alone and holds no state of ours.

    Raises:
        CheckpointError: names the first file that is missing or has another size.
    """
    if not folder.is_dir():
        raise CheckpointError(
            "there is no such checkpoint", got=folder, expected="a folder named checkpoint-STEP"
        )
    if "global_step" not in _table(folder / TRAINER_STATE):
        raise CheckpointError(f"the checkpoint {folder.name} is damaged", got=TRAINER_STATE)
    if not (folder / MANIFEST).exists() and (folder / "optimizer.pt").exists():
        return False
    for name, size in _manifest(folder)["files"].items():
        path = folder / name
        found = path.stat().st_size if path.exists() else None
        if found != size:
            raise CheckpointError(
                f"the checkpoint {folder.name} is damaged",
                got=f"{name}: {'missing' if found is None else f'{found} bytes'}",
                expected=f"{size} bytes",
                fix="resume from an older checkpoint",
            )
    return True


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = _table(folder / MANIFEST)
    if not isinstance(manifest.get("files"), dict) or "world_size" not in manifest:
        raise CheckpointError(
            f"the checkpoint {folder.name} is damaged", got=f"{MANIFEST} lists no files"
        )
    return manifest


def _table(path: Path) -> dict[str, Any]:
    values = read_json(path)
    if not isinstance(values, dict):
        raise CheckpointError(f"{path.name} is damaged", got=path, expected="a JSON object")
    return values


def check_world_size(folder: Path, world_size: int) -> None:
    """Refuse a checkpoint of another number of processes: each keeps rollouts of its own."""
    saved = _manifest(folder)["world_size"]
    if saved != world_size:
        raise CheckpointError(
            f"the checkpoint {folder.name} was saved by another number of processes",
            got=f"{world_size} processes",
            expected=f"{saved} processes",
            fix=f"launch with --num_processes {saved}",
        )


def last_complete(folder: Path) -> Path:
    """The newest complete checkpoint in `folder`; incomplete ones are passed over with a warning.

    Raises:
        CheckpointError: there is none.
    """
    found = {
        int(match[1]): path
        for path in folder.glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name))
    }
    for step in sorted(found, reverse=True):
        try:
            check_complete(found[step])
        except CheckpointError as error:
            logger.warning("%s is passed over: %s", found[step].name, error)
        else:
            return found[step]
    raise CheckpointError(
        "there is no complete checkpoint to resume from",
        got=f"{folder}: {', '.join(path.name for path in found.values()) or 'no checkpoints'}",
        fix="start the run anew",
    )
