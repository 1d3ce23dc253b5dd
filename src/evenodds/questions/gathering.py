"""From rows to a pool: each row is checked, and true duplicates are merged."""

import itertools
import logging
from collections.abc import Iterable
from typing import Any

from evenodds.errors import DataError, some
from evenodds.questions.cells import answer_of, asks_nothing, ground_truth, prompt_of
from evenodds.questions.config import DataConfig
from evenodds.questions.pool import QuestionPool
from evenodds.questions.prompts import Prompt, question_id
from evenodds.questions.shapes import Row, Shape, shape_of

logger = logging.getLogger(__name__)


RESERVED = {
    "answer",
    "completion",
    "completion_ids",
    "completions",
    "environments",
    "log_extra",
    "log_metric",
    "prompt",
    "prompts",
    "question_id",
    "trainer_state",
}
"""Names that TRL or evenodds give columns of their own."""


def pool_of_rows(
    rows: Iterable[Row], config: DataConfig, *, answers_may_lack: bool = False
) -> QuestionPool:
    """Check the rows and merge true duplicates.

    Args:
        rows: Each a mapping from column to value; the first one shows the shape.
        config: Columns and shape. `limit` is not looked at.
        answers_may_lack: Whether a row may be without an answer though there is a column.

    Raises:
        DataError: no rows, a missing column, rows without question or answer, prompts that are
            not messages, or one question with two answers.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        raise DataError(
            "there are no questions", got=f"{config.source} is empty", expected="at least one row"
        )
    gathering = _Gathering(shape_of(list(first), config), answers_may_lack)
    for number, row in enumerate(itertools.chain([first], rows), 1):
        gathering.add(number, row)
    return gathering.pool(config.system_prompt)


class _Gathering:
    """A pool while it is gathered, row by row. Rows are numbered from 1, as messages name them."""

    def __init__(self, shape: Shape, answers_may_lack: bool) -> None:
        self.shape = shape
        self.answers_may_lack = answers_may_lack
        self.places: dict[str, int] = {}  # id -> row in the pool
        self.numbers: list[int] = []  # of the row that had the question first
        self.prompts: list[Prompt] = []
        self.answers: list[str | None] = []
        self.extras: dict[str, list[Any]] = {}
        self.lacking: dict[str, list[int]] = {}  # column -> numbers of rows
        self.conflicts: list[str] = []
        self.num_merged = 0

    def add(self, number: int, row: Row) -> None:
        """Take in one row; what can be wrong with many rows is kept for one error in the end."""
        prompt = prompt_of(row.get(self.shape.question), number)
        answer = self._answer(row, number)
        if asks_nothing(prompt):
            self.lacking.setdefault(self.shape.question, []).append(number)
        elif answer is None and self.shape.answer and not self.answers_may_lack:
            name = "reward_model.ground_truth" if self.shape.name == "verl" else self.shape.answer
            self.lacking.setdefault(name, []).append(number)
        else:
            self._place(number, row, prompt, answer)

    def _answer(self, row: Row, number: int) -> str | None:
        if self.shape.answer is None:
            return None
        value = row.get(self.shape.answer)
        return answer_of(ground_truth(value) if self.shape.name == "verl" else value, number)

    def _place(self, number: int, row: Row, prompt: Prompt, answer: str | None) -> None:
        identity = _checked_id(prompt, number)
        place = self.places.setdefault(identity, len(self.places))
        if place == len(self.prompts):
            self.numbers.append(number)
            self.prompts.append(prompt)
            self.answers.append(answer)
            self._keep_extras(row)
        elif (self.answers[place] or "").strip() == (answer or "").strip():
            self.num_merged += 1
        else:
            self.conflicts.append(
                f"question {identity}: {self.answers[place]!r} in row {self.numbers[place]}, "
                f"{answer!r} in row {number}"
            )

    def _keep_extras(self, row: Row) -> None:
        before = len(self.prompts) - 1
        for name, value in row.items():
            if name in self.shape.columns:
                continue
            if name not in self.extras:
                self.extras[name] = [None] * before
            self.extras[name].append(value)
        for name in self.extras.keys() - row.keys():
            self.extras[name].append(None)

    def pool(self, system_prompt: str | None) -> QuestionPool:
        """The pool, unless there was something wrong with its rows."""
        if self.lacking:
            column, numbers = next(iter(self.lacking.items()))
            raise DataError(
                f"{column} is empty in {len(numbers)} of the rows",
                got=f"rows {some(numbers, 10)}, counted from 1",
                expected="a question and an answer in every row",
                fix="fill them in or remove these rows",
            )
        if self.conflicts:
            raise DataError(
                f"{len(self.conflicts)} rows give a question another answer than before",
                got=some(self.conflicts),
                expected="one answer for a question",
                fix="remove the rows with the wrong answer; rows are counted from 1",
            )
        if len({type(prompt) for prompt in self.prompts}) > 1:
            raise DataError(
                "some prompts are text and some are messages",
                got=f"text in {sum(isinstance(prompt, str) for prompt in self.prompts)} of "
                f"{len(self.prompts)} questions",
                expected="the same form in all rows",
            )
        if self.num_merged:
            logger.warning("%d rows repeat a question and its answer: merged", self.num_merged)
        reserved = sorted(RESERVED & self.extras.keys())
        if reserved:
            logger.info("columns that the trainer needs the name of are left out: %s", reserved)
        return QuestionPool(
            ids=tuple(self.places),
            prompts=tuple(self.prompts),
            answers=tuple(self.answers),
            extras={name: tuple(v) for name, v in self.extras.items() if name not in RESERVED},
            system_prompt=system_prompt,
        )


def _checked_id(prompt: Prompt, number: int) -> str:
    try:
        return question_id(prompt)
    except (UnicodeEncodeError, TypeError) as error:
        raise DataError(
            f"the question of row {number} is not text", got=str(error), expected="valid Unicode"
        ) from error
