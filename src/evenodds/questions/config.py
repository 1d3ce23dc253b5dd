"""Which questions a run trains on."""

from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Literal

from evenodds.config import Settings, setting
from evenodds.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DataConfig(Settings):
    """Which questions to train on, and how to read them."""

    section: ClassVar[str] = "data"

    source: str = setting(
        MISSING,
        "a .jsonl, .json, .parquet or .csv file, a folder of `save_to_disk`, a dataset on the "
        "Hugging Face hub, `toy` or `reasoning_gym`",
    )
    subset: str | None = setting(
        None, "configuration of a dataset on the hub, or the world of `toy`: main or easy"
    )
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
