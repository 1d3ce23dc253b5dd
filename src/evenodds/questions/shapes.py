"""The three shapes of a row: which columns hold the question and the answer."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenodds.errors import DataError, some
from evenodds.questions.config import DataConfig

Row = Mapping[str, Any]
"""A question as its source has it: from column to value."""

USUAL_NAMES = {
    "data.question_column": ("question", "problem", "query", "instruction", "input", "prompt"),
    "data.answer_column": ("answer", "solution", "ground_truth", "target", "gold", "label"),
}


@dataclass(frozen=True)
class Shape:
    """The columns that hold the question and the answer."""

    name: str
    question: str
    answer: str | None

    @property
    def columns(self) -> set[str | None]:
        """Both of them."""
        return {self.question, self.answer}


def shape_of(columns: Sequence[str], config: DataConfig) -> Shape:
    """The shape of a source with these columns, which it is made sure to have."""
    name = config.shape if config.shape != "auto" else _shape_name(columns, config)
    if name == "verl":
        shape = Shape("verl", "prompt", "reward_model")
    elif name == "prompt":
        is_default = config.answer_column == "answer" and "answer" not in columns
        shape = Shape("prompt", "prompt", None if is_default else config.answer_column or None)
    else:
        shape = Shape("columns", config.question_column, config.answer_column or None)
    if shape.question not in columns:
        raise _no_column(shape.question, "data.question_column", columns, shape)
    if shape.answer is not None and shape.answer not in columns:
        raise _no_column(shape.answer, "data.answer_column", columns, shape)
    return shape


def _shape_name(columns: Sequence[str], config: DataConfig) -> str:
    if {"prompt", "reward_model"} <= set(columns):
        return "verl"
    has_only_prompt = "prompt" in columns and config.question_column not in columns
    return "prompt" if has_only_prompt else "columns"


def _no_column(column: str, setting_name: str, columns: Sequence[str], shape: Shape) -> DataError:
    near = difflib.get_close_matches(column, columns, n=1) or [
        name for name in USUAL_NAMES[setting_name] if name in columns
    ]
    named_by_user = shape.name == "columns" or setting_name == "data.answer_column"
    fix = f'set {setting_name} = "{near[0]}"' if near and named_by_user else None
    if fix is None and setting_name == "data.answer_column" and shape.name != "verl":
        fix = 'set data.answer_column = "" if there are no reference answers'
    return DataError(
        f"there is no column {column!r}",
        got=f"the columns {some(columns, 20)}",
        expected=f"{some(sorted(filter(None, shape.columns)))} in rows of shape `{shape.name}`",
        fix=fix or "name the right columns, or set data.shape",
    )
