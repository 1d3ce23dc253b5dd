"""The rows of a stored source: a file, a folder of `save_to_disk`, or a dataset on the hub."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from evenodds.errors import DataError, some
from evenodds.questions.config import DataConfig
from evenodds.questions.files import READERS
from evenodds.questions.generators import GENERATORS
from evenodds.questions.packages import module_of
from evenodds.questions.shapes import Row


def stored_rows(config: DataConfig) -> Iterator[Row]:
    """The rows of `config.source`: what lies on disk, or else what the hub has by that name.

    Raises:
        DataError: it is neither, or it cannot be read.
        ConfigError: the package that reads it is not installed.
    """
    path = Path(config.source).expanduser()
    if path.is_dir():
        return _saved_rows(path, config)
    suffix = path.suffix.lower()
    if suffix in READERS and path.is_file():
        return READERS[suffix](path)
    if path.exists():
        raise DataError(
            f"{path.name} is no kind of file that can be read",
            got=path,
            expected=f"a file that ends in {', '.join(READERS)}, or a folder of `save_to_disk`",
        )
    if suffix in READERS or config.source.startswith((".", "~", "/")):
        raise _no_file(path)
    return _hub_rows(config)


def _no_file(path: Path) -> DataError:
    if not path.parent.is_dir():
        return DataError("the folder of data.source does not exist", got=path.parent.absolute())
    names = sorted(entry.name for entry in path.parent.iterdir())
    near = difflib.get_close_matches(path.name, names, n=1)
    return DataError(
        "the file of data.source does not exist",
        got=path.absolute(),
        expected="an existing file",
        fix=f"did you mean {str(path.with_name(near[0]))!r}?" if near else None,
    )


def _saved_rows(path: Path, config: DataConfig) -> Iterator[Row]:
    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        files = sorted(entry.name for entry in path.iterdir() if entry.suffix in READERS)
        raise DataError(
            f"the folder {str(path)!r} was not written by `save_to_disk`",
            got=path.absolute(),
            expected="a saved Dataset or DatasetDict",
            fix=f"name a file in it: {some(files)}" if files else None,
        )
    datasets = module_of("datasets", "datasets")
    try:
        dataset = datasets.load_from_disk(str(path))
    except Exception as error:  # of the file system, JSON or Arrow
        raise DataError(
            f"the folder {str(path)!r} cannot be read",
            got=f"{type(error).__name__}: {error}",
            expected="a complete Dataset or DatasetDict of `save_to_disk`",
        ) from error
    if isinstance(dataset, dict):
        if config.split not in dataset:
            raise DataError(
                f"{path.name} has no split {config.split!r}",
                got=f"the splits {some(dataset)}",
                fix=f'set data.split = "{next(iter(dataset))}"',
            )
        dataset = dataset[config.split]
    return iter(dataset)


def _hub_rows(config: DataConfig) -> Iterator[Row]:
    datasets = module_of("datasets", "datasets")
    try:
        return iter(datasets.load_dataset(config.source, config.subset, split=config.split))
    except Exception as error:  # of the hub client, the network, or the builder
        near = difflib.get_close_matches(config.source, list(GENERATORS), n=1)
        raise DataError(
            f"data.source = {config.source!r} is no file or folder here, and no dataset that the "
            "hub gives",
            got=" ".join(f"{type(error).__name__}: {error}".split())[:300],
            expected="a file, a folder, a dataset on the hub (with data.subset and data.split), "
            f"or one of {', '.join(GENERATORS)}",
            fix=f"did you mean {near[0]!r}?" if near else None,
        ) from error
