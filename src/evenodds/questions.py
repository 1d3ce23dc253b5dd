"""Stage 1. Question pools: from files, folders, hubs and generators, with stable ids.

A question's id is the hash of what the policy is asked, so it is the same in every run, file type
and row order; difficulty and stored rollouts can be looked up by it. Everything that is wrong with
a pool is found here, before any model is loaded.
"""

import contextlib
import csv
import dataclasses
import difflib
import hashlib
import importlib
import io
import itertools
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from evenodds.config import Settings, setting, unknown_key
from evenodds.errors import ConfigError, DataError, some

logger = logging.getLogger(__name__)

Row = Mapping[str, Any]
Prompt = str | list[dict[str, Any]]
"""Plain text, or messages with `role` and `content`."""


@dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """Which questions to train on, and how to read them."""

    section: ClassVar[str] = "data"

    source: str = setting(
        MISSING,
        "a .jsonl, .json, .parquet or .csv file, a folder of `save_to_disk`, a dataset on the "
        "Hugging Face hub, `toy` or `reasoning_gym`",
    )
    subset: str | None = setting(None, "configuration of a dataset on the hub")
    split: str = setting("train", "split of a folder, a dataset on the hub, or `toy`")
    shape: Literal["auto", "columns", "prompt", "verl"] = setting(
        "auto",
        "a question and an answer column; a `prompt` of text or messages (TRL); rows of verl; or "
        "whichever of them the columns show",
    )
    question_column: str = setting("question", "column of the question, in shape `columns`")
    answer_column: str = setting(
        "answer", "column of the reference answer; empty text where there is none"
    )
    system_prompt: str | None = setting(
        None, "system message of every prompt; one that a row has is replaced"
    )
    limit: int | None = setting(
        None, "use this many questions; `seed` draws them, the same in any row order", low=1
    )
    max_prompt_tokens: int | None = setting(
        None, "longest prompt, chat template included", low=1, unit="tokens"
    )
    drop_long: bool = setting(False, "leave longer prompts out instead of refusing them")
    tasks: dict[str, Any] | None = setting(  # noqa: RUF009  (it makes a field)
        None,
        "for `reasoning_gym`: a table for each task with `count`, its own `seed` where wanted, "
        "and settings of the task",
    )
    seed: int = setting(0, "seed of the draw of `limit` and of generated questions", low=0)

    def check(self) -> None:
        """Refuse tasks without their source or the other way round, and a limit that is not."""
        if self.drop_long and self.max_prompt_tokens is None:
            raise ConfigError(
                "data.drop_long has no limit to go by",
                got="drop_long = true",
                expected="a value for data.max_prompt_tokens",
            )
        if (self.tasks is not None) != (self.source == "reasoning_gym"):
            raise ConfigError(
                "data.tasks and data.source do not go together",
                got=f"source = {self.source!r}, tasks = {self.tasks!r}",
                expected='tasks where source is "reasoning_gym", and nowhere else',
            )
        for task, table in (self.tasks or {}).items():
            count = table.get("count") if isinstance(table, dict) else None
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                raise ConfigError(
                    f"data.tasks.{task} lacks a number of questions",
                    got=repr(table),
                    expected="a table with `count`, a whole number of at least 1",
                    fix=f"write `{task} = {{ count = 1000 }}` under [data.tasks]",
                )


@dataclass(frozen=True, eq=False)
class QuestionPool:
    """N different questions; a question is named by its row, 0 <= row < N.

    Attributes:
        ids: 32 hexadecimal digits each; see `question_id`.
        prompts: What is asked, as the source has it.
        answers: Reference answers; none where the source has none.
        extras: Further columns of the source, N values each, handed on to the reward.
        system_prompt: System message put before every prompt.
    """

    ids: tuple[str, ...]
    prompts: tuple[Prompt, ...]
    answers: tuple[str | None, ...]
    extras: Mapping[str, tuple[Any, ...]]
    system_prompt: str | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def texts(self) -> list[str]:
        """The questions as plain text, for embedding, without the pool's system prompt."""
        return [_plain_text(prompt) for prompt in self.prompts]

    def prompt(self, row: int) -> Prompt:
        """What the policy is asked: messages where there is a system prompt."""
        return _with_system(self.prompts[row], self.system_prompt)

    def row(self, row: int) -> dict[str, Any]:
        """A question in the form TRL wants: `prompt`, `answer`, `question_id` and the extras."""
        return {
            "prompt": self.prompt(row),
            "answer": self.answers[row],
            "question_id": self.ids[row],
            **{name: values[row] for name, values in self.extras.items()},
        }

    def rows(self) -> list[dict[str, Any]]:
        """All questions in the form TRL wants."""
        return [self.row(row) for row in range(len(self))]

    def take(self, rows: Sequence[int]) -> "QuestionPool":
        """The pool of these rows, in this order."""
        return QuestionPool(
            ids=tuple(self.ids[row] for row in rows),
            prompts=tuple(self.prompts[row] for row in rows),
            answers=tuple(self.answers[row] for row in rows),
            extras={name: tuple(v[row] for row in rows) for name, v in self.extras.items()},
            system_prompt=self.system_prompt,
        )


def load_pool(config: DataConfig) -> QuestionPool:
    """Read, check and number the questions of `config.source`.

    Raises:
        DataError: the source cannot be read, or its rows cannot be used as questions.
        ConfigError: a generated task is unknown or set up wrongly.
    """
    generate = GENERATORS.get(config.source)
    if generate is None:
        pool = pool_of_rows(_stored_rows(config), config)
    else:
        columns = {"question_column": "question", "answer_column": "answer", "shape": "columns"}
        pool = pool_of_rows(generate(config), config.replace(**columns), answers_may_lack=True)
    if config.limit is not None and config.limit < len(pool):
        pool = pool.take(_drawn(pool.ids, config.limit, config.seed))
    logger.info("%d questions from %s", len(pool), config.source)
    return pool


def question_id(prompt: Prompt) -> str:
    """BLAKE2b-128 of the prompt's messages as JSON with sorted keys, in hexadecimal.

    Plain text counts as one message of the user. Neither the answer nor `data.system_prompt` is
    part of it.
    """
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    text = json.dumps(messages, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


# From rows to a pool


def pool_of_rows(
    rows: Iterable[Row], config: DataConfig, *, answers_may_lack: bool = False
) -> QuestionPool:
    """Check the rows and merge true duplicates.

    Args:
        rows: Each a mapping from column to value; the first one shows the shape.
        config: Columns and shape. `limit` is not looked at.
        answers_may_lack: Whether a row may be without an answer though there is a column.

    Raises:
        DataError: no rows, a missing column, rows without question or answer, prompts that are
            not messages, or one question with two answers.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        raise DataError(
            "there are no questions", got=f"{config.source} is empty", expected="at least one row"
        )
    gathering = _Gathering(_shape(list(first), config), answers_may_lack)
    for number, row in enumerate(itertools.chain([first], rows), 1):
        gathering.add(number, row)
    return gathering.pool(config.system_prompt)


class _Gathering:
    """A pool while it is gathered, row by row. Rows are numbered from 1, as messages name them."""

    def __init__(self, shape: "_Shape", answers_may_lack: bool) -> None:
        self.shape = shape
        self.answers_may_lack = answers_may_lack
        self.places: dict[str, int] = {}  # id -> row in the pool
        self.numbers: list[int] = []  # of the row that had the question first
        self.prompts: list[Prompt] = []
        self.answers: list[str | None] = []
        self.extras: dict[str, list[Any]] = {}
        self.lacking: dict[str, list[int]] = {}  # column -> numbers of rows
        self.conflicts: list[str] = []
        self.num_merged = 0

    def add(self, number: int, row: Row) -> None:
        """Take in one row; what can be wrong with many rows is kept for one error in the end."""
        prompt = _prompt(row.get(self.shape.question), number)
        answer = self._answer(row, number)
        if not _plain_text(prompt).strip():
            self.lacking.setdefault(self.shape.question, []).append(number)
        elif answer is None and self.shape.answer and not self.answers_may_lack:
            name = "reward_model.ground_truth" if self.shape.name == "verl" else self.shape.answer
            self.lacking.setdefault(name, []).append(number)
        else:
            self._place(number, row, prompt, answer)

    def _answer(self, row: Row, number: int) -> str | None:
        if self.shape.answer is None:
            return None
        value = row.get(self.shape.answer)
        return _answer_text(_ground_truth(value) if self.shape.name == "verl" else value, number)

    def _place(self, number: int, row: Row, prompt: Prompt, answer: str | None) -> None:
        identity = _checked_id(prompt, number)
        place = self.places.setdefault(identity, len(self.places))
        if place == len(self.prompts):
            self.numbers.append(number)
            self.prompts.append(prompt)
            self.answers.append(answer)
            self._keep_extras(row)
        elif (self.answers[place] or "").strip() == (answer or "").strip():
            self.num_merged += 1
        else:
            self.conflicts.append(
                f"question {identity}: {self.answers[place]!r} in row {self.numbers[place]}, "
                f"{answer!r} in row {number}"
            )

    def _keep_extras(self, row: Row) -> None:
        before = len(self.prompts) - 1
        for name, value in row.items():
            if name in self.shape.columns:
                continue
            if name not in self.extras:
                self.extras[name] = [None] * before
            self.extras[name].append(value)
        for name in self.extras.keys() - row.keys():
            self.extras[name].append(None)

    def pool(self, system_prompt: str | None) -> QuestionPool:
        """The pool, unless there was something wrong with its rows."""
        if self.lacking:
            column, numbers = next(iter(self.lacking.items()))
            raise DataError(
                f"{column} is empty in {len(numbers)} of the rows",
                got=f"rows {some(numbers, 10)}, counted from 1",
                expected="a question and an answer in every row",
                fix="fill them in or remove these rows",
            )
        if self.conflicts:
            raise DataError(
                f"{len(self.conflicts)} rows give a question another answer than before",
                got=some(self.conflicts),
                expected="one answer for a question",
                fix="remove the rows with the wrong answer; rows are counted from 1",
            )
        if len({type(prompt) for prompt in self.prompts}) > 1:
            raise DataError(
                "some prompts are text and some are messages",
                got=f"text in {sum(isinstance(prompt, str) for prompt in self.prompts)} of "
                f"{len(self.prompts)} questions",
                expected="the same form in all rows",
            )
        if self.num_merged:
            logger.warning("%d rows repeat a question and its answer: merged", self.num_merged)
        reserved = sorted(RESERVED & self.extras.keys())
        if reserved:
            logger.info("columns that the trainer needs the name of are left out: %s", reserved)
        return QuestionPool(
            ids=tuple(self.places),
            prompts=tuple(self.prompts),
            answers=tuple(self.answers),
            extras={name: tuple(v) for name, v in self.extras.items() if name not in RESERVED},
            system_prompt=system_prompt,
        )


def _checked_id(prompt: Prompt, number: int) -> str:
    try:
        return question_id(prompt)
    except (UnicodeEncodeError, TypeError) as error:
        raise DataError(
            f"the question of row {number} is not text", got=str(error), expected="valid Unicode"
        ) from error


def _prompt(value: Any, number: int) -> Prompt:
    """Text or messages as they are, less keys without a value; a missing question is no text."""
    if _is_null(value):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(_is_message(message) for message in value):
        return [{k: v for k, v in message.items() if v is not None} for message in value]
    raise DataError(
        f"the question of row {number} is neither text nor a list of messages",
        got=repr(value)[:200],
        expected='text, or [{"role": "user", "content": "..."}] with text as content',
    )


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(key), str) for key in ("role", "content")
    )


def _answer_text(value: Any, number: int) -> str | None:
    """An answer as text; none where it is missing or blank."""
    if _is_null(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise DataError(
        f"the answer of row {number} is neither text nor a number",
        got=repr(value)[:200],
        expected="one answer as text or number",
        fix="write it as text, or keep it in another column for a reward function of your own",
    )


def _ground_truth(reward_model: Any) -> Any:
    """The answer in verl's column `reward_model`, a table or its JSON text."""
    if isinstance(reward_model, str):
        try:
            reward_model = json.loads(reward_model)
        except json.JSONDecodeError:
            return None
    return reward_model.get("ground_truth") if isinstance(reward_model, Mapping) else None


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _plain_text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(m["content"] for m in prompt if m["role"] in ("system", "user"))


def _with_system(prompt: Prompt, system_prompt: str | None) -> Prompt:
    if system_prompt is None:
        return prompt
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    own = messages[1:] if messages[0]["role"] == "system" else messages
    return [{"role": "system", "content": system_prompt}, *own]


def _drawn(ids: Sequence[str], count: int, seed: int) -> list[int]:
    """`count` random rows, in order; a question's luck depends on its id and the seed alone."""

    def luck(row: int) -> bytes:
        return hashlib.blake2b(f"{seed} {ids[row]}".encode(), digest_size=16).digest()

    return sorted(sorted(range(len(ids)), key=luck)[:count])


# The three shapes of a row

RESERVED = {
    "answer",
    "completion",
    "completion_ids",
    "completions",
    "environments",
    "log_extra",
    "log_metric",
    "prompt",
    "prompts",
    "question_id",
    "trainer_state",
}
"""Names that TRL or evenodds give columns of their own."""

USUAL_NAMES = {
    "data.question_column": ("question", "problem", "query", "instruction", "input", "prompt"),
    "data.answer_column": ("answer", "solution", "ground_truth", "target", "gold", "label"),
}


@dataclass(frozen=True)
class _Shape:
    """The columns that hold the question and the answer."""

    name: str
    question: str
    answer: str | None

    @property
    def columns(self) -> set[str | None]:
        return {self.question, self.answer}


def _shape(columns: Sequence[str], config: DataConfig) -> _Shape:
    """The shape of a source with these columns, which it is made sure to have."""
    name = config.shape if config.shape != "auto" else _shape_name(columns, config)
    if name == "verl":
        shape = _Shape("verl", "prompt", "reward_model")
    elif name == "prompt":
        is_default = config.answer_column == "answer" and "answer" not in columns
        shape = _Shape("prompt", "prompt", None if is_default else config.answer_column or None)
    else:
        shape = _Shape("columns", config.question_column, config.answer_column or None)
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


def _no_column(column: str, setting_name: str, columns: Sequence[str], shape: _Shape) -> DataError:
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


# Where rows come from


def _stored_rows(config: DataConfig) -> Iterator[Row]:
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
    pyarrow = _module("pyarrow", "pyarrow")
    parquet = _module("pyarrow.parquet", "pyarrow")
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


def _saved_rows(path: Path, config: DataConfig) -> Iterator[Row]:
    if not any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
        files = sorted(entry.name for entry in path.iterdir() if entry.suffix in READERS)
        raise DataError(
            f"the folder {str(path)!r} was not written by `save_to_disk`",
            got=path.absolute(),
            expected="a saved Dataset or DatasetDict",
            fix=f"name a file in it: {some(files)}" if files else None,
        )
    datasets = _module("datasets", "datasets")
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
    datasets = _module("datasets", "datasets")
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


def _toy_rows(config: DataConfig) -> Iterator[Row]:
    toy = importlib.import_module("evenodds.toy")
    splits = {"train": toy.pool, "test": toy.evaluation}
    if config.split not in splits:
        raise DataError(
            f"the toy questions have no split {config.split!r}", got=f"the splits {some(splits)}"
        )
    return iter(splits[config.split](seed=config.seed))


def _reasoning_gym_rows(config: DataConfig) -> Iterator[Row]:
    gym = _module("reasoning_gym", "reasoning-gym")
    from evenodds.rewards.reasoning_gym import ENTRY_COLUMN, entry_text

    for task, table in (config.tasks or {}).items():
        own = {key: value for key, value in table.items() if key not in ("count", "seed")}
        seed = table.get("seed", config.seed)
        with contextlib.redirect_stdout(io.StringIO()):  # some tasks print
            entries = list(_task(gym, task, {**own, "size": table["count"], "seed": seed}))
        for entry in entries:
            yield {
                "question": entry["question"],
                "answer": entry["answer"],
                "task": task,
                ENTRY_COLUMN: entry_text(task, own, entry),
            }


def _task(gym: Any, name: str, settings: dict[str, Any]) -> Iterable[dict[str, Any]]:
    if name not in gym.factory.DATASETS:
        raise unknown_key(name, sorted(gym.factory.DATASETS), kind="reasoning-gym task")
    known = [field.name for field in dataclasses.fields(gym.factory.DATASETS[name][1])]
    for key in settings:
        if key not in known:
            raise unknown_key(f"data.tasks.{name}.{key}", [f"data.tasks.{name}.{k}" for k in known])
    try:
        return gym.create_dataset(name, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(
            f"reasoning-gym refuses the settings of data.tasks.{name}", got=error
        ) from error


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"this data.source needs the package {package}", fix=f"pip install {package}"
        ) from error


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_line_rows,
    ".json": _json_rows,
    ".parquet": _parquet_rows,
    ".csv": _csv_rows,
}

GENERATORS: dict[str, Callable[[DataConfig], Iterator[Row]]] = {
    "toy": _toy_rows,
    "reasoning_gym": _reasoning_gym_rows,
}


# Does the pool fit the run?


def check_prompt_lengths(
    pool: QuestionPool, tokenizer: Any, max_prompt_tokens: int, *, drop_long: bool = False
) -> QuestionPool:
    """Make sure that no prompt is too long.

    Args:
        pool: The questions.
        tokenizer: Of the policy; messages go through its chat template.
        max_prompt_tokens: Longest prompt, the opening of the reply included.
        drop_long: Leave longer ones out instead of refusing them.

    Returns:
        The pool, or what is left of it.

    Raises:
        DataError: prompts are too long, all of them where they are dropped; or the chat template
            refuses a prompt.
    """
    lengths = [_num_tokens(pool, row, tokenizer) for row in range(len(pool))]
    fitting = [row for row, length in enumerate(lengths) if length <= max_prompt_tokens]
    num_long = len(pool) - len(fitting)
    if not num_long:
        return pool
    if drop_long and fitting:
        logger.warning("%d prompts over %d tokens are dropped", num_long, max_prompt_tokens)
        return pool.take(fitting)
    too_long = (pool.ids[row] for row, n in enumerate(lengths) if n > max_prompt_tokens)
    raise DataError(
        f"{num_long} of {len(pool)} prompts are too long",
        got=f"up to {max(lengths)} tokens: questions {some(too_long)}",
        expected=f"at most {max_prompt_tokens} tokens",
        fix=f"set data.max_prompt_tokens = {max(lengths)}"
        + (", or data.drop_long = true" if fitting else ""),
    )


def _num_tokens(pool: QuestionPool, row: int, tokenizer: Any) -> int:
    prompt = pool.prompt(row)
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    try:
        tokens = tokenizer.apply_chat_template(
            prompt, add_generation_prompt=True, tokenize=True, return_dict=True
        )
    except Exception as error:  # of the template, which is a program of its own
        raise DataError(
            f"the chat template of the tokenizer refuses question {pool.ids[row]}",
            got=f"{type(error).__name__}: {error}",
            fix="use a model with a chat template for messages, or plain text and no system prompt",
        ) from error
    return len(tokens["input_ids"])


def check_arithmetic(
    num_questions: int,
    *,
    num_references: int,
    group_size: int,
    groups_per_step: int,
    world_size: int,
    selects: bool,
) -> None:
    """Make sure that the pool fills a batch, and that the processes can share it.

    Args:
        num_questions: N.
        num_references: K.
        group_size: G.
        groups_per_step: B, over all processes.
        world_size: Number of processes.
        selects: Whether references are probed; if not, K does not matter.

    Raises:
        ConfigError: what does not fit.
    """
    if groups_per_step > num_questions:
        raise ConfigError(
            "a batch has more groups than there are questions",
            got=f"{groups_per_step} groups a step, {num_questions} questions",
            expected="at most as many groups as questions",
            fix="use smaller batches, larger groups, or more questions",
        )
    if groups_per_step < 2 * world_size:
        raise ConfigError(
            "a process gets fewer than 2 groups of a batch",
            got=f"{groups_per_step} groups a step, {world_size} processes",
            expected=f"at least {2 * world_size} groups a step",
            fix="use larger batches, smaller groups, or fewer processes",
        )
    _check_share("a batch", groups_per_step, group_size, world_size)
    if not selects:
        return
    if num_references > num_questions:
        raise ConfigError(
            "there are more references than questions",
            got=f"efficiency.num_references = {num_references}, {num_questions} questions",
            expected=f"at most {num_questions}",
            fix="probe fewer references, or add questions",
        )
    _check_share("the reference set", num_references, group_size, world_size)


def _check_share(what: str, groups: int, group_size: int, world_size: int) -> None:
    spare = groups % world_size
    if spare:
        nearest = [n for n in (groups - spare, groups - spare + world_size) if n]
        raise ConfigError(
            f"the processes cannot share {what} in whole groups",
            got=f"{groups} groups x {group_size} rollouts = {groups * group_size} rows, "
            f"{world_size} processes",
            expected="a number of groups that the number of processes divides",
            fix=f"use {' or '.join(map(str, nearest))} groups",
        )
