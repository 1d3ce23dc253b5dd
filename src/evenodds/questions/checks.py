"""Do the prompts fit the policy?"""

import logging
from typing import Any

from evenodds.errors import DataError, some
from evenodds.questions.pool import QuestionPool

logger = logging.getLogger(__name__)


def check_prompt_lengths(
    pool: QuestionPool, tokenizer: Any, max_prompt_tokens: int, *, drop_long: bool = False
) -> QuestionPool:
    """Make sure that no prompt is too long.

    Args:
        pool: The questions.
        tokenizer: Of the policy; messages go through its chat template.
        max_prompt_tokens: Longest prompt, the opening of the reply included.
        drop_long: Leave longer ones out instead of refusing them.

    Returns:
        The pool, or what is left of it.

    Raises:
        DataError: prompts are too long, all of them where they are dropped; or the chat template
            refuses a prompt.
    """
    lengths = [_num_tokens(pool, row, tokenizer) for row in range(len(pool))]
    fitting = [row for row, length in enumerate(lengths) if length <= max_prompt_tokens]
    num_long = len(pool) - len(fitting)
    if not num_long:
        return pool
    if drop_long and fitting:
        logger.warning("%d prompts over %d tokens are dropped", num_long, max_prompt_tokens)
        return pool.take(fitting)
    too_long = (pool.ids[row] for row, n in enumerate(lengths) if n > max_prompt_tokens)
    raise DataError(
        f"{num_long} of {len(pool)} prompts are too long",
        got=f"up to {max(lengths)} tokens: questions {some(too_long)}",
        expected=f"at most {max_prompt_tokens} tokens",
        fix=f"set data.max_prompt_tokens = {max(lengths)}"
        + (", or data.drop_long = true" if fitting else ""),
    )


def _num_tokens(pool: QuestionPool, row: int, tokenizer: Any) -> int:
    prompt = pool.prompt(row)
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    try:
        tokens = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
    except Exception as error:  # of the template, which is a program of its own
        raise DataError(
            f"the chat template of the tokenizer refuses question {pool.ids[row]}",
            got=f"{type(error).__name__}: {error}",
            fix="use a model with a chat template for messages, or plain text and no system prompt",
        ) from error
    return len(tokens["input_ids"])
