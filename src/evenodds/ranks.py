"""Several processes that train one policy: the little that the method needs to share."""

from typing import Protocol, TypeVar, runtime_checkable

T = TypeVar("T")


@runtime_checkable
class Ranks(Protocol):
    """The processes of a run. A host supplies its own; `SingleProcess` is the default.

    Attributes:
        index: This process, 0 <= index < count.
        count: Number of processes.
    """

    index: int
    count: int

    def broadcast(self, value: T) -> T:
        """The `value` of process 0, on every process."""
        ...

    def gather(self, value: T) -> list[T]:
        """The `value` of every process, in order, on every process."""
        ...


class SingleProcess:
    """One process: nothing to share."""

    index = 0
    count = 1

    def broadcast(self, value: T) -> T:
        """The value itself."""
        return value

    def gather(self, value: T) -> list[T]:
        """The value alone."""
        return [value]
