"""`benchmarks/reweighting.py`: its numbers by hand, and a short run of it."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from evenodds.toy import policy_path, pool

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reweighting.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("reweighting", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rates_and_effective_samples_by_hand(script):
    scores = np.array([1.0, 0.0, 1.0, 0.0])
    assert script.reweighted(scores, np.zeros(4)) == pytest.approx((0.5, 4.0))
    # weights 3, 1, 1, 1: (3 + 1) / 6 and 36 / 12
    assert script.reweighted(scores, np.log([3.0, 1, 1, 1])) == pytest.approx((4 / 6, 3.0))
    assert script.reweighted(scores, np.log([3.0, 1, 1, 1]) + 900) == pytest.approx((4 / 6, 3.0))


def test_log_probabilities_are_those_of_each_completion_alone(script):
    policy = script.Policy(policy_path(), 0)
    torch.manual_seed(0)
    answers = [group[0] for group in policy.answers(pool()[:12], 2)]
    together = policy.logps(answers)
    for answer, logp in zip(answers, together, strict=True):
        ids = torch.tensor([answer.tokens])
        with torch.no_grad():
            each = torch.log_softmax(policy.model(input_ids=ids).logits[0].float(), dim=-1)
        own = range(answer.num_prompt, len(answer.tokens))
        assert own
        alone = sum(float(each[at - 1, answer.tokens[at]]) for at in own)
        assert logp == pytest.approx(alone, abs=1e-3)
        ended = [token in policy.ends for token in answer.tokens[answer.num_prompt :]]
        assert not any(ended[:-1])


def test_a_run_is_followed(script, tmp_path, capsys):
    for step in (1, 2, 10):
        shutil.copytree(policy_path(), tmp_path / "checkpoints" / f"checkpoint-{step}")
    order = [path.name for path in script.checkpoints(tmp_path)]
    assert order == ["checkpoint-1", "checkpoint-2", "checkpoint-10"]
    found = script.follow(tmp_path, size=8, groups=4, hidden=8, seed=0)
    # After the first policy, 4 of 8 questions are known; all of them are asked.
    assert len(found["truth"]) >= 8
    # The policies are one and the same: all weights are 1.
    assert found["effective"] == pytest.approx(1.0, abs=1e-3)
    assert found["re-weighted"] == pytest.approx(found["mean of all"], abs=1e-3)
    script.main([str(tmp_path), "--questions", "8", "--groups", "4", "--hidden", "8"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in script.METHODS)


def test_a_run_without_checkpoints_is_refused(script, tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main([str(tmp_path)])
    assert "0 checkpoints; at least 2 are needed" in capsys.readouterr().err
