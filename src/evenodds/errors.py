"""Errors that a person can act on: what was wrong, what was expected, and how to mend it."""

from collections.abc import Iterable


class EvenoddsError(ValueError):
    """A mistake in what the user gave. Bugs of our own are `assert`ions instead.

    Args:
        what: One sentence naming the thing that is wrong.
        got: The offending value, as found.
        expected: What would have been accepted.
        fix: What to type or change.
    """

    def __init__(
        self, what: str, *, got: object = None, expected: str | None = None, fix: str | None = None
    ) -> None:
        parts = [what.rstrip(".")]
        if got is not None:
            parts.append(f"  got:      {got}")
        if expected is not None:
            parts.append(f"  expected: {expected}")
        if fix is not None:
            parts.append(f"  to mend:  {fix}")
        super().__init__("\n".join(parts))


class ConfigError(EvenoddsError):
    """A setting has a wrong name, type or value, or two settings contradict each other."""


class DataError(EvenoddsError):
    """A question pool, a label table or an embedding file cannot be used as it is."""


class RewardError(EvenoddsError):
    """A reward is missing, not a number, or outside its declared range."""


class CheckpointError(EvenoddsError):
    """A saved state is incomplete, damaged, or belongs to another run."""


class HostError(EvenoddsError):
    """The host framework lacks a seam that evenodds holds on to, or is set up against it."""


def some(items: Iterable[object], limit: int = 5) -> str:
    """The first `limit` of `items` as text, with the number left out."""
    listed = list(items)
    text = ", ".join(str(item) for item in listed[:limit])
    return text if len(listed) <= limit else f"{text}, ... ({len(listed)} in all)"
