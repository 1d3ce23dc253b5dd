"""From what a cell of a row holds to a prompt or an answer."""

import json
import math
from collections.abc import Mapping
from typing import Any

from evenodds.errors import DataError
from evenodds.questions.prompts import Prompt


def prompt_of(value: Any, number: int) -> Prompt:
    """Text or messages as they are, less keys without a value; a missing question is no text."""
    if _is_null(value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(_is_message(message) for message in value):
        return [{k: v for k, v in message.items() if v is not None} for message in value]
    raise DataError(
        f"the question of row {number} is neither text nor a list of messages",
        got=repr(value)[:200],
        expected='text, or [{"role": "user", "content": "..."}] with text as content',
    )


def asks_nothing(prompt: Prompt) -> bool:
    """Whether neither the user nor the system says anything in it."""
    if isinstance(prompt, str):
        return not prompt.strip()
    return not any(m["content"].strip() for m in prompt if m["role"] in ("system", "user"))


def answer_of(value: Any, number: int) -> str | None:
    """An answer as text; none where it is missing or blank."""
    if _is_null(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"the answer of row {number} is neither text nor a number",
        got=repr(value)[:200],
        expected="one answer as text or number",
        fix="write it as text, or keep it in another column for a reward function of your own",
    )


def ground_truth(reward_model: Any) -> Any:
    """The answer in verl's column `reward_model`, a table or its JSON text."""
    if isinstance(reward_model, str):
        try:
            reward_model = json.loads(reward_model)
        except json.JSONDecodeError:
            return None
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(key), str) for key in ("role", "content")
    )


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
