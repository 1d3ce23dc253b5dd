"""What a predictor has not seen when it is judged: policies, questions, both, or the future."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from evenodds.errors import CheckpointError, DataError
from evenodds.labels import LabelTable
from evenodds.study_config import SplitConfig


@dataclass(frozen=True)
class Split:
    """What is held out, by name.

    Attributes:
        kind: As in `SplitConfig`.
        policies: Policies that are not trained on; empty where all are.
        questions: Ids of the questions that are not trained on; empty where all are.
    """

    kind: str
    policies: tuple[str, ...]
    questions: tuple[str, ...]

    def trains_on_policy(self, labels: LabelTable) -> Bool[np.ndarray, " L"]:
        """Which policies of a table may be trained on."""
        held = set(self.policies)
        return np.array([name not in held for name in labels.policies], dtype=bool)

    def trains_on_question(self, labels: LabelTable) -> Bool[np.ndarray, " N"]:
        """Which questions of a table may be trained on."""
        held = set(self.questions)
        return np.array([name not in held for name in labels.ids], dtype=bool)

    def as_dict(self) -> dict[str, Any]:
        """As JSON-able values, for the file of a predictor."""
        return {
            "kind": self.kind,
            "policies": list(self.policies),
            "questions": list(self.questions),
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Split":
        """Read what `as_dict` gave."""
        try:
            return Split(values["kind"], tuple(values["policies"]), tuple(values["questions"]))
        except (KeyError, TypeError) as error:
            raise CheckpointError(
                "the predictor does not say what it was trained on",
                got=f"{error!r}",
                fix="fit it with `evenodds fit`",
            ) from error


def make_split(labels: LabelTable, config: SplitConfig) -> Split:
    """Draw what is held out; at least one policy or question, and never all.

    Raises:
        DataError: there are too few policies or questions to hold one out.
    """
    generator = np.random.default_rng(config.seed)
    policies: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    if config.holds_policies:
        count = _held(len(labels.policies), config.share, "policy", "policies")
        places = np.arange(len(labels.policies))[-count:]
        if config.kind != "time":
            places = _drawn(len(labels.policies), count, generator)
        policies = tuple(labels.policies[place] for place in places)
    if config.holds_questions:
        count = _held(len(labels), config.share, "question", "questions")
        questions = tuple(labels.ids[place] for place in _drawn(len(labels), count, generator))
    return Split(config.kind, policies, questions)


def _drawn(total: int, count: int, generator: np.random.Generator) -> Int[np.ndarray, " count"]:
    return np.sort(generator.choice(total, size=count, replace=False))


def _held(total: int, share: float, one: str, many: str) -> int:
    if total < 2:
        raise DataError(
            f"no {one} can be held out",
            got=f"labels of {total} {one if total == 1 else many}",
            expected="at least 2, one to train on and one to judge by",
        )
    return min(total - 1, max(1, round(share * total)))
