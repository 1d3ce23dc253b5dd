"""The rows of a source, from the hub or from local files."""

import json
from collections.abc import Iterator
from pathlib import Path

from evenodds.errors import DataError, some
from evenodds.preparation.catalogue import Source
from evenodds.questions import READERS, DataConfig, Row, stored_rows

SAVED = ("dataset_dict.json", "state.json")  # what `save_to_disk` leaves in a folder


def rows_of(source: Source, local: Path | None) -> Iterator[Row]:
    """All rows of a source.

    Args:
        source: Which one.
        local: A file, a folder of files, or a folder of `save_to_disk`; none asks the hub.

    Raises:
        DataError: there is nothing to read, or the hub does not give it.
    """
    if local is None:
        return _hub_rows(source)
    if not local.is_dir() or any((local / name).is_file() for name in SAVED):
        return _local_rows(source, local)
    files = sorted(path for path in local.iterdir() if path.suffix.lower() in READERS)
    if not files:
        raise DataError(
            f"the folder {str(local)!r} holds no questions",
            got=some(sorted(path.name for path in local.iterdir())) or "an empty folder",
            expected=f"files that end in {', '.join(READERS)}",
        )
    return (row for file in files for row in _local_rows(source, file))


def _local_rows(source: Source, path: Path) -> Iterator[Row]:
    if source.name == "orz" and path.suffix.lower() == ".json" and path.is_file():
        yield from _pairs(path)
        return
    if (path / "dataset_dict.json").is_file():
        there = json.loads((path / "dataset_dict.json").read_text(encoding="utf-8"))["splits"]
        splits = [split for split in source.splits if split in there] or there
    else:
        splits = source.splits[:1]
    for split in splits:
        yield from stored_rows(DataConfig(source=str(path.absolute()), split=split))


def _pairs(path: Path) -> Iterator[Row]:
    """The file of Open-Reasoner-Zero: one array of pairs, a question and a reply."""
    try:
        pairs = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path.name} cannot be read", got=error, expected="one JSON array of pairs"
        ) from error
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        if isinstance(pair, list):
            yield {str(place): part for place, part in enumerate(pair)}
        else:
            yield pair if isinstance(pair, dict) else {"": pair}


def _hub_rows(source: Source) -> Iterator[Row]:
    if source.hub is None:
        raise DataError(
            f"no public dataset of {source.title} is known",
            expected=f"a local file with the columns {', '.join(source.columns)}",
            fix=f"evenodds prepare {source.name} --from FILE",
        )
    for split in source.splits:
        config = DataConfig(source=source.hub, subset=source.subset, split=split)
        try:
            yield from stored_rows(config)
        except DataError as error:
            raise DataError(
                f"the hub does not give {source.hub}, split {split}",
                got=str(error.__cause__ or error).splitlines()[0][:300],
                expected="a machine that reaches the hub, or local files",
                fix=f"fetch it elsewhere, and evenodds prepare {source.name} --from FILE_OR_FOLDER",
            ) from error
