"""From a label table to a judged predictor, as a user types it."""

import csv
import json

import numpy as np
import pytest

from evenodds.cli import main
from evenodds.embedding_file import EmbeddingFile

TOPICS = {"sum": 0.9, "product": 0.6, "root": 0.3, "integral": 0.05}
PREDICT = ["predict", "P", "pool.jsonl", "--references", "labels.jsonl"]
PREDICT += ["--embeddings", "E", "--out"]
FIT = ["--width", "16", "--num-references", "20", "--epochs", "30", "--warmup-steps", "5"]
FIT += ["--learning-rate", "0.003", "--batch-size", "64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Labels of six policies that get better, on questions of four topics."""
    folder = tmp_path_factory.mktemp("study")
    generator = np.random.default_rng(0)
    questions = [
        (f"What is the {topic} of {generator.integers(99)} and {number}?", chance)
        for number in range(40)
        for topic, chance in TOPICS.items()
    ]
    lines = [
        json.dumps(
            {
                "question": text,
                "policy": f"visit{visit}",
                "n_samples": 8,
                "n_correct": int(generator.binomial(8, min(0.98, chance + 0.03 * visit))),
            }
        )
        for visit in range(6)
        for text, chance in questions
    ]
    (folder / "labels.jsonl").write_text("\n".join(lines))
    rows = [json.dumps({"question": text, "answer": "1"}) for text, _ in questions]
    (folder / "pool.jsonl").write_text("\n".join(rows))
    return folder


@pytest.fixture(scope="module")
def embeddings(folder):
    path = folder / "e.safetensors"
    assert (
        main(["embed", str(folder / "labels.jsonl"), "--model", "tfidf", "--out", str(path)]) == 0
    )
    return str(path)


@pytest.fixture(scope="module")
def predictor(folder, embeddings):
    path = folder / "p.safetensors"
    labels = str(folder / "labels.jsonl")
    hold_out = ["--hold-out", "time", "--share", "0.34"]
    command = ["fit", labels, "--embeddings", embeddings, "--out", str(path), *hold_out, *FIT]
    assert main([*command, "--json", str(folder / "fit.json")]) == 0
    return str(path)


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


def page_is_self_contained(path):
    text = path.read_text()
    assert "data:image/png;base64," in text
    return "http" not in text


def test_fit_leaves_a_predictor_a_page_and_its_learning_curve(folder, predictor):
    record = json.loads((folder / "fit.json").read_text())
    assert record["held_out"]["policies"] == ["visit4", "visit5"]
    assert len(record["loss"]) == len(record["validation_pearson"]) == 30
    assert page_is_self_contained(folder / "p.html")


def test_predict_writes_a_row_a_question(folder, embeddings, predictor, capsys):
    command = ["predict", predictor, "pool.jsonl", "--references", "labels.jsonl"]
    options = ["--policy", "visit5", "--embeddings", embeddings, "--out", "d.csv"]
    assert main([*command, *options, "--json", "predict.json"]) == 0
    with (folder / "d.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 160
    hard = [float(row["difficulty"]) for row in rows if "integral" in row["question"]]
    easy = [float(row["difficulty"]) for row in rows if "sum" in row["question"]]
    assert np.mean(hard) > np.mean(easy) + 0.3
    assert json.loads((folder / "predict.json").read_text())["pearson"] > 0.5
    assert "mean standard deviation" in capsys.readouterr().out
    assert page_is_self_contained(folder / "d.html")


def test_evaluate_prints_every_row(folder, embeddings, predictor, capsys):
    command = ["evaluate", predictor, "labels.jsonl", "--split", "time"]
    options = ["--embeddings", embeddings, "--num-references", "40", "--draws", "3"]
    assert main([*command, *options, "--json", "e.json", "--html", "e.html"]) == 0
    record = json.loads((folder / "e.json").read_text())
    names = [row["predictor"] for row in record["rows"]]
    assert len(names) == 10
    printed = capsys.readouterr().out
    assert all(name in printed for name in names)
    first = record["rows"][0]
    assert first["pearson_low"] <= first["pearson"] <= first["pearson_high"]
    assert page_is_self_contained(folder / "e.html")


def test_simulate_writes_the_promised_rows(folder, embeddings, predictor, capsys):
    command = ["simulate", "labels.jsonl", "--budget", "40", "--seeds", "2"]
    options = ["--embeddings", embeddings, "--predictor", predictor, "--json", "s.json"]
    assert main([*command, *options]) == 0
    rows = json.loads((folder / "s.json").read_text())["rows"]
    names = [row["strategy"] for row in rows]
    assert names == [
        "uniform",
        "constant",
        "tfidf",
        "raw",
        "paper",
        "last-label",
        "beta",
        "shared-model",
        "posterior",
        "oracle",
    ]
    wanted = {
        "strategy",
        "pearson",
        "spearman",
        "calibration_error",
        "standardised_error",
        "effective_fraction",
        "mean_signal",
        "rollouts",
        "visited",
    }
    assert all(wanted <= set(row) for row in rows)
    assert "share of the pool visited" in capsys.readouterr().out
    assert page_is_self_contained(folder / "simulate-labels.html")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["fit", "gone.csv", "--embeddings", "E", "--out", "x"], "there is no such label table"),
        (["fit", "labels.jsonl", "--embeddings", "gone", "--out", "x"], "gone"),
        (["fit", "labels.jsonl", "--embeddings", "E", "--out", "x", "--epochs", "0"], "at least 1"),
        (["evaluate", "P", "labels.jsonl", "--embeddings", "E", "--split", "both"], "has seen"),
        (["evaluate", "E", "labels.jsonl", "--embeddings", "E"], "not a predictor"),
        (["simulate", "labels.jsonl", "--strategy", "paper"], "needs --predictor"),
        (["simulate", "labels.jsonl", "--strategy", "best"], "unknown strategy 'best'"),
        (["simulate", "labels.jsonl", "--budget", "159"], "larger than what may be picked"),
        (
            [*PREDICT, "d.csv"],
            "references are labels of one policy",
        ),
        (
            [*PREDICT, "d.txt"],
            "another form",
        ),
    ],
)
def test_mistakes_end_in_one_message(folder, embeddings, predictor, capsys, command, message):
    places = {"E": embeddings, "P": predictor}
    assert main([places.get(part, part) for part in command]) == 2
    error = capsys.readouterr().err
    assert error.startswith("evenodds: ")
    assert message in error


def test_several_pools_are_embedded_once_each(folder, capsys):
    more = [json.dumps({"question": "What is new?", "answer": "1"})]
    (folder / "more.jsonl").write_text("\n".join([*more, (folder / "pool.jsonl").read_text()]))
    command = ["embed", "pool.jsonl", "more.jsonl", "--model", "tfidf", "--out", "m.safetensors"]
    assert main(command) == 0
    assert len(EmbeddingFile.read(folder / "m.safetensors")) == 161


def test_embeddings_of_another_model_are_refused(folder, predictor, capsys):
    other = folder / "other.jsonl"
    lines = (folder / "labels.jsonl").read_text().splitlines()
    other.write_text("\n".join([*lines, lines[0].replace("What is", "Which number is")]))
    assert main(["embed", "other.jsonl", "--model", "tfidf", "--out", "o.safetensors"]) == 0
    command = ["evaluate", predictor, "labels.jsonl", "--embeddings", "o.safetensors"]
    assert main([*command, "--num-references", "40"]) == 2
    assert "trained on other embeddings" in capsys.readouterr().err
