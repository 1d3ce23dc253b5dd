"""Question sets to measure with: by name from the hub, or a file. Free of torch."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenodds.config import unknown_key
from evenodds.errors import DataError, some
from evenodds.questions import (
    READERS,
    USUAL_NAMES,
    DataConfig,
    QuestionPool,
    load_pool,
    pool_of_rows,
)
from evenodds.questions.sources import stored_rows

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."


@dataclass(frozen=True)
class Benchmark:
    """Where a benchmark lies, and which columns and reward it has."""

    source: str
    subset: str | None
    split: str
    question: str = "question"
    answer: str = "answer"
    reward: str = "math"


BENCHMARKS = {
    "gsm8k": Benchmark("openai/gsm8k", "main", "test"),
    "math500": Benchmark("HuggingFaceH4/MATH-500", None, "test", question="problem"),
    "minerva": Benchmark("math-ai/minervamath", None, "test"),
    "olympiadbench": Benchmark(
        "Hothan/OlympiadBench", "OE_TO_maths_en_COMP", "train", answer="final_answer"
    ),
    "toy": Benchmark("toy", None, "test", reward="exact"),
}
"""The paper's four, and the embedded world's held-out questions."""


def load_benchmark(name: str, **changes: Any) -> tuple[QuestionPool, str]:
    """The questions of a benchmark and the kind of reward that scores them.

    Args:
        name: Of `BENCHMARKS`, or a file.
        changes: Of `DataConfig`: columns, `limit`, `seed`, `system_prompt`.

    Raises:
        ConfigError: there is no such benchmark.
        DataError: it cannot be read, lacks a column, or repeats an id.
    """
    path = Path(name).expanduser()
    if path.suffix.lower() in READERS:
        pool = load_pool(file_config(name, **changes))
        _refuse_repeated_ids(pool, name)
        return pool, "math"
    if name not in BENCHMARKS:
        raise unknown_key(name, list(BENCHMARKS), kind="benchmark (no file either)")
    made = BENCHMARKS[name]
    config = DataConfig(
        source=made.source,
        subset=made.subset,
        split=made.split,
        question_column=made.question,
        answer_column=made.answer,
        shape="columns",
        **{k: v for k, v in changes.items() if k not in ("question_column", "answer_column")},
    )
    if name == "toy":
        return load_pool(config.replace(system_prompt=None)), made.reward
    if name == "olympiadbench":
        return _olympiad(config), made.reward
    try:
        return load_pool(config), made.reward
    except DataError as error:
        raise _not_from_hub(name, made, error) from error


def file_config(name: str, **changes: Any) -> DataConfig:
    """How to read a file of questions; columns that are not named are looked for by usual names."""
    config = DataConfig(source=name, **changes)
    first = next(iter(stored_rows(config)), {})
    if "prompt" in first and "question" not in first:
        return config
    for setting, names in USUAL_NAMES.items():
        column = setting.removeprefix("data.")
        found = [usual for usual in names if usual in first]
        if column not in changes and found:
            config = config.replace(**{column: found[0]})
    return config


def _olympiad(config: DataConfig) -> QuestionPool:
    """Its answers are lists."""
    try:
        rows = [
            {"question": row["question"], "answer": ", ".join(row["final_answer"])}
            for row in stored_rows(config)
        ]
    except DataError as error:
        raise _not_from_hub("olympiadbench", BENCHMARKS["olympiadbench"], error) from error
    pool = pool_of_rows(rows, config.replace(answer_column="answer"))
    limit = config.limit
    return pool if limit is None else pool.take(range(min(limit, len(pool))))


def _not_from_hub(name: str, made: Benchmark, error: DataError) -> DataError:
    return DataError(
        f"the benchmark {name} cannot be had from the hub",
        got=" ".join(str(error).split())[:300],
        expected=f"the dataset {made.source}, split {made.split}",
        fix="download it elsewhere, and name the file: --benchmarks questions.jsonl",
    )


def _refuse_repeated_ids(pool: QuestionPool, name: str) -> None:
    given = pool.extras.get("id", ())
    repeated = [key for key, count in Counter(given).items() if count > 1 and key is not None]
    if repeated:
        raise DataError(
            f"{name} gives several questions one id",
            got=some(repeated),
            expected="an id of its own for each question",
            fix="mend the column `id`, or leave it out",
        )
