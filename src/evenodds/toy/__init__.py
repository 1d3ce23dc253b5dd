"""A small world to watch: a tiny language model, and questions it can learn to answer.

Everything comes with the package, so that GRPO runs on a laptop in a few minutes. The README
beside this file says how the world was made and what was measured in it.
"""

from pathlib import Path
from typing import Any

from evenodds.toy.questions import sample

__all__ = ["evaluation", "policy_path", "pool"]


def policy_path() -> Path:
    """Folder of the start policy: weights and tokenizer, for `from_pretrained`."""
    return Path(__file__).parent / "assets"


def pool(size: int = 4096, *, world: str = "main", seed: int = 0) -> list[dict[str, Any]]:
    """Questions to train on.

    Args:
        size: How many.
        world: `main`, where 39 % of the groups of 8 are effective at the start, or `easy`, where
            it is 55 %.
        seed: Another seed gives other questions of the same kind.

    Returns:
        A row a question: `question` (the prompt as it is), `answer` (the exact completion that
        is right), `task` (its kind) and `length` (its number of digits).
    """
    return sample("pool", size, world=world, seed=seed)


def evaluation(size: int = 512, *, world: str = "main", seed: int = 0) -> list[dict[str, Any]]:
    """Questions to measure with: as `pool`, but never one that any pool can hold."""
    return sample("evaluation", size, world=world, seed=seed)
