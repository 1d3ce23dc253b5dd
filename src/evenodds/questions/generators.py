"""Questions that are made rather than read: the toy world's and those of reasoning-gym."""

import contextlib
import dataclasses
import importlib
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evenodds.config import unknown_key
from evenodds.errors import ConfigError, DataError, some
from evenodds.questions.config import DataConfig
from evenodds.questions.packages import module_of
from evenodds.questions.shapes import Row


def _toy_rows(config: DataConfig) -> Iterator[Row]:
    toy = importlib.import_module("evenodds.toy")
    splits = {"train": toy.pool, "test": toy.evaluation}
    if config.split not in splits:
        raise DataError(
            f"the toy questions have no split {config.split!r}", got=f"the splits {some(splits)}"
        )
    return iter(splits[config.split](world=config.subset or "main", seed=config.seed))


def _reasoning_gym_rows(config: DataConfig) -> Iterator[Row]:
    gym = module_of("reasoning_gym", "reasoning-gym")
    from evenodds.rewards.reasoning_gym import ENTRY_COLUMN, entry_text

    for task, table in (config.tasks or {}).items():
        own = {key: value for key, value in table.items() if key not in ("count", "seed")}
        seed = table.get("seed", config.seed)
        with contextlib.redirect_stdout(io.StringIO()):  # some tasks print
            entries = list(_task(gym, task, {**own, "size": table["count"], "seed": seed}))
        for entry in entries:
            yield {
                "question": entry["question"],
                "answer": entry["answer"],
                "task": task,
                ENTRY_COLUMN: entry_text(task, own, entry),
            }


def _task(gym: Any, name: str, settings: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if name not in gym.factory.DATASETS:
        raise unknown_key(name, sorted(gym.factory.DATASETS), kind="reasoning-gym task")
    known = [field.name for field in dataclasses.fields(gym.factory.DATASETS[name][1])]
    for key in settings:
        if key not in known:
            raise unknown_key(f"data.tasks.{name}.{key}", [f"data.tasks.{name}.{k}" for k in known])
    try:
        return gym.create_dataset(name, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(
            f"reasoning-gym refuses the settings of data.tasks.{name}", got=error
        ) from error


GENERATORS: dict[str, Callable[[DataConfig], Iterator[Row]]] = {
    "toy": _toy_rows,
    "reasoning_gym": _reasoning_gym_rows,
}
