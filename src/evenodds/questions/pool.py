"""The questions of a run, column by column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenodds.questions.prompts import Prompt, prompt_text, with_system


@dataclass(frozen=True, eq=False)
class QuestionPool:
    """N different questions; a question is named by its row, 0 <= row < N.

    Attributes:
        ids: 32 hexadecimal digits each; see `question_id`.
        prompts: What is asked, as the source has it.
        answers: Reference answers; none where the source has none.
        extras: Further columns of the source, N values each, handed on to the reward.
        system_prompt: System message put before every prompt.
    """

    ids: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    answers: tuple[str | None, ...]
    extras: Mapping[str, tuple[Any, ...]]
    system_prompt: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def texts(self) -> list[str]:
        """The questions as plain text, for embedding, without the pool's system prompt."""
        return [prompt_text(prompt) for prompt in self.prompts]

    def prompt(self, row: int) -> Prompt:
        """What the policy is asked: messages where there is a system prompt."""
        return with_system(self.prompts[row], self.system_prompt)

    def row(self, row: int) -> dict[str, Any]:
        """A question in the form TRL wants: `prompt`, `answer`, `question_id` and the extras."""
        return {
            "prompt": self.prompt(row),
            "answer": self.answers[row],
            "question_id": self.ids[row],
            **{name: values[row] for name, values in self.extras.items()},
        }

    def rows(self) -> list[dict[str, Any]]:
        """All questions in the form TRL wants."""
        return [self.row(row) for row in range(len(self))]

    def take(self, rows: Sequence[int]) -> "QuestionPool":
        """The pool of these rows, in this order."""
        return QuestionPool(
            ids=tuple(self.ids[row] for row in rows),
            prompts=tuple(self.prompts[row] for row in rows),
            answers=tuple(self.answers[row] for row in rows),
            extras={name: tuple(v[row] for row in rows) for name, v in self.extras.items()},
            system_prompt=self.system_prompt,
        )
