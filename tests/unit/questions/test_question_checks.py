"""Does a pool fit the run: prompt lengths, and whole groups for every process."""

from typing import Any

import pytest

from evenodds.errors import ConfigError, DataError
from evenodds.questions import DataConfig, check_prompt_lengths

from question_rows import ROWS, gather


class Words:
    """A tokenizer with a token a word, and three more a message."""

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [0] * len(text.split())}

    def apply_chat_template(
        self, messages: list[dict[str, str]], **options: Any
    ) -> dict[str, list[int]]:
        assert options == {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        if messages[0]["role"] == "system" and messages[0]["content"] == "refuse":
            raise ValueError("System role not supported")
        return {"input_ids": [0] * sum(3 + len(m["content"].split()) for m in messages)}


class TestPromptLengths:
    POOL = gather([{"question": "a " * n + "?", "answer": "1"} for n in (1, 4, 9)])

    def test_short_enough(self) -> None:
        assert check_prompt_lengths(self.POOL, Words(), 10) is self.POOL

    def test_too_long(self) -> None:
        with pytest.raises(DataError) as caught:
            check_prompt_lengths(self.POOL, Words(), 4)
        text = str(caught.value)
        assert "2 of 3 prompts are too long" in text
        assert f"up to 10 tokens: questions {self.POOL.ids[1]}, {self.POOL.ids[2]}" in text
        assert "set data.max_prompt_tokens = 10, or data.drop_long = true" in text

    def test_dropped_and_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        left = check_prompt_lengths(self.POOL, Words(), 5, drop_long=True)
        assert left.ids == self.POOL.ids[:2]
        assert "1 prompts over 5 tokens are dropped" in caplog.text

    def test_all_too_long_cannot_be_dropped(self) -> None:
        with pytest.raises(DataError, match="3 of 3 prompts are too long") as caught:
            check_prompt_lengths(self.POOL, Words(), 1, drop_long=True)
        assert "drop_long" not in str(caught.value)

    def test_chat_template_counts(self) -> None:
        pool = gather(ROWS, system_prompt="Think well.")
        assert check_prompt_lengths(pool, Words(), 3 + 2 + 3 + 3) is pool
        with pytest.raises(DataError, match="up to 11 tokens"):
            check_prompt_lengths(pool, Words(), 10)

    def test_template_that_refuses(self) -> None:
        pool = gather(ROWS, system_prompt="refuse")
        with pytest.raises(DataError, match="System role not supported") as caught:
            check_prompt_lengths(pool, Words(), 10)
        assert f"refuses question {pool.ids[0]}" in str(caught.value)

    def test_dropping_needs_a_limit(self) -> None:
        with pytest.raises(ConfigError, match=r"a value for data\.max_prompt_tokens"):
            DataConfig(source="toy", drop_long=True)
