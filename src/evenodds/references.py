"""Stage 3. Which questions to probe so that the difficulty of all others can be estimated."""

import numpy as np
from jaxtyping import Int


def draw_references(
    num_questions: int, num_references: int, generator: np.random.Generator
) -> Int[np.ndarray, " K"]:
    """K different questions, each as likely as any other (method, step 1).

    Args:
        num_questions: N, size of the pool.
        num_references: K, how many to draw; at most N.
        generator: Owned and seeded by the caller.

    Returns:
        Rows in the pool, in random order.
    """
    assert num_references <= num_questions, (num_references, num_questions)
    return generator.choice(num_questions, size=num_references, replace=False)
