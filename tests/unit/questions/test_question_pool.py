"""What a pool holds: stable ids, prompts, and the drawn part of a larger source."""

import random
import subprocess
import sys
from pathlib import Path

import datasets
from hypothesis import given
from hypothesis import strategies as st

from evenodds.questions import DataConfig, load_pool, prompt_text, question_id

from question_rows import CHAT, ROWS, gather, write_lines


class TestIds:
    def test_value(self) -> None:
        # printf '[{"content":"1+1","role":"user"}]' | b2sum -l 128
        assert question_id("1+1") == "3d777453ca8d59fbdc440d873c0067f5"

    def test_text_and_a_single_message_are_the_same_question(self) -> None:
        assert question_id("What is 1+1?") == question_id(CHAT)
        assert gather([{"prompt": CHAT, "answer": "9"}]).ids == gather(ROWS[:1]).ids

    def test_system_prompt_and_empty_keys_do_not_change_it(self) -> None:
        rows = [{"prompt": [{**CHAT[0], "name": None}], "answer": "2"}]
        assert gather(rows, system_prompt="Think.").ids == (question_id(CHAT),)

    def test_a_message_more_is_another_question(self) -> None:
        assert question_id([*CHAT, {"role": "assistant", "content": "Hm"}]) != question_id(CHAT)

    @given(
        texts=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, unique=True),
        seed=st.integers(0, 10),
    )
    def test_row_and_key_order_do_not_matter(self, texts: list[str], seed: int) -> None:
        texts = [f"{text}?" for text in texts]
        rows = [
            {"prompt": [{"role": "user", "content": text}], "answer": str(i)}
            for i, text in enumerate(texts)
        ]
        shuffled = [
            {
                "answer": row["answer"],
                "prompt": [{"content": texts[int(row["answer"])], "role": "user"}],
            }
            for row in random.Random(seed).sample(rows, len(rows))
        ]
        one, other = gather(rows), gather(shuffled)
        assert dict(zip(one.ids, one.answers, strict=True)) == dict(
            zip(other.ids, other.answers, strict=True)
        )
        assert len(one) == len(texts)


class TestLimit:
    ROWS = tuple({"question": f"q{i}", "answer": str(i)} for i in range(200))

    def ids(self, path: Path, rows: list[dict[str, str]], limit: int, seed: int = 0) -> list[str]:
        source = str(write_lines(path / "a.jsonl", rows))
        return list(load_pool(DataConfig(source=source, limit=limit, seed=seed)).ids)

    def test_the_draw_depends_on_seed_and_content_only(self, tmp_path: Path) -> None:
        rows = list(self.ROWS)
        drawn = self.ids(tmp_path, rows, 50)
        assert len(drawn) == 50
        assert set(self.ids(tmp_path, rows[::-1], 50)) == set(drawn)
        assert set(self.ids(tmp_path, rows, 20)) < set(drawn)
        assert set(self.ids(tmp_path, rows, 50, seed=1)) != set(drawn)

    def test_order_of_the_source_is_kept(self, tmp_path: Path) -> None:
        rows = list(self.ROWS)
        every = self.ids(tmp_path, rows, 200)
        drawn = self.ids(tmp_path, rows, 50)
        assert drawn == [identity for identity in every if identity in set(drawn)]

    def test_limit_above_the_size_is_all(self, tmp_path: Path) -> None:
        assert len(self.ids(tmp_path, list(self.ROWS), 1000)) == 200


class TestPrompts:
    def test_plain_text_stays_without_a_system_prompt(self) -> None:
        assert gather(ROWS).prompt(0) == "What is 1+1?"

    def test_system_prompt_makes_messages(self) -> None:
        pool = gather(ROWS, system_prompt="Think.")
        assert pool.prompt(0) == [{"role": "system", "content": "Think."}, *CHAT]
        assert pool.texts[0] == "What is 1+1?"

    def test_system_prompt_replaces_a_rows_own(self) -> None:
        own = [{"role": "system", "content": "Be brief."}, *CHAT]
        pool = gather([{"prompt": own}], system_prompt="Think.")
        assert pool.rows()[0]["prompt"] == [{"role": "system", "content": "Think."}, *CHAT]

    def test_rows_make_a_dataset(self) -> None:
        dataset = datasets.Dataset.from_list(gather(ROWS, system_prompt="Think.").rows())
        assert dataset[1]["prompt"][1] == {"role": "user", "content": "What is 2+3?"}

    def test_text_of_messages_is_what_all_of_them_say(self) -> None:
        messages = [*CHAT, {"role": "assistant", "content": "2"}, {**CHAT[0], "content": "Sure?"}]
        assert prompt_text(messages) == "What is 1+1?\n2\nSure?"
        assert gather([{"prompt": messages}]).texts == [prompt_text(messages)]

    def test_take_keeps_columns_together(self) -> None:
        pool = gather([{**row, "n": i} for i, row in enumerate(ROWS)], system_prompt="T").take([1])
        assert pool.rows() == [
            {
                "prompt": [
                    {"role": "system", "content": "T"},
                    {"role": "user", "content": "What is 2+3?"},
                ],
                "answer": "5",
                "question_id": question_id("What is 2+3?"),
                "n": 1,
            }
        ]


def test_import_is_light() -> None:
    heavy = "datasets", "math_verify", "numpy", "pyarrow", "reasoning_gym", "torch", "transformers"
    code = (
        "import sys, evenodds.questions, evenodds.rewards; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"
