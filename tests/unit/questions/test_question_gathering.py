"""Rows on their way into a pool: gaps, duplicates and contradictions."""

import pytest

from evenodds.questions import question_id

from question_rows import ROWS, gather, refusal_of_rows


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

    def test_a_prompt_in_which_nobody_asks_is_empty(self) -> None:
        text = refusal_of_rows([{"prompt": [{"role": "assistant", "content": "2"}]}])
        assert "prompt is empty in 1 of the rows" in text
