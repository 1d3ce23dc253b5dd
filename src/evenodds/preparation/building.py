"""From rows to the question file of a recipe: filtered, counted, drawn, written at once."""

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenodds.errors import DataError, some
from evenodds.files import replacing, write_text
from evenodds.preparation.catalogue import Source, source_of_name
from evenodds.preparation.reading import rows_of
from evenodds.questions import (
    DataConfig,
    QuestionPool,
    Row,
    drawn_rows,
    pool_of_rows,
    prompt_text,
    question_id,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedPool:
    """What was written, and what became of the rows.

    Attributes:
        path: The file: JSON lines with `id`, `question` and `answer`.
        num_rows: Rows read.
        num_filtered: Rows that the source's filter left out.
        num_excluded: Rows left out because they are held out.
        num_conflicting: Rows left out because their question has several answers.
        num_merged: Rows that repeat a question and its answer.
        num_questions: Questions written.
    """

    path: Path
    num_rows: int
    num_filtered: int
    num_excluded: int
    num_conflicting: int
    num_merged: int
    num_questions: int


def prepare_pool(
    name: str,
    folder: Path,
    *,
    local: Path | None = None,
    exclude: Path | None = None,
    any_size: bool = False,
    drop_conflicts: bool = False,
    seed: int = 0,
    verl: bool = False,
) -> PreparedPool:
    """Write the questions of a source to `folder/NAME.jsonl`.

    Args:
        name: Of the source.
        folder: Made where it does not exist.
        local: File or folder to read in place of the hub.
        exclude: File with the questions that must not be in it; for `math`, MATH500.
        any_size: Take any number of rows and questions.
        drop_conflicts: Leave questions with several answers out instead of refusing them.
        seed: Of the draw, where the paper takes a part of the source.
        verl: Write `NAME.verl.parquet` besides, in the columns that verl reads.

    Raises:
        DataError: rows cannot be read or used, or there are more or fewer than there should be.
    """
    source = source_of_name(name)
    rows = list(_checked(source, rows_of(source, local)))
    if not rows:
        raise DataError("there are no questions", got=f"{local or source.hub} is empty")
    _check_rows(source, len(rows), any_size)
    asked = [question for row in rows if (question := source.question(row)) is not None]
    kept = _without_held_out(source, asked, local, exclude, any_size)
    usable = _without_conflicts(kept) if drop_conflicts else kept
    pool = pool_of_rows(usable, DataConfig(source=name, shape="columns"))
    merged = len(usable) - len(pool)
    if source.size is not None and (len(pool) >= source.size or not any_size):
        pool = _drawn(source, pool, seed)
    path = folder / f"{name}.jsonl"
    write_text(path, "".join(_line(pool, row) for row in range(len(pool))))
    if verl:
        _write_verl(folder / f"{name}.verl.parquet", pool, source)
    return PreparedPool(
        path=path,
        num_rows=len(rows),
        num_filtered=len(rows) - len(asked),
        num_excluded=len(asked) - len(kept),
        num_conflicting=len(kept) - len(usable),
        num_merged=merged,
        num_questions=len(pool),
    )


def _checked(source: Source, rows: Iterable[Row]) -> Iterator[Row]:
    """The rows, each with all columns."""
    for number, row in enumerate(rows, 1):
        if lacking := [column for column in source.columns if column not in row]:
            raise DataError(
                f"row {number} has no column {lacking[0]!r}",
                got=f"the columns {some(row, 20)}",
                expected=f"{', '.join(source.columns)}, as in {source.hub or source.title}",
                fix="rename the columns, or pass the file as the hub has it",
            )
        yield row


def _check_rows(source: Source, count: int, any_size: bool) -> None:
    if source.rows is None or any_size:
        return
    if abs(count - source.rows) > source.tolerance * source.rows:
        about = (
            f"{source.rows:,} rows"
            if not source.tolerance
            else (f"{source.rows:,} rows, give or take {source.tolerance:.0%}")
        )
        raise DataError(
            f"this is not all of {source.title}, or more than that",
            got=f"{count:,} rows",
            expected=about,
            fix="pass all splits (a folder of files is read whole), or --any-size to take it as "
            "it is",
        )


def _without_held_out(
    source: Source, rows: list[Row], local: Path | None, exclude: Path | None, any_size: bool
) -> list[Row]:
    """The rows less those whose question is held out, which all have to be found."""
    if exclude is None and (source.without is None or any_size):
        return rows
    if exclude is None and local is not None:
        raise DataError(
            f"{source.title} is to be without the questions of {source.without}",
            got="local files, and no file of those",
            fix=f"evenodds prepare {source.without} first, then --exclude "
            f"data/{source.without}.jsonl; or --any-size to keep them",
        )
    held_out = {_plain(row) for row in _held_out_rows(source, exclude)}
    kept = [row for row in rows if _plain(row) not in held_out]
    logger.info("%d rows are held out", len(rows) - len(kept))
    if len(kept) == len(rows) and not any_size:
        raise DataError(
            "no question is held out",
            got=f"{len(held_out)} questions in {exclude or source.without}, none of them here",
            expected=f"some questions of {source.title}",
            fix="name another file with --exclude, or --any-size to go on",
        )
    return kept


def _held_out_rows(source: Source, exclude: Path | None) -> Iterator[Row]:
    if exclude is None:
        other = source_of_name(str(source.without))
        rows = rows_of(other, None)
    else:
        other = source
        rows = rows_of(other, exclude)
    for row in rows:
        name = next((column for column in ("question", "problem") if column in row), None)
        if name is None:
            raise DataError(
                "the file of --exclude has no questions",
                got=f"the columns {some(row, 20)}",
                expected="question or problem",
            )
        yield {"question": row[name]}


def _plain(row: Row) -> str:
    """A question less its white space, which copies of one dataset differ in."""
    return "".join(str(row["question"]).split())


def _without_conflicts(rows: list[Row]) -> list[Row]:
    answers: dict[str, set[str]] = {}
    for row in rows:
        answers.setdefault(question_id(str(row["question"])), set()).add(str(row["answer"]).strip())
    return [row for row in rows if len(answers[question_id(str(row["question"]))]) == 1]


def _drawn(source: Source, pool: QuestionPool, seed: int) -> QuestionPool:
    assert source.size is not None
    if len(pool) < source.size:
        raise DataError(
            f"{source.title} has too few different questions",
            got=f"{len(pool):,} questions",
            expected=f"at least the {source.size:,} that the paper draws",
            fix="pass the whole source, or --any-size to take what there is",
        )
    return pool.take(drawn_rows(pool.ids, source.size, seed))


def _line(pool: QuestionPool, row: int) -> str:
    record = {
        "id": pool.ids[row],
        "question": prompt_text(pool.prompts[row]),
        "answer": pool.answers[row],
    }
    return json.dumps(record, ensure_ascii=False) + "\n"


def _write_verl(path: Path, pool: QuestionPool, source: Source) -> None:
    """The columns that verl reads; no system message, which a config sets."""
    from evenodds.questions.packages import module_of

    pyarrow = module_of("pyarrow", "pyarrow")
    parquet = module_of("pyarrow.parquet", "pyarrow")
    rows: list[dict[str, Any]] = []
    for place in range(len(pool)):
        text, answer = prompt_text(pool.prompts[place]), pool.answers[place]
        extra = {"index": place, "question": text, "answer": answer, "split": "train"}
        rows.append(
            {
                "data_source": source.name,
                "prompt": [{"role": "user", "content": text}],
                "ability": "science" if source.name in ("scp25k", "mmlu-science") else "math",
                "reward_model": {"ground_truth": answer, "style": "rule"},
                "extra_info": extra,
            }
        )
    with replacing(path) as temporary:
        parquet.write_table(pyarrow.Table.from_pylist(rows), temporary)
