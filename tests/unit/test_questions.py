"""Question pools: every source and shape, and what a user reads when one is wrong."""

import json
import logging
import random
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenodds import questions
from evenodds.errors import ConfigError, DataError
from evenodds.questions import (
    DataConfig,
    QuestionPool,
    check_arithmetic,
    check_prompt_lengths,
    load_pool,
    pool_of_rows,
    question_id,
)

ROWS = [{"question": "What is 1+1?", "answer": "2"}, {"question": "What is 2+3?", "answer": "5"}]
CHAT = [{"role": "user", "content": "What is 1+1?"}]
DATA = Path(__file__).parents[3] / "shared" / "data"


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


class TestSources:
    def test_every_kind_of_file_gives_the_same_pool(self, tmp_path: Path) -> None:
        rows = [{"question": 'Say "é, 😀"\nplease', "answer": "07"}, *ROWS]
        write_lines(tmp_path / "a.jsonl", rows)
        (tmp_path / "b.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        write_lines(tmp_path / "c.json", rows)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
        (tmp_path / "e.csv").write_text(
            'question,answer\r\n"Say ""é, 😀""\nplease",07\r\n\r\n'
            "What is 1+1?,2\r\nWhat is 2+3?,5\r\n",
            encoding="utf-8-sig",
            newline="",
        )
        datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "f")
        datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(
            tmp_path / "g"
        )
        pools = [load_pool(DataConfig(source=str(path))) for path in sorted(tmp_path.iterdir())]
        assert len(pools) == 7
        for pool in pools:
            assert pool.prompts == ('Say "é, 😀"\nplease', "What is 1+1?", "What is 2+3?")
            assert pool.answers == ("07", "2", "5")
            assert pool.ids == pools[0].ids
            assert pool.extras == {}

    def test_hub_dataset_is_asked_for_by_name_subset_and_split(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def load_dataset(*names: Any, **options: Any) -> datasets.Dataset:
            asked.append((names, options))
            return datasets.Dataset.from_list(ROWS)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        pool = load_pool(DataConfig(source="openai/gsm8k", subset="main", split="test"))
        assert asked == [(("openai/gsm8k", "main"), {"split": "test"})]  # no remote code
        assert pool.answers == ("2", "5")

    def test_hub_failure_names_both_readings_of_the_source(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_dataset(*names: Any, **options: Any) -> datasets.Dataset:
            raise ValueError("Config name is missing.\nPlease pick one: ['main', 'socratic']")

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        text = refusal("toyy")
        assert "'toyy' is no file or folder here, and no dataset that the hub gives" in text
        assert "Config name is missing. Please pick one: ['main', 'socratic']" in text
        assert "did you mean 'toy'?" in text

    def test_generated_sources_come_from_a_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = [{"question": "rev ab", "answer": "ba", "length": 2}]
        monkeypatch.setitem(questions.GENERATORS, "toy", lambda config: iter(made))
        pool = load_pool(DataConfig(source="toy", question_column="elsewhere"))
        assert pool.rows() == [
            {
                "prompt": "rev ab",
                "answer": "ba",
                "question_id": question_id("rev ab"),
                "length": 2,
            }
        ]

    def test_toy_questions_have_two_splits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def pool(seed: int) -> list[dict[str, str]]:
            return [{"question": f"train {seed}", "answer": "1"}]

        def evaluation(seed: int) -> list[dict[str, str]]:
            return [{"question": f"test {seed}", "answer": "1"}]

        toy = types.SimpleNamespace(pool=pool, evaluation=evaluation)
        monkeypatch.setitem(sys.modules, "evenodds.toy", toy)
        assert load_pool(DataConfig(source="toy")).texts == ["train 0"]
        assert load_pool(DataConfig(source="toy", split="test", seed=3)).texts == ["test 3"]
        assert "have no split 'dev'\n  got:      the splits train, test" in refusal(
            "toy", split="dev"
        )

    def test_missing_file_suggests_its_neighbour(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "train.jsonl", ROWS)
        text = refusal(tmp_path / "trian.jsonl")
        assert "does not exist" in text
        assert f"did you mean '{tmp_path / 'train.jsonl'}'?" in text
        assert f"the folder of data.source does not exist\n  got:      {tmp_path}/no" in refusal(
            tmp_path / "no" / "train.jsonl"
        )

    def test_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        assert ".jsonl, .json, .parquet, .csv" in refusal(tmp_path / "notes.txt")

    def test_folder_that_was_not_saved_by_datasets(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "train.jsonl", ROWS)
        text = refusal(tmp_path)
        assert "was not written by `save_to_disk`" in text
        assert "name a file in it: train.jsonl" in text

    def test_damaged_folder(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text("{}")
        assert "cannot be read" in refusal(tmp_path)

    def test_missing_split_names_those_that_are_there(self, tmp_path: Path) -> None:
        datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path)
        text = refusal(tmp_path)
        assert "has no split 'train'" in text
        assert 'set data.split = "test"' in text

    def test_broken_json_line_is_numbered(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", ROWS)
        path.write_text(path.read_text() + '\n{"question": "x", \n')
        assert "line 4 of a.jsonl is not JSON" in refusal(path)
        path.write_text('["question"]\n')
        assert "line 1 of a.jsonl is not a JSON object" in refusal(path)

    def test_broken_json_array(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('[{"question": "x", "answer": "1"},]')
        assert "a.json is not JSON" in refusal(path)
        path.write_text('[{"question": "x", "answer": "1"}, 5]')
        assert "element 2 of a.json is not a JSON object\n  got:      5" in refusal(path)

    def test_broken_csv_line_is_numbered(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("question,answer\nWhat, me?,2\n")
        text = refusal(path)
        assert "line 2 of a.csv is not CSV\n  got:      3 fields under 2 column names" in text
        path.write_text('question,answer\n"open,2\n')
        assert "is not CSV" in refusal(path)

    def test_long_csv_field(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"question,answer\n{'x' * 200_000},2\n")
        assert len(load_pool(DataConfig(source=str(tmp_path / "a.csv"))).texts[0]) == 200_000

    def test_damaged_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
        assert "a.parquet cannot be read as parquet" in refusal(tmp_path / "a.parquet")

    @pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
    def test_other_encodings_are_placed_and_named(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(b'\n{"question": "caf\xe9?"}\n')
        text = refusal(path)
        assert f"a.{suffix} is not UTF-8 text\n  got:      byte 0xe9 at offset 18" in text
        assert f"iconv -f WINDOWS-1252 -t UTF-8 a.{suffix} > utf8-a.{suffix}" in text
        path.write_text("question,answer\nx,1\n", encoding="utf-16")
        assert "iconv -f UTF-16 -t UTF-8" in refusal(path)

    @pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
    def test_empty_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"")
        assert "there are no questions" in refusal(tmp_path / name)

    def test_missing_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ConfigError, match="pip install datasets"):
            load_pool(DataConfig(source="openai/gsm8k"))


class TestReasoningGym:
    def test_rows_carry_what_scoring_needs(self) -> None:
        tasks = {"leg_counting": {"count": 5, "max_animals": 4}, "rush_hour": {"count": 2}}
        pool = load_pool(DataConfig(source="reasoning_gym", tasks=tasks, seed=3))
        assert len(pool) == 7
        assert pool.extras["task"] == ("leg_counting",) * 5 + ("rush_hour",) * 2
        stored = json.loads(pool.extras["reasoning_gym"][0])
        assert stored["config"] == {"max_animals": 4}
        assert stored["entry"]["answer"] == pool.answers[0]
        assert stored["entry"]["metadata"]["num_animals"] <= 4
        assert pool.answers[6] is None  # a task with no single right answer

    def test_seed_of_the_pool_unless_the_task_has_its_own(self) -> None:
        def ids(seed: int, own: dict[str, int] | None = None) -> tuple[str, ...]:
            tasks = {"leg_counting": {"count": 5, **(own or {})}}
            return load_pool(DataConfig(source="reasoning_gym", tasks=tasks, seed=seed)).ids

        assert ids(3) == ids(0, {"seed": 3})
        assert ids(3) != ids(4)

    def test_tasks_that_print_are_kept_quiet(self, capfd: pytest.CaptureFixture[str]) -> None:
        load_pool(DataConfig(source="reasoning_gym", tasks={"bf": {"count": 2}}))
        assert capfd.readouterr().out == ""

    @pytest.mark.parametrize(
        ("tasks", "message"),
        [
            ({"leg_countin": {"count": 1}}, "did you mean 'leg_counting'"),
            (
                {"leg_counting": {"count": 1, "max_animal": 9}},
                "did you mean 'data.tasks.leg_counting.max_animals'",
            ),
            ({"leg_counting": {"count": 1, "max_animals": 1}}, "max_animals must be >="),
            ({"leg_counting": {"count": 0}}, "data.tasks.leg_counting lacks a number"),
            ({"leg_counting": 5}, "count = 1000"),
            (None, "tasks = None"),
        ],
    )
    def test_wrong_tasks(self, tasks: dict[str, Any] | None, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            load_pool(DataConfig(source="reasoning_gym", tasks=tasks))

    def test_tasks_need_their_source(self) -> None:
        with pytest.raises(ConfigError, match="do not go together"):
            DataConfig(source="toy", tasks={"leg_counting": {"count": 1}})


class TestShapes:
    def test_columns_with_names_of_their_own(self) -> None:
        rows = [{"problem": "1+1", "solution": 2, "level": 3}]
        pool = gather(rows, question_column="problem", answer_column="solution")
        assert pool.rows() == [
            {"prompt": "1+1", "answer": "2", "question_id": question_id("1+1"), "level": 3}
        ]

    def test_messages(self) -> None:
        messages = [{"role": "system", "content": "Be brief."}, *CHAT]
        pool = gather([{"prompt": messages, "solution": "2"}], answer_column="solution")
        assert pool.prompts == (messages,)
        assert pool.answers == ("2",)
        assert pool.texts == ["Be brief.\nWhat is 1+1?"]

    def test_plain_prompt_may_lack_an_answer(self) -> None:
        pool = gather([{"prompt": "1+1"}])
        assert pool.row(0) == {
            "prompt": "1+1",
            "answer": None,
            "question_id": question_id("1+1"),
        }
        named = refusal_of_rows([{"prompt": "1+1"}], answer_column="gold")
        assert "there is no column 'gold'" in named

    @pytest.mark.parametrize("as_text", [False, True])
    def test_verl(self, as_text: bool) -> None:
        truth: Any = {"ground_truth": "2", "style": "rule"}
        row = {
            "data_source": "arithmetic",
            "prompt": CHAT,
            "ability": "math",
            "reward_model": json.dumps(truth) if as_text else truth,
            "extra_info": {"index": 7, "split": "train"},
        }
        pool = gather([row])
        assert pool.answers == ("2",)
        assert pool.extras == {
            "data_source": ("arithmetic",),
            "ability": ("math",),
            "extra_info": ({"index": 7, "split": "train"},),
        }

    def test_verl_without_ground_truth(self) -> None:
        text = refusal_of_rows([{"prompt": CHAT, "reward_model": "no JSON"}])
        assert "reward_model.ground_truth is empty in 1 of the rows" in text

    def test_question_column_wins_over_prompt_unless_told(self) -> None:
        rows = [{"question": "q", "prompt": "p", "answer": "1"}]
        assert gather(rows).prompts == ("q",)
        assert gather(rows, shape="prompt").prompts == ("p",)

    def test_answers_can_be_done_without(self) -> None:
        assert gather([{"question": "q"}], answer_column="").answers == (None,)

    @pytest.mark.parametrize(
        ("columns", "suggested"),
        [
            ({"Question": "q", "answer": "1"}, 'set data.question_column = "Question"'),
            ({"problem": "q", "answer": "1"}, 'set data.question_column = "problem"'),
            ({"question": "q", "answers": "1"}, 'set data.answer_column = "answers"'),
            ({"question": "q", "solution": "1"}, 'set data.answer_column = "solution"'),
            ({"question": "q", "zzz": "1"}, 'set data.answer_column = "" if there are no'),
            ({"zzz": "q"}, "name the right columns, or set data.shape"),
        ],
    )
    def test_missing_column(self, columns: dict[str, str], suggested: str) -> None:
        text = refusal_of_rows([columns])
        assert f"the columns {', '.join(columns)}" in text
        assert "answer, question in rows of shape `columns`" in text
        assert suggested in text

    def test_missing_column_of_a_chosen_shape(self) -> None:
        text = refusal_of_rows([{"prompt": CHAT}], shape="verl")
        assert "there is no column 'reward_model'" in text
        assert "prompt, reward_model in rows of shape `verl`" in text

    def test_names_of_the_trainer_are_not_handed_on(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        pool = gather([{**ROWS[0], "question_id": "mine", "prompts": "x", "level": 1}])
        assert pool.extras == {"level": (1,)}
        assert "['prompts', 'question_id']" in caplog.text

    def test_ragged_rows_are_filled_with_none(self) -> None:
        pool = gather([{**ROWS[0], "a": 1}, {**ROWS[1], "b": 2}])
        assert pool.extras == {"a": (1, None), "b": (None, 2)}

    @pytest.mark.parametrize(
        "prompt",
        [
            5,
            {"role": "user"},
            [{"role": "user"}],
            [{"role": "user", "content": [{"type": "image"}]}],
        ],
    )
    def test_prompts_that_are_neither_text_nor_messages(self, prompt: Any) -> None:
        text = refusal_of_rows([{"prompt": CHAT}, {"prompt": prompt}])
        assert "the question of row 2 is neither text nor a list of messages" in text

    def test_text_and_messages_do_not_mix(self) -> None:
        text = refusal_of_rows([{"prompt": CHAT}, {"prompt": "1+2"}])
        assert "text in 1 of 2 questions" in text

    def test_answers_that_are_no_text(self) -> None:
        text = refusal_of_rows([ROWS[0], {"question": "q", "answer": ["1", "2"]}])
        assert "the answer of row 2 is neither text nor a number\n  got:      ['1', '2']" in text


class TestRows:
    def test_empty_questions_are_numbered(self) -> None:
        rows = [ROWS[0], {"question": None, "answer": "1"}, {"question": " ", "answer": "1"}]
        text = refusal_of_rows([*rows, ROWS[1]])
        assert "question is empty in 2 of the rows\n  got:      rows 2, 3, counted" in text

    def test_empty_answers_are_numbered(self) -> None:
        rows = [{"question": f"q{i}", "answer": None if i % 2 else float("nan")} for i in range(12)]
        text = refusal_of_rows([*ROWS, *rows])
        assert "answer is empty in 12 of the rows" in text
        assert "rows 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... (12 in all)" in text

    def test_true_duplicates_merge_and_are_counted(self, caplog: pytest.LogCaptureFixture) -> None:
        pool = gather(
            [*ROWS, {**ROWS[0], "level": 9}, {"question": "What is 2+3?", "answer": " 5"}]
        )
        assert pool.answers == ("2", "5")
        assert pool.extras == {}  # the first row of a question counts
        assert [record.message for record in caplog.records] == [
            "2 rows repeat a question and its answer: merged"
        ]

    def test_one_question_with_two_answers(self) -> None:
        text = refusal_of_rows([*ROWS, {"question": "What is 1+1?", "answer": "3"}])
        identity = question_id("What is 1+1?")
        assert f"question {identity}: '2' in row 1, '3' in row 3" in text

    def test_lone_surrogates_are_refused(self) -> None:
        text = refusal_of_rows([ROWS[0], {"question": "\ud83d", "answer": "1"}])
        assert "the question of row 2 is not text" in text

    def test_no_rows(self) -> None:
        assert "there are no questions" in refusal_of_rows([])


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


class TestArithmetic:
    def check(self, num_questions: int = 1000, **changes: Any) -> None:
        sizes: dict[str, Any] = {
            "num_references": 256,
            "group_size": 8,
            "groups_per_step": 512,
            "world_size": 8,
            "selects": True,
        }
        check_arithmetic(num_questions, **{**sizes, **changes})

    def test_the_papers_sizes_fit(self) -> None:
        self.check()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"num_questions": 500}, "512 groups a step, 500 questions"),
            ({"num_references": 1008}, "num_references = 1008, 1000 questions"),
            ({"groups_per_step": 8}, "at least 16 groups a step"),
            ({"groups_per_step": 1, "world_size": 1}, "at least 2 groups a step"),
            ({"groups_per_step": 100}, "100 groups x 8 rollouts = 800 rows, 8 processes"),
            ({"groups_per_step": 100}, "use 96 or 104 groups"),
            ({"num_references": 250}, "the processes cannot share the reference set"),
            ({"num_references": 250}, "use 248 or 256 groups"),
            ({"num_references": 3}, "use 8 groups"),
        ],
    )
    def test_what_does_not_fit(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            self.check(**changes)

    def test_references_do_not_matter_where_none_are_probed(self) -> None:
        self.check(num_references=100_000, selects=False)


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


@pytest.mark.parametrize(
    ("name", "size"), [("gsm8k_train.jsonl", 7473), ("math500_test.jsonl", 500)]
)
def test_real_questions(name: str, size: int) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"needs {name} in shared/data beside the repository")
    assert len(load_pool(DataConfig(source=str(DATA / name)))) == size
