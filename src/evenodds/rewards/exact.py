"""The exact reward: the answer is right when it is the same text.

Compared are the reference answer and `final_answer` of the completion: the `<answer>` tag, or the
last line (as many lines as the reference answer has). Blanks around an answer and empty lines do
not count; all else does: `07` is not `7`, and `Yes` is not `yes`.
"""

from evenodds.rewards.text import final_answer, num_lines


def grade(completion: str, gold: str) -> float:
    """1 where the completion ends in exactly the reference answer, else 0."""
    return float(_plain(final_answer(completion, num_lines(gold))) == _plain(gold))


def fault(gold: str) -> str | None:
    """What a reference answer should have been: any text that is not blank will do."""
    return None if gold.strip() else "text that is not blank"


def _plain(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
