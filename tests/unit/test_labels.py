import json

import numpy as np
import pytest

from evenodds.errors import DataError
from evenodds.labels import read_labels, table_of_rows
from evenodds.questions import question_id


def row(question="1+1?", policy="small", n_samples=4, n_correct=1, **more):
    return {
        "question": question,
        "policy": policy,
        "n_samples": n_samples,
        "n_correct": n_correct,
        **more,
    }


ROWS = [
    row(),
    row(policy="large", n_correct=4),
    row("2+2?", n_samples=8, n_correct=2, source="train"),
]


def test_counts_become_failure_rates():
    table = table_of_rows(ROWS)
    assert table.policies == ("small", "large")
    assert table.texts == ("1+1?", "2+2?")
    assert table.ids == (question_id("1+1?"), question_id("2+2?"))
    np.testing.assert_array_equal(table.samples_LN, [[4, 8], [4, 0]])
    np.testing.assert_allclose(table.difficulty_LN, [[0.75, 0.75], [0.0, np.nan]])


def test_repeated_records_add_up():
    table = table_of_rows([row(), row(n_samples=4, n_correct=3)])
    np.testing.assert_array_equal(table.samples_LN, [[8]])
    np.testing.assert_allclose(table.difficulty_LN, [[0.5]])


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_every_format_reads_the_same(tmp_path, suffix):
    path = tmp_path / f"labels.{suffix}"
    rows = [row("a"), row("b", n_correct=3)]
    if suffix == "jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    else:
        import pandas

        frame = pandas.DataFrame(rows)
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    table = read_labels(path)
    assert table.texts == ("a", "b")
    np.testing.assert_array_equal(table.correct_LN, [[1, 3]])


def test_labels_are_put_in_the_order_of_a_pool():
    table = table_of_rows([row("a", n_correct=1), row("b", n_correct=2)])
    pool = [question_id(text) for text in ("b", "unknown", "a")]
    aligned = table.aligned(pool)
    np.testing.assert_array_equal(aligned.correct_LN, [[2, 0, 1]])
    np.testing.assert_array_equal(aligned.samples_LN, [[4, 0, 4]])
    with pytest.raises(DataError, match="no question in common"):
        table.aligned([question_id("other")])


def test_policies_and_questions_are_picked_by_name_and_place():
    table = table_of_rows([row("a"), row("b"), row("a", policy="large", n_correct=4)])
    large = table.of_policies(["large"])
    np.testing.assert_array_equal(large.samples_LN, [[4, 0]])
    assert table.of_questions(np.array([1])).texts == ("b",)
    with pytest.raises(DataError, match="lacks a policy"):
        table.of_policies(["lagre"])


def test_policies_are_picked_by_pattern_in_the_order_of_the_table():
    table = table_of_rows([row(policy=f"step-{number}") for number in (30, 5, 10)])
    assert table.matching(["step-1*", "step-3?"]).policies == ("step-30", "step-10")
    with pytest.raises(DataError, match=r"no policy .*\n.*got: +step-9"):
        table.matching(["step-9"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "the label table is empty"),
        ([{"question": "a", "policy": "p", "n_samples": 1}], "no column 'n_correct'"),
        ([{"policy": "p", "n_samples": 1, "n_correct": 1}], "no column 'question'"),
        ([row(n_correct=5)], "row 1 of labels has impossible counts"),
        ([row(n_samples=0, n_correct=0)], "impossible counts"),
        ([row(), row(n_correct=0.5)], "row 2 of labels: n_correct is no count"),
        ([row(n_correct=None)], "is no count"),
        ([row(question=" ")], "names no question"),
    ],
)
def test_mistakes_say_which_row(rows, message):
    with pytest.raises(DataError, match=message):
        table_of_rows(rows)


def test_a_missing_file_is_said_so(tmp_path):
    with pytest.raises(DataError, match="no such label table"):
        read_labels(tmp_path / "labels.csv")
    with pytest.raises(DataError, match="another form"):
        read_labels(tmp_path / "labels.xml")
