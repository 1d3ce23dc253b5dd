"""What all rewards share: TRL's calling form, and checks that end in an error a user can mend."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenodds.errors import DataError, RewardError, some
from evenodds.rewards.checks import checked_rewards
from evenodds.rewards.text import completion_text

logger = logging.getLogger(__name__)

MOST_CHECKED = 10_000


class Reward(ABC):
    """A reward with a name and a declared range.

    Args:
        name: For metrics and error messages.
        reward_range: Lowest and highest reward that can occur.
    """

    def __init__(self, name: str, reward_range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.__name__ = name  # TRL names its metrics by it
        self.reward_range = reward_range

    @abstractmethod
    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Score a batch in TRL's form: a completion is a text or a list of messages."""

    def check(  # noqa: B027  (most rewards have nothing to check)
        self, answers: Sequence[str | None], ids: Sequence[str] | None = None
    ) -> None:
        """Refuse reference answers that cannot be graded; call once, before training.

        Args:
            answers: Reference answer of each question.
            ids: Their ids, for the error message.
        """

    def checked(
        self, rewards: Any, completions: Sequence[Any], columns: Mapping[str, Any]
    ) -> list[float]:
        """`checked_rewards` of a batch."""
        return checked_rewards(
            rewards,
            len(completions),
            name=self.__name__,
            reward_range=self.reward_range,
            question_ids=columns.get("question_id"),
        )


class AnswerReward(Reward):
    """Compares each completion with the reference answer in the column `answer`.

    Args:
        name: For metrics and error messages.
        grade: Reward of a completion, given the reference answer.
        fault: What a reference answer should have been; none where it can be graded.
    """

    def __init__(
        self,
        name: str,
        grade: Callable[[str, str], float],
        fault: Callable[[str], str | None],
    ) -> None:
        super().__init__(name)
        self.grade = grade
        self.fault = fault

    def check(self, answers: Sequence[str | None], ids: Sequence[str] | None = None) -> None:
        """Refuse reference answers that cannot be graded; call once, before training.

        Of very many different answers, some that are spread evenly over the pool are looked at.

        Raises:
            DataError: an answer is missing, or the reward cannot grade it.
        """
        names = _names(len(answers), "row", ids)
        self._refuse_missing(answers, names)
        first_rows: dict[str, int] = {}
        for row, answer in enumerate(answers):
            first_rows.setdefault(answer or "", row)
        looked_at = list(first_rows.items())[:: -(-len(first_rows) // MOST_CHECKED) or 1]
        logger.info("checking %d reference answers", len(looked_at))
        faults = [
            (f"{answer!r}"[:200] + f" of {names[row]}", expected)
            for answer, row in looked_at
            if (expected := self.fault(answer))
        ]
        if faults:
            raise DataError(
                f"the {self.__name__} reward cannot grade {len(faults)} of the reference answers",
                got=some(text for text, _ in faults),
                expected=faults[0][1],
                fix="mend or remove these questions, or choose another reward.kind",
            )

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float]:
        """Score a batch in TRL's form.

        Raises:
            RewardError: the batch has no reference answers.
        """
        answers = columns.get("answer")
        if answers is None or None in answers:
            raise self._no_answers(answers, columns)
        rewards = [
            self.grade(completion_text(completion), answer)
            for completion, answer in zip(completions, answers, strict=True)
        ]
        return self.checked(rewards, completions, columns)

    def _no_answers(self, answers: Any, columns: Mapping[str, Any]) -> RewardError:
        got = f"the columns {some(sorted(columns), 20)}"
        if answers is not None:
            names = _names(len(answers), "completion", columns.get("question_id"))
            got = f"none for {names[list(answers).index(None)]}"
        return RewardError(
            f"the {self.__name__} reward needs reference answers",
            got=got,
            expected="the column `answer`, filled for each question",
            fix="set data.answer_column, or score with a function of your own",
        )

    def _refuse_missing(self, answers: Sequence[str | None], names: Sequence[str]) -> None:
        missing = [names[row] for row, answer in enumerate(answers) if answer is None]
        if missing:
            raise DataError(
                f"the {self.__name__} reward compares, but {len(missing)} questions have no answer",
                got=some(missing),
                expected="a reference answer for each question",
                fix="set data.answer_column, or score with a function of your own",
            )


def _names(count: int, kind: str, ids: Sequence[str] | None) -> list[str]:
    """What to call the questions in a message."""
    if ids is None:
        return [f"{kind} {number}" for number in range(1, count + 1)]
    return [f"question {identity}" for identity in ids]
