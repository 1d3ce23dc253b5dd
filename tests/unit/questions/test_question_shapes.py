"""The three shapes of a row, and rows that have none of them."""

import json
import logging
from typing import Any

import pytest

from evenodds.questions import question_id

from question_rows import CHAT, ROWS, gather, refusal_of_rows


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
