"""Rows to make questions of, and what is said when that fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenodds.errors import DataError
from evenodds.questions import DataConfig, QuestionPool, load_pool, pool_of_rows

ROWS = [{"question": "What is 1+1?", "answer": "2"}, {"question": "What is 2+3?", "answer": "5"}]


CHAT = [{"role": "user", "content": "What is 1+1?"}]


def gather(rows: list[dict[str, Any]], **settings: Any) -> QuestionPool:
    return pool_of_rows(rows, DataConfig(source="rows", **settings))


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def refusal(source: Path | str, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        load_pool(DataConfig(source=str(source), **settings))
    return str(caught.value)


def refusal_of_rows(rows: list[dict[str, Any]], **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        gather(rows, **settings)
    return str(caught.value)
