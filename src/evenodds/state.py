"""What a stage must save to go on exactly: plain values and named tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from evenodds.errors import CheckpointError


@dataclass(frozen=True, eq=False)
class State:
    """The saved state of one stage, or of several under names of their own.

    Attributes:
        values: JSON-able values.
        tensors: Tensors on the CPU.
    """

    values: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def of_parts(parts: Mapping[str, "State"]) -> "State":
        """Put several states into one, each under its name."""
        return State(
            values={name: part.values for name, part in parts.items()},
            tensors={
                f"{name}/{key}": tensor
                for name, part in parts.items()
                for key, tensor in part.tensors.items()
            },
        )

    def part(self, name: str) -> "State":
        """The state that was put in under `name`."""
        if name not in self.values:
            raise CheckpointError(
                f"the checkpoint holds no state of {name!r}",
                got=f"states of {', '.join(self.values) or 'nothing'}",
                fix="resume with the settings the run was started with",
            )
        prefix = f"{name}/"
        return State(
            values=self.values[name],
            tensors={
                key.removeprefix(prefix): tensor
                for key, tensor in self.tensors.items()
                if key.startswith(prefix)
            },
        )


@runtime_checkable
class Stateful(Protocol):
    """Anything whose state is saved with a run."""

    def state(self) -> State:
        """The state as it is now."""
        ...

    def restore(self, state: State) -> None:
        """Take over a state of `state`."""
        ...


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """The state of a NumPy generator as JSON-able values."""
    return dict(generator.bit_generator.state)


def restore_generator(generator: np.random.Generator, values: Mapping[str, Any]) -> None:
    """Set a NumPy generator to a state of `generator_state`."""
    generator.bit_generator.state = dict(values)


def check_belongs(saved: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse a checkpoint of other questions or settings, whose stored groups mean nothing here.

    Args:
        saved: Names and values when it was saved.
        now: The same of the run that would go on.
    """
    for name, value in now.items():
        if name in saved and saved[name] != value:
            raise CheckpointError(
                f"the checkpoint belongs to a run with other {name}",
                got=value,
                expected=saved[name],
                fix="go on with the run as it was, or start a new one",
            )
