"""The rows of one file: JSON, CSV or parquet."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evenodds.errors import DataError
from evenodds.questions.packages import module_of
from evenodds.questions.shapes import Row


def _json_line_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield _json_row(line, f"line {number} of {path.name}")


def _json_rows(path: Path) -> Iterator[Row]:
    """One array of objects, or an object a line."""
    first = next((line.strip() for line in _lines(path) if line.strip()), "")
    if not first.startswith("["):
        yield from _json_line_rows(path)
        return
    values = _json_value("".join(_lines(path)), path.name)
    for number, value in enumerate(values, 1):
        yield _json_object(value, f"element {number} of {path.name}")


def _json_row(text: str, where: str) -> Row:
    return _json_object(_json_value(text, where), where)


def _json_value(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:  # also of a number with too many digits
        raise DataError(
            f"{where} is not JSON",
            got=str(error),
            expected="one JSON object a line, or in a .json file one array of objects",
        ) from error


def _json_object(value: Any, where: str) -> Row:
    if isinstance(value, dict):
        return value
    raise DataError(
        f"{where} is not a JSON object",
        got=repr(value)[:200],
        expected='{"question": "...", "answer": "..."}',
    )


def _csv_rows(path: Path) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)  # Python's own limit is 128 KiB a field
    reader = csv.reader(_lines(path), strict=True)
    try:
        names = next(reader, None)
        for fields in reader:
            if not fields:
                continue
            if names is None or len(fields) != len(names):
                raise csv.Error(f"{len(fields)} fields under {len(names or [])} column names")
            yield dict(zip(names, fields, strict=True))
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num} of {path.name} is not CSV",
            got=error,
            expected="column names in the first line, and as many fields in every row",
            fix='put fields with commas, quotes or line ends in "...", with "" for a quote',
        ) from error


def _parquet_rows(path: Path) -> Iterator[Row]:
    pyarrow = module_of("pyarrow", "pyarrow")
    parquet = module_of("pyarrow.parquet", "pyarrow")
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=4096):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path.name} cannot be read as parquet", got=error, expected="a complete parquet file"
        ) from error


def _lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file, with or without a byte-order mark."""
    offset = 0
    with path.open("rb") as file:
        for line in file:
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise _not_utf8(path, line[: error.start + 1], offset) from error
            yield text.removeprefix("\ufeff") if offset == 0 else text
            offset += len(line)


def _not_utf8(path: Path, until_fault: bytes, offset: int) -> DataError:
    is_utf16 = offset == 0 and until_fault in (b"\xff", b"\xfe")
    return DataError(
        f"{path.name} is not UTF-8 text",
        got=f"byte 0x{until_fault[-1]:02x} at offset {offset + len(until_fault) - 1}",
        expected="UTF-8",
        fix=f"convert it: iconv -f {'UTF-16' if is_utf16 else 'WINDOWS-1252'} -t UTF-8 "
        f"{path.name} > utf8-{path.name}",
    )


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_line_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
}
