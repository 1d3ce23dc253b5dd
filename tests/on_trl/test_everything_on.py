"""Every switch beyond the paper on the real trainer: numbers of the batch, and its gradient."""

import pytest
import torch

from evenodds.loss import second_moment_mask
from evenodds.trl import EfficiencyConfig
from evenodds.trl import batch as batches

from tiny_trl import EVERYTHING, SMALL

pytestmark = pytest.mark.slow


def lines(trainer):
    return [line for line in trainer.state.log_history if "select/num_fresh" in line]


def watched(trainer):
    """The micro-batches as they went into the loss, with what `_correct` made of them."""
    seen = []
    correct = trainer._correct

    def spy(inputs, logps):
        before = {name: inputs[name] for name in ("advantages", batches.REPLAYED)}
        correct(inputs, logps)
        seen.append((before, dict(inputs), logps))

    trainer._correct = spy
    return seen


def test_the_preset_trains_without_references_of_its_own(make_trainer):
    trainer = make_trainer(EfficiencyConfig.preset("evenodds", num_references=4), max_steps=4)
    trainer.train()
    assert [line["select/num_references"] for line in lines(trainer)] == [0] * 4
    assert [line["select/num_fresh"] for line in lines(trainer)] == [2] * 4  # a quarter of 8
    assert [line["replay/num_replayed"] for line in lines(trainer)] == [0] * 4
    assert lines(trainer)[0]["select/num_joined"] == 2  # all of them
    assert all(line["train/num_groups"] <= 2 for line in lines(trainer))
    assert trainer.loop.estimator.step == 4


def test_everything_at_once(make_trainer):
    trainer = make_trainer(EVERYTHING, max_steps=6)
    trainer.train()
    last = lines(trainer)[-1]
    assert last["replay/num_replayed"] >= 2
    assert 0 < last["replay/ess"] <= 1
    assert any(line["replay/num_refilled"] > 0 for line in lines(trainer))
    assert len(trainer.loop.buffer) > 0


def test_refilled_places_hold_stored_groups_instead_of_dead_ones(make_trainer):
    config = SMALL.replace(selection="host", refill=True, capacity=24, fresh_fraction=0.75)
    trainer = make_trainer(config, max_steps=6, gradient_accumulation_steps=1,
                           per_device_train_batch_size=32)  # fmt: skip
    seen = watched(trainer)
    trainer.train()
    groups = [len(inputs["advantages"]) // 4 for _, inputs, _ in seen]
    assert groups == [8] * len(groups)  # as many groups as ever
    mixed = [line for line in lines(trainer) if line["replay/num_replayed"]]
    assert any(line["replay/num_refilled"] for line in mixed)
    for line, (before, _, _) in zip(lines(trainer), seen, strict=True):
        assert int(before[batches.REPLAYED].sum()) // 4 == line["replay/num_replayed"]
        alive = (before["advantages"] != 0).sum()
        assert alive >= 4 * line["replay/num_replayed"] // 2


def test_the_most_off_policy_tokens_leave_the_loss(make_trainer):
    config = SMALL.replace(selection="host", second_moment_bound=1e-4, capacity=24)
    trainer = make_trainer(config, max_steps=5, learning_rate=2e-2)
    seen = watched(trainer)
    trainer.train()
    left_out = 0
    for before, inputs, logps in seen:
        replayed = before[batches.REPLAYED]
        if not replayed.any():
            continue
        stale = replayed[:, None] & batches.loss_tokens(inputs).bool()
        log_ratio = (logps - inputs[batches.STORED])[stale]
        kept = second_moment_mask(log_ratio, 1e-4)
        expected = before["advantages"][:, None].expand_as(stale)[stale]
        expected = expected * torch.exp(log_ratio) * kept
        torch.testing.assert_close(inputs["advantages"][stale], expected, rtol=1e-4, atol=1e-6)
        assert float(log_ratio[kept].double().square().mean() if kept.any() else 0) <= 1e-4
        left_out += int((~kept).sum())
    assert left_out > 0
