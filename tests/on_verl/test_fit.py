"""The real `PPOTrainerSync.fit()` with the plug-in: what it chose, trained on and recorded."""

import numpy as np
import pytest

from evenodds.comparison.runs import read_run
from evenodds.files import read_lines


def numbers(result, name):
    """A metric of verl's logger, a value a training step."""
    return [line[name] for _, line in result["logged"] if "training/global_step" in line]


def test_without_selection_and_replay_it_is_stock_verl(result):
    stock, plain = result("stock"), result("plain")
    assert plain["asked"] == stock["asked"]
    assert plain["weights"] == stock["weights"]


def test_references_selection_and_replay_take_turns(result):
    paper = result("paper")
    assert [len(asked) for asked in paper["asked"]] == [8, 4, 2, 8, 2, 2, 8, 2, 2]
    assert numbers(paper, "select/num_references") == [8, 0, 8, 0, 8, 0]
    assert numbers(paper, "select/num_fresh") == [4, 2, 2, 2, 2, 2]
    assert numbers(paper, "replay/num_replayed") == [0, 2, 2, 2, 2, 2]
    assert numbers(paper, "train/num_groups") == [4] * 6
    assert set(paper["group_sizes"]) == {4}
    assert paper["left_in_queue"] == 0


def test_advantages_are_those_of_whole_groups(result):
    for name in ("paper", "evenodds", "rr"):
        assert max(result(name)["advantage_gaps"]) < 1e-6


def test_the_loss_is_the_decoupled_one(result):
    paper = result("paper")
    lowest = min(low for low, _ in paper["ratios"])
    highest = max(high for _, high in paper["ratios"])
    assert lowest < 0.9 < 1.1 < highest, "replayed rollouts are off-policy, and not truncated"
    assert max(paper["gradient_gaps"]) < 1e-6


def test_a_killed_run_resumes_exactly(result, folder):
    paper, killed, resumed = result("paper"), result("killed"), result("resumed")
    done = [len(asked) for asked in killed["asked"]]
    assert done == [8, 4, 2, 8, 2, 2]  # the fourth step is behind the checkpoint of the third
    assert resumed["asked"] == paper["asked"][5:]
    assert resumed["weights"] == paper["weights"]
    for name in ("metrics.jsonl", "selections.jsonl"):
        lines = [_without_times(read_lines(folder / run / name)) for run in ("paper", "killed")]
        assert lines[0] == lines[1]


def _without_times(lines):
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in lines]


def test_everything_beyond_the_paper(result):
    found = result("evenodds")
    assert numbers(found, "select/num_references") == [0] * 6
    assert numbers(found, "select/num_joined")[0] == 4
    assert any(count > 0 for count in numbers(found, "replay/num_refilled"))
    assert all(4 >= count >= 2 for count in numbers(found, "train/num_groups"))
    assert found["left_in_queue"] == 0
    assert max(found["gradient_gaps"]) < 1e-6


def test_replay_alone_follows_verls_own_order(result):
    rr, stock = result("rr"), result("stock")
    assert rr["asked"][0] == stock["asked"][0]
    assert rr["asked"][1] == stock["asked"][1][:2]
    assert numbers(rr, "replay/num_replayed") == [0, 2, 2]


def test_a_group_that_lost_a_session_counts_and_is_not_stored(result):
    failing = result("failing")
    assert min(failing["group_sizes"]) == 3
    assert all(np.isfinite(numbers(failing, "reward/mean")))
    assert failing["left_in_queue"] == 0


def test_memory_of_the_buffer_is_reported(result):
    paper = result("paper")
    stored, each = numbers(paper, "replay/bytes")[-1], numbers(paper, "replay/bytes_per_group")[-1]
    assert stored / each == pytest.approx(8)  # capacity
    # ids and log-probs of at most 6 tokens, 8 bytes each, 4 rollouts, the prompt, rewards
    assert 4 * 8 < each < 4 * 6 * 8 + 4 * 8 + 4 * 8 + 4 * 4


def test_a_report_can_be_made_of_the_run(result, folder):
    result("paper")
    run = read_run(folder / "paper")
    assert run.step_S.tolist() == [1, 2, 3, 4, 5, 6]
    steps, accuracy = run.accuracy
    assert steps.tolist() == [0, 3, 6]
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    predicted, observed = run.pairs("reference")
    assert len(predicted) == len(observed) == 24
    assert (run.column("time/step_s") > 0).all()
