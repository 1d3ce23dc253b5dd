import json

import numpy as np
import pytest

from evenodds.comparison.runs import read_run
from evenodds.comparison.savings import compare_arms, courses_of
from evenodds.errors import DataError

from steady_runs import write_run

LINE = [0.2, 0.3, 0.4]  # plain GRPO: 20 steps of 2 seconds
FAST = [0.2, 0.4, 0.6]  # reaches 0.4 after 10 steps


def courses(tmp_path, name, curves, **facts):
    runs = [
        read_run(write_run(tmp_path / f"{name}-{seed}", curve, **facts))
        for seed, curve in enumerate(curves)
    ]
    return courses_of(name, range(len(curves)), runs)


def test_what_an_arm_took_by_hand(tmp_path):
    plain = courses(tmp_path, "grpo", [LINE, LINE])
    arm = courses(tmp_path, "fast", [FAST, FAST], seconds=1.5, fresh=2, replayed=2, references=1)
    grpo, fast = compare_arms([plain, arm], "grpo", bandwidth=0.0)
    assert grpo.target == fast.target == pytest.approx(0.4)
    assert grpo.costs == pytest.approx(
        {"steps": 20, "seconds": 40, "rollouts": 8 * 4 * 20, "tokens": 80 * 4 * 20}
    )
    assert fast.costs == pytest.approx(
        {"steps": 10, "seconds": 15, "rollouts": 8 * 3 * 10, "tokens": 80 * 3 * 10}
    )
    assert grpo.savings["seconds"].mean == pytest.approx(0.0)
    assert fast.savings["steps"].mean == pytest.approx(0.5)
    assert fast.savings["seconds"].mean == pytest.approx(1 - 15 / 40)
    assert fast.savings["rollouts"].mean == pytest.approx(1 - 240 / 640)
    assert fast.step_saving.mean == pytest.approx(0.25)
    # the cost model: half of the steps, each 0.47 * 3/4 + 0.53 of a plain one
    assert fast.modelled[0.47].mean == pytest.approx(1 - 0.5 * (0.47 * 0.75 + 0.53))
    assert fast.final.mean == pytest.approx(0.6)
    # both seeds are alike, so drawing them anew changes nothing
    assert (fast.savings["steps"].low, fast.savings["steps"].high) == pytest.approx((0.5, 0.5))


def test_the_papers_cost_model_is_reproduced(tmp_path):
    """Equal steps, delta = 0.5, K a quarter of the batch a step, g = 0.47: the paper's 11.7 %."""
    plain = courses(tmp_path, "grpo", [LINE], fresh=4)
    arm = courses(tmp_path, "paper", [LINE], fresh=2, replayed=2, references=1)
    result = compare_arms([plain, arm], "grpo", bandwidth=0.0)[1]
    assert result.modelled[0.47].mean == pytest.approx(0.1175)


def test_an_arm_that_never_gets_there_says_so(tmp_path):
    plain = courses(tmp_path, "grpo", [LINE, LINE])
    arm = courses(tmp_path, "slow", [[0.2, 0.25, 0.3], [0.2, 0.25, 0.3]])
    slow = compare_arms([plain, arm], "grpo", bandwidth=0.0)[1]
    assert slow.costs["seconds"] == float("inf")
    assert slow.savings["seconds"].reached == 0.0
    assert str(slow.savings["seconds"]) == "not reached"
    record = json.loads(json.dumps(slow.as_dict(), allow_nan=False))
    assert record["seconds_to_target"] is None
    assert record["seconds_saving"]["mean"] is None


def test_seeds_that_do_not_get_there_open_the_interval_downwards(tmp_path):
    plain = courses(tmp_path, "grpo", [LINE, LINE, LINE])
    mixed = courses(tmp_path, "mixed", [FAST, FAST, [0.2, 0.2, 0.2]])
    saving = compare_arms([plain, mixed], "grpo", bandwidth=0.0)[1].savings["steps"]
    assert 0.6 < saving.reached < 0.8  # two or three bad draws of three have chance 7/27
    assert saving.low == -np.inf
    assert saving.high == pytest.approx(0.5)
    assert "not reached" in str(saving)


def test_seeds_are_drawn_together(tmp_path):
    """A seed in which both arms are good by the same amount says nothing of their difference."""
    plain = courses(tmp_path, "grpo", [[0.2, 0.3, 0.4], [0.1, 0.2, 0.3]])
    twin = courses(tmp_path, "twin", [[0.2, 0.3, 0.4], [0.1, 0.2, 0.3]])
    saving = compare_arms([plain, twin], "grpo", bandwidth=0.0)[1].savings["steps"]
    assert (saving.low, saving.mean, saving.high) == pytest.approx((0.0, 0.0, 0.0))


def test_embedding_counts_as_training_time_and_evaluating_does_not(tmp_path):
    run = read_run(write_run(tmp_path / "run", LINE, embed=7.0))
    assert run.seconds_S[0] == pytest.approx(9.0)
    assert run.seconds_S[-1] == pytest.approx(47.0)
    assert run.evaluation_seconds == pytest.approx(3.0)


def test_arms_need_the_same_seeds_a_baseline_and_evaluations(tmp_path):
    plain = courses(tmp_path, "grpo", [LINE, LINE])
    short = courses(tmp_path, "short", [FAST])
    with pytest.raises(DataError, match="different seeds"):
        compare_arms([plain, short], "grpo")
    with pytest.raises(DataError, match="no plain GRPO"):
        compare_arms([short], "grpo")
    with pytest.raises(DataError, match=r"evaluation\.every"):
        courses(tmp_path, "blind", [[0.2]])


def test_arms_are_cut_to_what_all_of_their_runs_have(tmp_path):
    runs = [
        read_run(write_run(tmp_path / "a", LINE)),
        read_run(write_run(tmp_path / "b", [0.2, 0.3])),
    ]
    cut = courses_of("arm", [0, 1], runs)
    assert cut.evaluated_E.tolist() == [0, 10]
    assert cut.costs_SE["seconds"].tolist() == [[0, 20], [0, 20]]
