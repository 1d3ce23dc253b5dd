"""What must not change: with nothing switched on, the trainer is the host's, bit for bit."""

import pytest
import torch
from trl import GRPOTrainer

from evenodds.trl import DataEfficientGRPOTrainer, EfficiencyConfig

from tiny import make_dataset, reward
from tiny_trl import SMALL, host_config

HOST_KEYS = ("loss", "grad_norm", "reward", "reward_std", "entropy", "completions/mean_length")


def train(trainer_class, policy, folder, steps=5, config=None, **settings):
    trainer = trainer_class(
        model=policy,
        reward_funcs=reward,
        args=host_config(folder, max_steps=steps, **(config or {})),
        train_dataset=make_dataset(),
        **settings,
    )
    trainer.train()
    logs = [{key: line.get(key) for key in HOST_KEYS} for line in trainer.state.log_history[:steps]]
    return logs, {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"steps_per_generation": 4, "num_iterations": 2, "max_steps": 8},
        {"loss_type": "dr_grpo", "scale_rewards": "none", "beta": 0.01},
    ],
)
def test_preset_grpo_is_the_host_bit_for_bit(policy, tmp_path, config):
    steps = config.pop("max_steps", 5)
    plain = train(GRPOTrainer, policy, tmp_path / "plain", steps, config)
    ours = train(
        DataEfficientGRPOTrainer,
        policy,
        tmp_path / "ours",
        steps,
        config,
        efficiency=EfficiencyConfig.preset("grpo"),
    )
    assert ours[0] == plain[0]
    assert len(ours[0]) == steps
    for name, tensor in plain[1].items():
        assert torch.equal(tensor, ours[1][name]), name
    assert any(line["grad_norm"] > 0 for line in plain[0])


def test_a_first_step_without_replay_has_the_hosts_loss(policy, tmp_path):
    """Selection and an empty buffer change which questions are trained on, not the loss."""
    efficiency = SMALL.replace(selection="host", advantage="host")
    plain = train(GRPOTrainer, policy, tmp_path / "plain", steps=1)
    ours = train(
        DataEfficientGRPOTrainer, policy, tmp_path / "ours", steps=1, efficiency=efficiency
    )
    assert ours[0] == plain[0]
    for name, tensor in plain[1].items():
        assert torch.equal(tensor, ours[1][name]), name
