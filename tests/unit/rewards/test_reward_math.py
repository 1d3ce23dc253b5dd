"""The math reward: what is compared, and texts that would hang or crash a grader."""

import pickle
import threading

import pytest

from evenodds.errors import DataError
from evenodds.rewards import RewardConfig, make_reward
from evenodds.rewards.math import MathGrader, answer_of, as_latex, last_boxed


@pytest.fixture(scope="module")
def grader() -> MathGrader:
    return MathGrader(time_limit_s=1.0)


@pytest.mark.parametrize(
    ("completion", "gold", "reward"),
    [
        (r"so \boxed{72}", "72", 1.0),
        (r"so \boxed{73}", "72", 0.0),
        (r"\boxed{70000}", "70,000", 1.0),
        (r"$\boxed{0.5}$", r"\frac{1}{2}", 1.0),
        (r"\boxed{\dfrac12}", r"$\frac{1}{2}$", 1.0),
        (r"\boxed{\frac{1}{2}}", r"\boxed{\frac12}", 1.0),
        (r"\boxed{2x+1}", "1+2x", 1.0),
        (r"\boxed{x=5}", "5", 1.0),
        (r"\boxed{(3, \frac{\pi}{2})}", r"\left( 3, \frac{\pi}{2} \right)", 1.0),
        (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}", 1.0),
        (r"\boxed{18.90}", r"\$18.90", 1.0),
        (r"\boxed{\$36}", "$36", 1.0),
        (r"\boxed{5}", "Add 2 and 3 to get <<2+3=5>>5.\n#### 5", 1.0),
        (r"\boxed{5}", r"We add $2$ and $3$, so the sum is $\boxed{5}$, of course.", 1.0),
        (r"first \boxed{13}, no: \boxed{12}", "12", 1.0),
        (r"first \boxed{12}, no: \boxed{13}", "12", 0.0),
        (r"\boxed{12} and again \boxed{1", "12", 1.0),
        (r"<answer>\frac{1}{2}</answer>", "0.5", 1.0),
        ("<answer>12</answer> instead of 13", "12", 1.0),
        ("The answer is 12.", "12", 1.0),
        ("The answer is $12$, not 13", "12", 1.0),
        ("", "12", 0.0),
        (r"\boxed{}", "12", 0.0),
        ("I do not know", "12", 0.0),
        ("\ud83d é😀 \\boxed{12}", "12", 1.0),
    ],
)
def test_grade(grader: MathGrader, completion: str, gold: str, reward: float) -> None:
    assert grader.grade(completion, gold) == reward


@pytest.mark.parametrize(
    "completion",
    [
        r"\boxed{9^{9^{9^9}}}",
        r"\boxed{" * 100_000 + "12",
        "(" * 1_000_000,
        r"\boxed{" + "9" * 19_000 + "}",
    ],
)
def test_texts_without_end_are_wrong_and_the_next_is_graded(
    grader: MathGrader, completion: str
) -> None:
    assert grader.grade(completion, "12") == 0.0
    assert grader.grade(r"\boxed{12}", "12") == 1.0


def test_only_the_end_of_a_huge_text_is_read(grader: MathGrader) -> None:
    assert grader.grade(r"\boxed{12}" + "x" * 20_000, "12") == 0.0
    assert grader.grade("12 " * 500_000 + r"so \boxed{13}", "13") == 1.0
    assert len(answer_of("no box " * 10_000)) == 2_000


def test_other_threads_may_grade(grader: MathGrader) -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(grader.grade(r"\boxed{12}", "12")))
    thread.start()
    thread.join()
    assert found == [1.0]


@pytest.mark.parametrize(
    ("text", "boxed"),
    [
        (r"a \boxed{1} b", r"\boxed{1}"),
        (r"\boxed {1}", r"\boxed{1}"),
        (r"\fbox{1}", r"\boxed{1}"),
        (r"\boxed{\frac{1}{2}}", r"\boxed{\frac{1}{2}}"),
        (r"\boxed{\{1, 2\}}", r"\boxed{\{1, 2\}}"),
        (r"\boxed{a\\}", r"\boxed{a\\}"),
        (r"\boxed{\boxed{1}}", r"\boxed{\boxed{1}}"),
        (r"} \boxed{1} {", r"\boxed{1}"),
        (r"\boxed{1", None),
        ("{1}", None),
        ("", None),
    ],
)
def test_last_boxed(text: str, boxed: str | None) -> None:
    assert last_boxed(text) == boxed


@pytest.mark.parametrize(
    ("gold", "latex"),
    [
        ("5", r"\boxed{5}"),
        ("x\n#### 5 ", r"\boxed{5}"),
        ("$x$", "$x$"),
        (r"\$5", r"\boxed{\$5}"),
        ("-$1000", r"\boxed{-1000}"),
        (r"$a$ and \boxed{b}", r"\boxed{b}"),
    ],
)
def test_as_latex(gold: str, latex: str) -> None:
    assert as_latex(gold) == latex


def test_reference_answers_are_checked_once_at_the_start() -> None:
    reward = make_reward(RewardConfig(kind="math"))
    reward.check(["72", "70,000", "-1.5", r"\frac{1}{2}", r"\text{Evelyn}", "x\n#### 5"])
    with pytest.raises(DataError) as caught:
        reward.check(["72", "", "$ $"], ids=["a1", "b2", "c3"])
    text = str(caught.value)
    assert "the math reward cannot grade 2 of the reference answers" in text
    assert "'' of question b2, '$ $' of question c3" in text
    assert "a number or LaTeX that math-verify can parse" in text


def test_trls_calling_form() -> None:
    reward = make_reward(RewardConfig(kind="math"))
    assert reward.__name__ == "math"
    chats = [[{"role": "assistant", "content": rf"\boxed{{{n}}}"}] for n in (1, 2, 3)]
    rewards = reward(
        prompts=["p"] * 3,
        completions=chats,
        completion_ids=[[1]] * 3,
        answer=["1", "1", "3"],
        question_id=["a", "a", "b"],
        trainer_state=None,
    )
    assert rewards == [1.0, 0.0, 1.0]
    assert pickle.loads(pickle.dumps(reward))(["p"], [r"\boxed{4}"], answer=["4"]) == [1.0]
