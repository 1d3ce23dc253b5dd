"""Stage 3. Which questions to probe so that the difficulty of all others can be estimated."""

import numpy as np
from jaxtyping import Int


def draw_references(
    num_questions: int,
    num_references: int,
    generator: np.random.Generator,
    excluded: Int[np.ndarray, " X"] | None = None,
) -> Int[np.ndarray, " K"]:
    """K different questions, each as likely as any other (method, step 1).

    Args:
        num_questions: N, size of the pool.
        num_references: K, how many to draw; at most N, less the excluded.
        generator: Owned and seeded by the caller.
        excluded: Questions that may not be drawn now.

    Returns:
        Rows in the pool, in random order.
    """
    candidates = num_questions
    if excluded is not None:
        candidates = np.setdiff1d(np.arange(num_questions), excluded)
    return generator.choice(candidates, size=num_references, replace=False)
