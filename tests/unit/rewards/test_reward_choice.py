"""The multiple-choice reward."""

import pytest

from evenodds.rewards.choice import chosen_letter, fault, grade


@pytest.mark.parametrize(
    ("completion", "letter"),
    [
        (r"so \boxed{C}.", "C"),
        (r"\boxed{ (c) }", "C"),
        (r"\boxed{\text{C}}", "C"),
        (r"$\boxed{\textbf{(C)}\ 42}$", "C"),
        (r"\boxed{A}, no, \boxed{B}", "B"),
        (r"\boxed{42}, that is (D)", "D"),
        (r"\boxed{a+b}, that is (D)", "D"),
        (r"\boxed{B}, although the answer is C", "B"),
        ("The answer is C.", "C"),
        ("the correct answer is: **C**", "C"),
        ("**Answer:** C", "C"),
        ("Answer: (C) because (A) is wrong", "C"),
        ("Answer: option C", "C"),
        (r"The final answer is $\text{C}$", "C"),
        ("ANSWER: C", "C"),
        ("First (A), but I take (C)", "C"),
        ("It is B, or rather C.", "C"),
        ("C", "C"),
        ("C) because the others are wrong", "C"),
        ("A", "A"),
        ("I", "I"),
        ("B. A triangle has three sides, I think.", "B"),
        ("B. I'm sure", "B"),
        ("A is right", "A"),
        ("<answer>C</answer> and not (D)", "C"),
        ("<answer>C) 42</answer>", "C"),
        ("答案是 C。", "C"),
        ("", None),
        ("no capital letter", None),
        ("DNA and CO2 in Berlin", None),
        ("Z", None),
        ("The answer is unclear", None),
    ],
)
def test_chosen_letter(completion: str, letter: str | None) -> None:
    assert chosen_letter(completion) == letter


def test_grade() -> None:
    assert grade("Answer: C", " C ") == 1.0
    assert grade("Answer: C", "D") == 0.0
    assert grade("", "C") == 0.0


@pytest.mark.parametrize("gold", ["A", " J ", "E\n"])
def test_letters_are_no_fault(gold: str) -> None:
    assert fault(gold) is None


@pytest.mark.parametrize("gold", ["K", "c", "(C)", "AB", "", "4"])
def test_reference_answers_at_fault(gold: str) -> None:
    assert fault(gold) == "one capital letter from A to J"


@pytest.mark.parametrize(
    "text",
    ["answer" + " " * 10**6, "answer is " * 10**5, "\\boxed{" * 10**5, "(" * 10**6, "A" * 10**6],
)
def test_huge_texts(text: str) -> None:
    assert chosen_letter(text) is None
    assert chosen_letter(text + "\nAnswer: C") == "C"
