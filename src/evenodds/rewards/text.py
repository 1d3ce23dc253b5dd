"""From what a model wrote to the answer it gave, as text."""

import re
from typing import Any

from evenodds.errors import RewardError

NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
OPENING, CLOSING = "<answer>", "</answer>"


def completion_text(completion: Any) -> str:
    """What the model wrote: the text itself, or the assistant's messages, one after the other.

    Raises:
        RewardError: it is neither text nor a list of messages.
    """
    if isinstance(completion, str):
        return completion
    if not isinstance(completion, list) or not all(isinstance(part, dict) for part in completion):
        raise RewardError(
            "a completion cannot be read",
            got=repr(completion)[:200],
            expected="text, or a list of messages with `role` and `content`",
        )
    spoken = [part for part in completion if part.get("role", "assistant") == "assistant"]
    return "\n".join(_content_text(message.get("content")) for message in spoken)


def final_answer(text: str, num_lines: int = 1) -> str:
    """The answer at the end of a completion, without blanks around it.

    Args:
        text: The completion.
        num_lines: Lines that an answer to this question has.

    Returns:
        What the last `<answer>...</answer>` holds; without one, the last `num_lines` lines that
        are not empty.
    """
    tagged = tagged_answer(text)
    if tagged is not None:
        return tagged
    return "\n".join(_filled_lines(text)[-num_lines:]).strip()


def last_number(text: str) -> str | None:
    """The last number in a text, such as "6" in "the greatest is 6."; none where there is none."""
    found = NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None


def tagged_answer(text: str) -> str | None:
    """What the last `<answer>...</answer>` holds; none where there is no such tag."""
    end = text.rfind(CLOSING)
    start = text.rfind(OPENING, 0, max(end, 0))
    return None if start < 0 else text[start + len(OPENING) : end].strip()


def num_lines(answer: str | None) -> int:
    """Lines of a reference answer that are not empty, at least 1."""
    return max(len(_filled_lines(answer or "")), 1)


def _filled_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
