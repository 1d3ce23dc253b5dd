"""Label tables: how often each of several policies solved each question.

A row is one policy's record on one question: `question` (or `question_id`), `policy`, `n_samples`
and `n_correct`. Parquet, CSV or JSON lines; further columns are left alone.
"""

import fnmatch
import functools
import importlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenodds.errors import DataError, some
from evenodds.files import replacing
from evenodds.questions import READERS, DataConfig, load_pool, question_id

logger = logging.getLogger(__name__)

COUNTS = ("n_samples", "n_correct")


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Counts of L policies on N questions.

    Attributes:
        ids: Content id of each question, or the table's own where it has no text.
        texts: The questions; empty where the table has ids only.
        policies: Names, in the order of the table.
        samples_LN: Rollouts; 0 where a policy has no label.
        correct_LN: Those that were right, at most as many.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    policies: tuple[str, ...]
    samples_LN: Int[np.ndarray, "L N"]
    correct_LN: Int[np.ndarray, "L N"]

    def __len__(self) -> int:
        return len(self.ids)

    @functools.cached_property
    def difficulty_LN(self) -> Float[np.ndarray, "L N"]:
        """Failure rates, 1 - n_correct / n_samples; NaN where there is no label."""
        with np.errstate(invalid="ignore"):
            return (
                1.0 - self.correct_LN / np.where(self.samples_LN, self.samples_LN, np.nan)
            ).astype(np.float32)

    def of_policies(self, names: Sequence[str]) -> "LabelTable":
        """The table of these policies, in this order.

        Raises:
            DataError: the table has no such policy.
        """
        unknown = [name for name in names if name not in self.policies]
        if unknown:
            raise DataError(
                "the label table lacks a policy",
                got=some(unknown),
                expected=f"one of {some(self.policies, 10)}",
            )
        rows = [self.policies.index(name) for name in names]
        return LabelTable(
            self.ids, self.texts, tuple(names), self.samples_LN[rows], self.correct_LN[rows]
        )

    def matching(self, patterns: Sequence[str]) -> "LabelTable":
        """The policies whose names fit one of these patterns, such as `step-[0-9]*`.

        Raises:
            DataError: a pattern fits none.
        """
        for pattern in patterns:
            if not fnmatch.filter(self.policies, pattern):
                raise DataError(
                    "no policy of the label table has such a name",
                    got=pattern,
                    expected=f"a name or a pattern of {some(self.policies, 10)}",
                )
        return self.of_policies(
            [name for name in self.policies if any(fnmatch.fnmatchcase(name, p) for p in patterns)]
        )

    def of_questions(self, columns: Int[np.ndarray, " M"]) -> "LabelTable":
        """The table of these questions, in this order; policies without a label stay."""
        return LabelTable(
            tuple(self.ids[column] for column in columns),
            tuple(self.texts[column] for column in columns) if self.texts else (),
            self.policies,
            self.samples_LN[:, columns],
            self.correct_LN[:, columns],
        )

    def aligned(self, ids: Sequence[str]) -> "LabelTable":
        """The labels of these questions, without a label where the table does not know one.

        Args:
            ids: Of a pool, in its order.

        Raises:
            DataError: the table knows none of them.
        """
        place = {name: column for column, name in enumerate(self.ids)}
        columns = np.array([place.get(name, -1) for name in ids])
        if np.all(columns < 0):
            raise DataError(
                "the labels and the pool have no question in common",
                got=f"{len(self.ids)} labelled questions, {len(ids)} in the pool",
                expected="labels of the pool's questions, with the same text",
            )
        known = columns >= 0
        samples = np.where(known, self.samples_LN[:, columns], 0)
        correct = np.where(known, self.correct_LN[:, columns], 0)
        return LabelTable(tuple(ids), (), self.policies, samples, correct)


def read_labels(path: Path) -> LabelTable:
    """Read a label table.

    Raises:
        DataError: the file is missing, lacks a column, or a count is impossible.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None or not path.exists():
        raise DataError(
            "there is no such label table" if reader else "a label table has another form",
            got=path,
            expected=f"a file that ends in {', '.join(READERS)}",
        )
    return table_of_rows(reader(path), path.name)


def check_labels_path(path: Path) -> None:
    """Refuse a path that `extend_labels` could not write or extend.

    Raises:
        DataError: it has another form than .parquet or .jsonl, or is no label table.
    """
    if path.suffix.lower() not in (".parquet", ".jsonl"):
        raise DataError(
            "a label table has another form", got=path, expected="a .parquet or .jsonl file"
        )
    if path.exists():
        read_labels(path)


def extend_labels(path: Path, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Write rows to a label table, atomically; rows it has of other pairs stay.

    Args:
        path: .parquet or .jsonl, there or not.
        rows: With `question_id`, `question` (none where there is no text), `policy`, `n_samples`
            and `n_correct`; each replaces an older one of its policy and question.

    Returns:
        The policies in the table now.
    """
    check_labels_path(path)
    suffix = path.suffix.lower()
    old = list(READERS[suffix](path)) if path.exists() else []
    new = {(row["policy"], row["question_id"]) for row in rows}
    kept = [row for row in old if (str(row["policy"]), _question(row, 1, path.name)[0]) not in new]
    whole = [*kept, *rows]
    with replacing(path) as temporary:
        if suffix == ".jsonl":
            lines = "".join(json.dumps(dict(row)) + "\n" for row in whole)
            temporary.write_text(lines, encoding="utf-8")
        else:
            names = dict.fromkeys(name for row in whole for name in row)
            table = _arrow_table({name: [row.get(name) for row in whole] for name in names})
            importlib.import_module("pyarrow.parquet").write_table(table, temporary)
    return tuple(dict.fromkeys(str(row["policy"]) for row in whole))


def _arrow_table(columns: Mapping[str, list[Any]]) -> Any:
    """Columns as a table of Arrow.

    Raises:
        DataError: pyarrow is not installed.
    """
    try:
        return importlib.import_module("pyarrow").table(dict(columns))
    except ImportError as error:
        raise DataError(
            "a .parquet file needs the package pyarrow", fix="pip install pyarrow, or use .jsonl"
        ) from error


def difficulty_of_one(labels: LabelTable, ids: Sequence[str]) -> Float[np.ndarray, " N"]:
    """Difficulties of these questions for the one policy of a table; NaN where it has none.

    Raises:
        DataError: the table is of several policies, or knows none of the questions.
    """
    if len(labels.policies) != 1:
        raise DataError(
            "labels to start from must be of one policy",
            got=some(labels.policies),
            expected="one policy",
            fix="write the rows of one policy to a table of their own",
        )
    return labels.aligned(ids).difficulty_LN[0]


def read_questions(source: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids and texts of a question pool, or of the questions of a label table.

    Args:
        source: As `data.source`, or a label table.

    Raises:
        DataError: it cannot be read, or a label table has ids only.
    """
    path = Path(source).expanduser()
    reader = READERS.get(path.suffix.lower())
    if reader is not None and path.is_file():
        first = next(iter(reader(path)), {})
        if "policy" in first and "n_samples" in first:
            table = read_labels(path)
            if not table.texts:
                raise DataError("the label table has no text of its questions", got=path)
            return table.ids, table.texts
    pool = load_pool(DataConfig(source=source, answer_column=""))
    return pool.ids, tuple(pool.texts)


def table_of_rows(rows: Iterable[Mapping[str, Any]], name: str = "labels") -> LabelTable:
    """Gather and check rows; counts of the same policy and question add up.

    Args:
        rows: Mappings with `question` or `question_id`, `policy`, `n_samples`, `n_correct`.
        name: For error messages.
    """
    questions: dict[str, int] = {}
    texts: list[str] = []
    policies: dict[str, int] = {}
    cells: dict[tuple[int, int], list[int]] = {}
    num_rows = 0
    for num_rows, row in enumerate(rows, 1):
        if num_rows == 1:
            _check_columns(row, name)
        content, text = _question(row, num_rows, name)
        column = questions.setdefault(content, len(questions))
        if column == len(texts):
            texts.append(text)
        policy = policies.setdefault(str(row["policy"]), len(policies))
        samples, correct = _counts(row, num_rows, name)
        cell = cells.setdefault((policy, column), [0, 0])
        cell[0] += samples
        cell[1] += correct
    if not cells:
        raise DataError("the label table is empty", got=name, expected="at least one row")
    if num_rows > len(cells):
        logger.info(
            "%d rows of %s repeat a policy and a question: added up", num_rows - len(cells), name
        )
    counts = np.zeros((2, len(policies), len(questions)), dtype=np.int64)
    places = np.array(list(cells))
    counts[:, places[:, 0], places[:, 1]] = np.array(list(cells.values())).T
    return LabelTable(
        tuple(questions), tuple(texts) if all(texts) else (), tuple(policies), counts[0], counts[1]
    )


def _check_columns(row: Mapping[str, Any], name: str) -> None:
    missing = [column for column in ("policy", *COUNTS) if column not in row]
    if "question" not in row and "question_id" not in row:
        missing.insert(0, "question")
    if missing:
        raise DataError(
            f"{name} has no column {missing[0]!r}",
            got=f"the columns {some(row, 20)}",
            expected="question (or question_id), policy, n_samples, n_correct",
        )


def _question(row: Mapping[str, Any], number: int, name: str) -> tuple[str, str]:
    """Id and text; the id is that of the text, so that it fits any pool with the question."""
    text = row.get("question")
    if isinstance(text, str) and text.strip():
        return question_id(text), text
    given = row.get("question_id")
    if given is None or str(given) == "":
        raise DataError(f"row {number} of {name} names no question", got=dict(row))
    return str(given), ""


def _counts(row: Mapping[str, Any], number: int, name: str) -> tuple[int, int]:
    counts = []
    for column in COUNTS:
        try:
            count = int(row[column])
            if count != float(row[column]):
                raise ValueError
        except (TypeError, ValueError) as error:
            raise DataError(
                f"row {number} of {name}: {column} is no count",
                got=repr(row[column]),
                expected="a whole number",
            ) from error
        counts.append(count)
    samples, correct = counts
    if not 0 <= correct <= samples or samples == 0:
        raise DataError(
            f"row {number} of {name} has impossible counts",
            got=f"n_samples = {samples}, n_correct = {correct}",
            expected="0 <= n_correct <= n_samples, and n_samples at least 1",
        )
    return samples, correct
