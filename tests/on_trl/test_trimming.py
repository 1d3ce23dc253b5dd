"""Groups without signal leave the update, and the gradient stays."""

import pytest
import torch

from evenodds.errors import ConfigError
from evenodds.trl import EfficiencyConfig
from evenodds.trl.trimming import check_trimmable, trim

from tiny_trl import SMALL

GROUP = 2


def batch(advantages):
    rows = len(advantages)
    return {
        "prompt_ids": torch.arange(rows)[:, None],
        "advantages": torch.tensor(advantages),
        "num_items_in_batch": torch.tensor(30),
        "nothing": None,
    }


def rows(trimmed):
    return trimmed["prompt_ids"][:, 0].tolist()


def test_dead_groups_leave():
    full = batch([0.5, -0.5, 0.0, 0.0, 0.0, 1.0])
    trimmed = trim(full, GROUP, 1, "dapo")
    assert rows(trimmed) == [0, 1, 4, 5]  # a row without advantage in a group with signal stays
    assert trimmed["advantages"].tolist() == [0.5, -0.5, 0.0, 1.0]
    assert int(trimmed["num_items_in_batch"]) == 30
    assert trimmed["nothing"] is None


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo"])
def test_means_over_rows_are_scaled_back(loss_type):
    trimmed = trim(batch([0.5, -0.5, 0.0, 0.0]), GROUP, 1, loss_type)
    assert trimmed["advantages"].tolist() == [0.25, -0.25]


def test_micro_batches_stay_equally_large():
    full = batch([0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.3, -0.3])
    assert rows(trim(full, GROUP, 1, "dapo")) == [0, 1, 6, 7]
    assert rows(trim(full, GROUP, 4, "dapo")) == [0, 1, 6, 7]
    eight = {**batch([0.5, -0.5] + [0.0] * 6), "num_items_in_batch": 3}
    assert rows(trim(eight, GROUP, 4, "dapo")) == [0, 1, 2, 3]


def test_a_batch_that_is_all_dead_keeps_a_row_for_each_micro_batch():
    assert rows(trim(batch([0.0] * 8), GROUP, 4, "dapo")) == [0, 1, 2, 3]


def test_a_batch_that_is_all_alive_is_left_as_it_is():
    full = batch([0.5, -0.5, 0.3, -0.3])
    assert trim(full, GROUP, 2, "grpo") is full


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("bnpo", 0.0, 0.0), "bnpo"),
        (("dapo", 0.1, 0.0), "KL term"),
        (("dapo", 0.0, 0.1), "entropy bonus"),
    ],
)
def test_losses_in_which_dead_rows_count_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        check_trimmable(*settings)
    check_trimmable("grpo", 0.0, 0.0)


def mostly_alike(completions, **columns):
    """Half of the questions have no signal: completions of these get the same reward."""
    return [
        float(c[:1] >= "5") if len(p) % 2 else 1.0
        for c, p in zip(completions, columns["prompts"], strict=True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_one_step_gives_the_same_gradient(make_trainer, loss_type, accumulate):
    """SGD, so that the weights show the gradient itself."""
    settings = {
        "loss_type": loss_type,
        "max_steps": 1,
        "optim": "sgd",
        "learning_rate": 1.0,
        "per_device_train_batch_size": 32 // accumulate,
        "gradient_accumulation_steps": accumulate,
    }
    runs = []
    for drop in (False, True):
        trainer = make_trainer(
            EfficiencyConfig.preset("grpo", drop_ineffective=drop),
            reward_funcs=mostly_alike,
            **settings,
        )
        start = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        trained = []
        original = trainer._to_train_on
        trainer._to_train_on = lambda *a, original=original, t=trained: (
            t.append(original(*a)) or t[-1]
        )
        trainer.train()
        after = torch.cat([p.detach().flatten() for p in trainer.model.parameters()])
        (line,) = [line for line in trainer.state.log_history if "train/num_groups" in line]
        runs.append((after - start, line["train/num_groups"]))
    (full, all_groups), (trimmed, groups_left) = runs
    assert groups_left < all_groups == 8
    assert full.abs().max() > 0
    torch.testing.assert_close(trimmed, full, rtol=1e-3, atol=1e-6 * float(full.abs().max()) + 1e-7)


@pytest.mark.slow
def test_a_smaller_batch_of_fresh_and_replayed_groups(make_trainer):
    trainer = make_trainer(
        SMALL.replace(fresh_fraction=0.5, replay_fraction=0.25, drop_ineffective=True),
        max_steps=4,
    )
    trainer.train()
    lines = [line for line in trainer.state.log_history if "select/num_fresh" in line]
    assert lines[0]["select/num_fresh"] == 6  # nothing to replay yet
    assert (lines[-1]["select/num_fresh"], lines[-1]["replay/num_replayed"]) == (4, 2)
    assert all(line["train/num_groups"] <= 6 for line in lines)


@pytest.mark.slow
def test_half_a_batch_without_replay(make_trainer):
    trainer = make_trainer(SMALL.replace(fresh_fraction=0.5, replay_fraction=0.0), max_steps=2)
    trainer.train()
    lines = [line for line in trainer.state.log_history if "select/num_fresh" in line]
    assert [line["select/num_fresh"] for line in lines] == [4, 4]
    assert [line["train/num_groups"] for line in lines] == [4, 4]
    assert len(trainer.loop.buffer) == 0
