r"""The multiple-choice reward: one letter from A to J.

The letter is looked for in four places, the surest first, and the last one found there counts:
`\boxed{C}`, `the answer is C` or `Answer: C`, `(C)`, and a capital letter that stands alone. Where
there is an `<answer>` tag, only what it holds is read. The article "A" and the pronoun "I" are
not taken for letters.
"""

import re

from evenodds.rewards.text import tagged_answer

NUM_CHARACTERS = 20_000
"""Characters at the end of a completion that are read."""

# A capital that is no part of a word; "A" and "I" only where no sentence goes on with them.
LETTER = r"(?<![\w'’])([B-HJ]|[AI](?!\s{1,3}(?!(?:is|and|or|because)\b)[a-z]))(?![\w'’])"
BOXED = re.compile(
    r"\\boxed\s{0,3}\{\s{0,3}(?:\\(?:text|textbf|mathrm|mathbf)\s?\{)?[\s$(]{0,4}"
    r"([A-J](?![\w+*/^=-])|[a-j](?=\s{0,3}[)}.]))"
)
STATED = re.compile(
    r"(?i:answer(?:\s{1,3}is)?)[\s*_:]{0,9}(?i:(?:option|choice)\s{1,3})?"
    r"(?:\\text\{|[\s*_$(\[{]){0,5}" + LETTER
)
BRACKETED = re.compile(r"\(\s{0,3}([A-J])\s{0,3}\)")
ALONE = re.compile(LETTER)


def chosen_letter(completion: str) -> str | None:
    """The letter that a completion chooses, or none."""
    text = completion[-NUM_CHARACTERS:]
    text = tagged_answer(text) or text
    for pattern in (BOXED, STATED, BRACKETED, ALONE):
        letters = pattern.findall(text)
        if letters:
            return letters[-1].upper()
    return None


def grade(completion: str, gold: str) -> float:
    """1 where the completion chooses the letter of the reference answer, else 0."""
    return float(chosen_letter(completion) == gold.strip())


def fault(gold: str) -> str | None:
    """What a reference answer should have been: a capital letter from A to J."""
    return None if re.fullmatch("[A-J]", gold.strip()) else "one capital letter from A to J"
