"""The host's training set as a pool of different questions."""

import hashlib
import json
import logging
from typing import Any

from datasets import Dataset

from evenodds.errors import DataError
from evenodds.questions import Prompt, prompt_text, question_id

logger = logging.getLogger(__name__)


class DatasetQuestions:
    """Rows of a dataset by question; exact duplicates count once.

    Args:
        dataset: A `datasets.Dataset`, or a stream, whose questions are numbered as they come.
        column: That holds the prompt.
    """

    def __init__(self, dataset: Any, column: str = "prompt") -> None:
        self._column = column
        self._dataset = dataset if isinstance(dataset, Dataset) else None
        self._ids: list[str] = []
        self._rows: list[int] = []  # first row of each question in the dataset
        self._named: set[str] = set()
        self._number: dict[str, int] = {}  # by content of the whole row
        self._by_prompt: dict[str, int] = {}  # made when it is asked for
        if self._dataset is not None:
            self._index()

    def __len__(self) -> int:
        return len(self._ids)

    def row(self, question: int) -> dict[str, Any]:
        """The dataset's row of a question."""
        assert self._dataset is not None
        return self._dataset[self._rows[question]]

    def row_number(self, question: int) -> int:
        """Where the question first stands in the dataset."""
        return self._rows[question]

    def number_of_prompt(self, prompt: Prompt) -> int:
        """The question with this prompt; the first, if several differ in other columns.

        Raises:
            DataError: the dataset has no such prompt.
        """
        if not self._by_prompt:
            for number, row in enumerate(self._rows):
                assert self._dataset is not None
                self._by_prompt.setdefault(question_id(self._dataset[row][self._column]), number)
        name = question_id(prompt)
        if name not in self._by_prompt:
            raise DataError("a prompt is not in the training set", got=prompt_text(prompt)[:80])
        return self._by_prompt[name]

    def id_of(self, question: int) -> str:
        """Content id of a question."""
        return self._ids[question]

    @property
    def ids(self) -> list[str]:
        """Content ids, in order."""
        return list(self._ids)

    @property
    def digest(self) -> str | None:
        """Hash of all ids in their order; none where the host reads a stream."""
        if self._dataset is None:
            return None
        return hashlib.blake2b("\n".join(self._ids).encode(), digest_size=8).hexdigest()

    def number_of(self, row: dict[str, Any]) -> int:
        """The question of a row that the host chose."""
        return self._add(row, number=-1)

    @property
    def texts(self) -> list[str]:
        """Each question as plain text, for embedding; system messages say nothing about it."""
        assert self._dataset is not None
        prompts = self._dataset[self._column]
        return [prompt_text(_without_system(prompts[row])) for row in self._rows]

    def _index(self) -> None:
        assert self._dataset is not None
        if self._column not in self._dataset.column_names:
            raise DataError(
                "the training set has no prompts",
                got=f"columns {', '.join(self._dataset.column_names)}",
                expected=f"a column `{self._column}`: text, or a list of messages",
                fix=f'dataset.rename_column("question", "{self._column}")',
            )
        for number, row in enumerate(self._dataset):
            self._add(dict(row), number)
        if merged := len(self._dataset) - len(self):
            logger.info("%d duplicate rows were merged; %d questions", merged, len(self))

    def _add(self, row: dict[str, Any], number: int) -> int:
        """The question of a row; a new one where neither it nor its other columns were seen."""
        content = _digest(row)
        if content not in self._number:
            name = row.get("question_id")
            name = name if isinstance(name, str) else question_id(row[self._column])
            if name in self._named:  # the same prompt with other columns
                name = f"{name}-{content[:8]}"
            self._named.add(name)
            self._number[content] = len(self._ids)
            self._ids.append(name)
            self._rows.append(number)
        return self._number[content]


def _without_system(prompt: Prompt) -> Prompt:
    if isinstance(prompt, str):
        return prompt
    return [message for message in prompt if message["role"] != "system"] or prompt


def _digest(row: dict[str, Any]) -> str:
    text = json.dumps(row, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
