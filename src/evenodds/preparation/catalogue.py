"""What each source is: where it lies, which columns it has, and how many rows and questions."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evenodds.config import unknown_key
from evenodds.preparation.rows import (
    chosen_of_mmlu,
    chosen_of_scp,
    graded,
    solved_gsm8k,
    solved_math,
    talk_of_orz,
)
from evenodds.questions import Row


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where questions come from, and what there has to be.

    Attributes:
        name: As `evenodds prepare` takes it, and of the file that it writes.
        title: For people to read.
        hub: Dataset on the Hugging Face hub; none where no public one is known.
        subset: Configuration of it.
        splits: Splits of it, all read one after the other.
        columns: That every row must have.
        question: From a row to `question` and `answer`; none leaves the row out.
        rows: Rows of the whole source.
        tolerance: Share by which they may differ: the paper gives some sizes in thousands.
        size: Questions to draw; none takes all.
        without: Name of the source whose questions must not be in this one.
    """

    name: str
    title: str
    hub: str | None
    subset: str | None = None
    splits: tuple[str, ...] = ("train",)
    columns: tuple[str, ...]
    question: Callable[[Row], Row | None]
    rows: int | None = None
    tolerance: float = 0.0
    size: int | None = None
    without: str | None = None

    @property
    def most(self) -> int | None:
        """Questions that its file has at most, before duplicates are merged."""
        return self.size or self.rows


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="math",
            title="MATH, levels 3 to 5",
            hub="DigitalLearningGmbH/MATH-lighteval",
            splits=("train", "test"),
            columns=("problem", "level", "solution"),
            question=solved_math,
            rows=12_500,
            without="math500",
        ),
        Source(
            name="deepscaler",
            title="DeepScaleR-Preview",
            hub="agentica-org/DeepScaleR-Preview-Dataset",
            columns=("problem", "answer"),
            question=graded("problem", "answer"),
            rows=40_000,
            tolerance=0.02,
            size=10_240,
        ),
        Source(
            name="orz",
            title="Open-Reasoner-Zero, 57k collected",
            hub="Open-Reasoner-Zero/orz_math_57k_collected",
            columns=("0", "1"),
            question=talk_of_orz,
            rows=57_000,
            tolerance=0.02,
            size=8_192,
        ),
        Source(
            name="deepmath",
            title="DeepMath-103K",
            hub="zwhe99/DeepMath-103K",
            columns=("question", "final_answer"),
            question=graded("question", "final_answer"),
            rows=103_000,
            tolerance=0.02,
            size=8_192,
        ),
        Source(
            name="scp25k",
            title="SCP-25K, multiple choice",
            hub=None,
            columns=("question", "answer"),
            question=chosen_of_scp,
            rows=25_000,
            tolerance=0.02,
        ),
        Source(
            name="gsm8k",
            title="GSM8K, test",
            hub="openai/gsm8k",
            subset="main",
            splits=("test",),
            columns=("question", "answer"),
            question=solved_gsm8k,
            rows=1_319,
        ),
        Source(
            name="math500",
            title="MATH500",
            hub="HuggingFaceH4/MATH-500",
            splits=("test",),
            columns=("problem", "answer"),
            question=graded("problem", "answer"),
            rows=500,
        ),
        Source(
            name="minerva",
            title="Minerva Math",
            hub="math-ai/minervamath",
            splits=("test",),
            columns=("question", "answer"),
            question=graded("question", "answer"),
            rows=272,
        ),
        Source(
            name="mmlu-science",
            title="MMLU: physics, chemistry, biology",
            hub="cais/mmlu",
            subset="all",
            splits=("test",),
            columns=("question", "choices", "answer", "subject"),
            question=chosen_of_mmlu,
        ),
    )
}


def source_of_name(name: str) -> Source:
    """The source of this name.

    Raises:
        ConfigError: there is none; the nearest one is named.
    """
    if name not in SOURCES:
        raise unknown_key(name, list(SOURCES), kind="source of questions")
    return SOURCES[name]


def source_of_file(path: str) -> Source | None:
    """The source whose file this is by its name; none for other files."""
    return SOURCES.get(Path(path).stem) if Path(path).suffix == ".jsonl" else None
