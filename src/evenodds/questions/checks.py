"""Does the pool fit the run: its prompts the policy, its size the batches and processes?"""

import logging
from typing import Any

from evenodds.errors import ConfigError, DataError, some
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


def check_arithmetic(
    num_questions: int,
    *,
    num_references: int,
    group_size: int,
    groups_per_step: int,
    world_size: int,
    selects: bool,
) -> None:
    """Make sure that the pool fills a batch, and that the processes can share it.

    Args:
        num_questions: N.
        num_references: K.
        group_size: G.
        groups_per_step: B, over all processes.
        world_size: Number of processes.
        selects: Whether references are probed; if not, K does not matter.

    Raises:
        ConfigError: what does not fit.
    """
    if groups_per_step > num_questions:
        raise ConfigError(
            "a batch has more groups than there are questions",
            got=f"{groups_per_step} groups a step, {num_questions} questions",
            expected="at most as many groups as questions",
            fix="use smaller batches, larger groups, or more questions",
        )
    if groups_per_step < 2 * world_size:
        raise ConfigError(
            "a process gets fewer than 2 groups of a batch",
            got=f"{groups_per_step} groups a step, {world_size} processes",
            expected=f"at least {2 * world_size} groups a step",
            fix="use larger batches, smaller groups, or fewer processes",
        )
    _check_share("a batch", groups_per_step, group_size, world_size)
    if not selects:
        return
    if num_references > num_questions:
        raise ConfigError(
            "there are more references than questions",
            got=f"efficiency.num_references = {num_references}, {num_questions} questions",
            expected=f"at most {num_questions}",
            fix="probe fewer references, or add questions",
        )
    _check_share("the reference set", num_references, group_size, world_size)


def _check_share(what: str, groups: int, group_size: int, world_size: int) -> None:
    spare = groups % world_size
    if spare:
        nearest = [n for n in (groups - spare, groups - spare + world_size) if n]
        raise ConfigError(
            f"the processes cannot share {what} in whole groups",
            got=f"{groups} groups x {group_size} rollouts = {groups * group_size} rows, "
            f"{world_size} processes",
            expected="a number of groups that the number of processes divides",
            fix=f"use {' or '.join(map(str, nearest))} groups",
        )
