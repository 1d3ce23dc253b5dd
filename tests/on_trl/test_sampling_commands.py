"""`evenodds eval` and `evenodds label`, as a user types them."""

import json

import pytest

from evenodds.cli import main
from evenodds.labels import read_labels

from tiny import save_policy

SHORT = ["--max-new-tokens", "3", "--reward", "exact", "--system-prompt", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    for name in ("first", "second"):
        save_policy(folder / name, seed=len(name))
    rows = [{"question": f"{i}+{i % 7}=", "answer": str(i)} for i in range(9)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "sums.jsonl").write_text(lines)
    (folder / "empty.jsonl").write_text("")
    return folder


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_results_are_those_of_the_questions(tmp_path, capsys):
    out = tmp_path / "out"
    command = ["eval", "first", "--benchmarks", "sums.jsonl", "--out", str(out), "-n", "2", *SHORT]
    assert main(command) == 0
    results = json.loads((out / "results.json").read_text())
    found = results["benchmarks"]["sums"]
    lines = records(out / "sums/questions.jsonl")
    tokens = [count for line in lines for count in line["num_tokens"]]
    assert (found["questions"], found["samples"], len(tokens)) == (9, 2, 18)
    assert found["tokens_mean"] == pytest.approx(sum(tokens) / 18)
    cut_off = [cut for line in lines for cut in line["truncated"]]
    assert found["truncated"] == pytest.approx(sum(cut_off) / 18)
    scores = [score for line in lines for score in line["scores"]]
    assert found["accuracy"] == pytest.approx(sum(scores) / 18)
    assert "sums" in capsys.readouterr().out
    before = (out / "sums/questions.jsonl").read_bytes()
    assert main(command) == 0
    assert before == (out / "sums/questions.jsonl").read_bytes()
    assert main([*command, "--seed", "1"]) == 2
    assert "holds the results of another seed" in capsys.readouterr().err
    assert main(["eval", "second", *command[2:]]) == 2
    assert "holds the results of another model" in capsys.readouterr().err


def test_labels_of_a_further_policy_extend_the_table(tmp_path, capsys):
    out = tmp_path / "labels.parquet"
    for model in ("first", "second", "second"):
        command = ["label", model, "sums.jsonl", "-n", "3", "--out", str(out), *SHORT]
        assert main(command) == 0
    labels = read_labels(out)
    assert labels.policies == ("first", "second")
    assert labels.samples_LN.tolist() == [[3] * 9] * 2, "labels made twice do not add up"
    (lines,) = [records(p) for p in tmp_path.glob("labels.parquet.samples/first/*/*.jsonl")]
    solved = {line["question_id"]: sum(line["scores"]) for line in lines}
    assert dict(zip(labels.ids, labels.correct_LN[0].tolist(), strict=True)) == solved
    before = out.read_bytes()
    command = ["label", "second", "sums.jsonl", "-n", "3", "--name", "first", "--out", str(out)]
    assert main([*command, *SHORT]) == 2, "the name is another policy's"
    assert "holds the results of another model" in capsys.readouterr().err
    assert before == out.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eval", "gone", "--benchmarks", "gsm8"], "did you mean 'gsm8k'"),
        (["eval", "gone", "--benchmarks", "sums.jsonl", "-n", "0"], "sampling.samples"),
        (["eval", "gone", "--benchmarks", ","], "no benchmark was named"),
        (["eval", "gone", "--benchmarks", "toy,toy"], "named twice"),
        (["eval", "gone", "--benchmarks", "empty.jsonl"], "there are no questions"),
        (["eval", "gone", "--benchmarks", "sum.jsonl"], "did you mean 'sums.jsonl'"),
        (["eval", "gone", "--benchmarks", "toy", "--out", "first"], "output folder is in use"),
        (["eval", "gone", "--benchmarks", "toy", "--out", "/proc/x"], "cannot be written to"),
        (["eval", "gone", "--benchmarks", "toy", "--engine", "vllm"], "vLLM cannot be used here"),
        (["eval", "gone", "--benchmarks", "toy"], "'gone' cannot be loaded"),
        (["eval", "toy", "--benchmarks", "toy", "--limit", "0"], "leaves no questions"),
        (["label", "gone", "sums.jsonl", "--out", "a.txt"], "label table has another form"),
        (
            ["label", "gone", "sums.jsonl", "--question-column", "q", "--out", "a.jsonl"],
            "there is no column 'q'",
        ),
    ],
)
def test_mistakes_end_in_one_message(folder, capsys, arguments, message):
    before = sorted(folder.rglob("*"))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("evenodds: ")
    assert message in error
    assert "Traceback" not in error
    assert sorted(folder.rglob("*")) == before, "nothing was begun"
