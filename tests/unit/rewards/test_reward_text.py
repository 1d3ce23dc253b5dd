"""What counts as the text and as the answer of a completion."""

from typing import Any

import pytest

from evenodds.errors import RewardError
from evenodds.rewards.text import completion_text, final_answer, num_lines, tagged_answer


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("", ""),
        ([], ""),
        ([{"role": "assistant", "content": "hello"}], "hello"),
        ([{"content": "hello"}], "hello"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], ""),
        ([{"role": "assistant", "content": [{"type": "text", "text": "héllo 😀"}]}], "héllo 😀"),
        (
            [
                {"role": "assistant", "content": "let me look"},
                {"role": "tool", "content": "42"},
                {"role": "assistant", "content": "it is 42"},
            ],
            "let me look\nit is 42",
        ),
    ],
)
def test_completion_text(completion: Any, text: str) -> None:
    assert completion_text(completion) == text


@pytest.mark.parametrize("completion", [None, 5, ["text"], {"content": "x"}])
def test_completions_that_cannot_be_read(completion: Any) -> None:
    with pytest.raises(RewardError, match="text, or a list of messages with `role`") as caught:
        completion_text(completion)
    assert f"got:      {completion!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", ""),
        ("\n \n", ""),
        (" 5 ", "5"),
        ("I think.\n\n 5\n\n", "5"),
        ("<answer>5</answer> is it", "5"),
        ("<answer>4</answer> no: <answer>\n 5\n</answer>", "5"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("</answer>\n5", "5"),
        ("<answer>5", "<answer>5"),
    ],
)
def test_final_answer(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_final_answer_of_several_lines() -> None:
    assert final_answer("So:\n1 2\n\n3 4\n", num_lines=2) == "1 2\n3 4"
    assert final_answer("3 4", num_lines=2) == "3 4"


def test_num_lines() -> None:
    assert [num_lines(text) for text in (None, "", "5", "1 2\n\n3 4\n")] == [1, 1, 1, 2]


def test_tagged_answer() -> None:
    assert tagged_answer("no tag") is None
    assert tagged_answer("<answer></answer>") == ""


def test_huge_texts_are_read_in_linear_time() -> None:
    assert final_answer("<answer>" * 500_000 + "\n5") == "5"
    assert final_answer("\n" * 2_000_000 + "5") == "5"
