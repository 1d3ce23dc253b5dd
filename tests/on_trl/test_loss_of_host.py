"""The host's loss on a batch with replayed rows is the explicit off-policy loss."""

import numpy as np
import pytest
import torch

from evenodds.loss import off_policy_loss
from evenodds.replay_share import ratios_of_totals
from evenodds.trl import batch as batches

from tiny_trl import SMALL

REPLAYING = SMALL.replace(fresh_fraction=0.5, capacity=8)


def micro_batches(trainer):
    """Train until batches are mixed; hand back the last step's micro-batches and rollouts."""
    seen = []
    host_loss = trainer._compute_loss

    def spy(model, inputs):
        seen.append((dict(inputs), trainer._rollouts))
        return host_loss(model, inputs)

    trainer._compute_loss = spy
    trainer.train()
    trainer._compute_loss = host_loss
    mixed = [(inputs, step) for inputs, step in seen if inputs[batches.REPLAYED].any()]
    assert mixed, "no batch was mixed"
    return mixed[-2:]


def reduced(per_token, mask, trainer, inputs, accumulation):
    """How each of TRL's loss types averages, written down once more."""
    kind = trainer.loss_type
    if kind == "grpo":
        return ((per_token * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean() / accumulation
    if kind == "bnpo":
        return (per_token * mask).sum() / mask.sum() / accumulation
    if kind == "dr_grpo":
        rows = len(per_token)
        return (per_token * mask).sum() / (rows * trainer.max_completion_length) / accumulation
    assert kind == "dapo"
    parts = trainer.args.steps_per_generation
    return (per_token * mask).sum() / (inputs["num_items_in_batch"] * accumulation / parts)


def explicit(trainer, inputs, form, accumulation):
    """Loss and gradients of the formula, from the stored log-probabilities."""
    mask = inputs["completion_mask"].float()
    logps = trainer._get_per_token_logps_and_entropies(
        trainer.model,
        torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
        inputs["completion_ids"].shape[1],
    )[0]
    old = inputs.get("old_per_token_logps", logps.detach())
    replayed = inputs[batches.REPLAYED][:, None]
    behaviour = torch.where(replayed, inputs[batches.STORED], old)
    per_token = off_policy_loss(logps, old, behaviour, inputs["advantages"], form=form)
    loss = reduced(per_token, mask, trainer, inputs, accumulation)
    return loss, torch.autograd.grad(loss, list(trainer.model.parameters()))


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo", "bnpo"])
@pytest.mark.parametrize("form", ["decoupled", "paper"])
@pytest.mark.parametrize("generation", ["one update", "several updates"])
def test_loss_and_gradients(make_trainer, loss_type, form, generation):
    settings = {"loss_type": loss_type, "max_steps": 6, "learning_rate": 2e-2}
    if generation == "several updates":  # the host computes pi_old when it generates
        settings |= {"steps_per_generation": 4, "max_steps": 8}
    trainer = make_trainer(REPLAYING.replace(loss=form), **settings)
    for inputs, rollouts in micro_batches(trainer):
        assert ("old_per_token_logps" in inputs) == (generation == "several updates")
        trainer._rollouts = rollouts
        trainer.model.train()
        accumulation = trainer.current_gradient_accumulation_steps
        loss = trainer._compute_loss(trainer.model, dict(inputs))
        gradients = torch.autograd.grad(loss, list(trainer.model.parameters()))
        expected, expected_gradients = explicit(trainer, inputs, form, accumulation)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-6)
        for left, right in zip(gradients, expected_gradients, strict=True):
            assert torch.allclose(left, right, atol=1e-6, rtol=1e-4)
        ratio = torch.exp(rollouts_ratio(trainer, inputs))
        assert (ratio - 1).abs().max() > 0.01, "the replayed rows are off-policy"


def rollouts_ratio(trainer, inputs):
    """log (pi / mu) of the replayed tokens."""
    logps = trainer._current_logps(inputs)
    replayed = inputs[batches.REPLAYED][:, None] & inputs["completion_mask"].bool()
    return (logps - inputs[batches.STORED])[replayed]


@pytest.mark.parametrize("several", [False, True])
def test_stored_log_probs_are_those_of_the_policy_that_generated(make_trainer, several):
    """Recomputed from the weights of that step, never from later ones."""
    settings = {"steps_per_generation": 4} if several else {}
    trainer = make_trainer(REPLAYING.replace(capacity=64), max_steps=4, **settings)
    snapshots = []
    host = trainer._generate_and_score_completions

    def spy(inputs):
        state = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        snapshots.append(state)
        return host(inputs)

    trainer._generate_and_score_completions = spy
    trainer.train()
    groups = trainer.loop.buffer.groups
    assert len({group.step for group in groups}) > 1
    for group in groups:
        trainer.model.load_state_dict(snapshots[group.step])
        for rollout in group.rollouts:
            ids = torch.cat([group.prompt_ids, rollout.completion_ids]).long()[None]
            logps = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, torch.ones_like(ids), len(rollout.completion_ids)
            )[0]
            assert torch.allclose(logps[0], rollout.behaviour_logprobs, atol=1e-5)


def test_metrics_give_the_mean_ratio(make_trainer):
    trainer = make_trainer(REPLAYING, max_steps=5, learning_rate=2e-2)
    mixed = micro_batches(trainer)
    (_, step) = mixed[-1]
    total, squares, count = step.ratio_totals
    tokens = sum(
        int((inputs[batches.REPLAYED][:, None] & inputs["completion_mask"].bool()).sum())
        for inputs, _ in mixed
    )
    assert count == tokens
    assert trainer.step_metrics["replay/ratio_mean"] == pytest.approx(total / count)
    assert trainer.step_metrics["replay/ess"] == pytest.approx(total**2 / (count * squares))


def test_spread_of_ratios_by_hand():
    # ratios 1, 1, 2, 4: mean 2, variance (1 + 1 + 4 + 16) / 4 - 4, effective share 64 / (4 * 22)
    found = ratios_of_totals(8.0, 22.0, 4)
    assert found["replay/ratio_mean"] == 2.0
    assert found["replay/ratio_std"] == pytest.approx(1.5**0.5)
    assert found["replay/ess"] == pytest.approx(64 / 88)
    assert np.isnan(ratios_of_totals(0.0, 0.0, 0)["replay/ess"])
