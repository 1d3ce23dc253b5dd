import json

import numpy as np
import pytest

from evenodds.loop import StepRecord
from evenodds.recorder import RunRecorder, summarise

from builders import observation


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_metrics_keep_numbers_and_turn_the_rest_into_null(tmp_path):
    recorder = RunRecorder(tmp_path / "new" / "run")
    recorder.metrics({"step": 1, "a": 0.5, "b": float("nan"), "c": float("inf"), "d": None})
    line = {"step": 1, "a": 0.5, "b": None, "c": None, "d": None}
    assert lines(tmp_path / "new/run/metrics.jsonl") == [line]


def test_a_selection_by_hand(tmp_path):
    record = StepRecord(
        step=0,
        references=observation([3, 4], [0.5, 1.0]),
        reference_prediction_K=np.array([0.25, 0.75], dtype=np.float32),
        in_batch=False,
        fresh=observation([7], [0.125]),
        fresh_prediction_F=np.array([np.nan], dtype=np.float32),
        replayed=np.array([9]),
        replayed_ages=np.array([2]),
        replayed_difficulty=np.array([0.5], dtype=np.float32),
        replayed_uses=np.array([3]),
        num_refilled=0,
        buffer_size=1,
        pool_bins=np.arange(10),
    )
    RunRecorder(tmp_path).selection(1, record, lambda row: f"q{row}")
    assert lines(tmp_path / "selections.jsonl") == [
        {
            "step": 1,
            "fresh": {"id": ["q7"], "predicted": [None], "observed": [0.125]},
            "replayed": {"id": ["q9"], "age": [2], "observed": [0.5], "uses": [3]},
            "reference": {"id": ["q3", "q4"], "predicted": [0.25, 0.75], "observed": [0.5, 1.0]},
            "references_in_batch": False,
            "pool": list(range(10)),
        }
    ]


def test_resuming_drops_the_lines_behind_the_checkpoint(tmp_path):
    recorder = RunRecorder(tmp_path)
    for step in range(5):
        recorder.metrics({"step": step})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "rew')  # killed while writing
    recorder.resume(3)
    assert [line["step"] for line in lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3]


def test_starting_anew_keeps_what_was_there(tmp_path):
    recorder = RunRecorder(tmp_path)
    for run in range(3):
        recorder.start()
        recorder.metrics({"step": run})
    names = ("metrics.1.jsonl", "metrics.2.jsonl", "metrics.jsonl")
    assert [lines(tmp_path / name)[0]["step"] for name in names] == [0, 1, 2]


def test_a_correlation_is_averaged_where_references_were_observed():
    facts = [(2, 0, 0.5), (0, 0, 0.5), (0, 4, 0.7), (0, 0, 0.7)]  # besides, within the batch, r
    steps = [
        {
            "step": step,
            "reward/mean": 0.5,
            "select/num_references": besides,
            "select/num_joined": joined,
            "select/pearson": r,
        }
        for step, (besides, joined, r) in enumerate(facts, start=1)
    ]
    summary = summarise([{"step": 0, "eval/accuracy": 0.1}, *steps])
    assert summary["select/pearson"] == pytest.approx(0.6)
    assert (summary["steps"], summary["select/num_references"]) == (4, 2)
