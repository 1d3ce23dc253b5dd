"""What the plug-in holds on to in verl, and what it refuses."""

import pytest
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

import evenodds.verl
from evenodds.errors import ConfigError, HostError
from evenodds.verl.reward import compute_score
from evenodds.verl.seams import SEAMS, check_seams

from cluster import make_config, write_world


def test_the_trainer_is_registered():
    assert get_trainer_cls("evenodds") is evenodds.verl.DataEfficientTrainer


def test_every_seam_is_there():
    check_seams(PPOTrainerSync, ReplayBuffer)


@pytest.mark.parametrize("name", [name for name in SEAMS if name != "__init__"])
def test_a_seam_that_is_gone_is_named(name):
    changed = type("Changed", (PPOTrainerSync,), {name: lambda self, renamed: None})
    with pytest.raises(HostError, match=name):
        check_seams(changed if SEAMS[name] else _without(name), ReplayBuffer)


def _without(name):
    return type("Without", (), {key: getattr(PPOTrainerSync, key) for key in SEAMS if key != name})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    write_world(folder)
    return folder


@pytest.mark.parametrize(
    ("setting", "value", "line"),
    [
        ("algorithm.rollout_correction.rollout_is_threshold", 2.0, "rollout_is_threshold=1e9"),
        ("algorithm.rollout_correction.rollout_is", "null", "rollout_is=token"),
        ("algorithm.rollout_correction.bypass_mode", True, "bypass_mode=False"),
        ("algorithm.filter_groups.enable", True, "filter_groups.enable=False"),
        ("actor_rollout_ref.rollout.calculate_log_probs", False, "calculate_log_probs=True"),
        ("+evenodds.num_refrences", 8, "num_references"),
        ("+evenodds.drop_ineffective", True, "drop_ineffective=False"),
        ("algorithm.norm_adv_by_std_in_grpo", True, "norm_adv_by_std_in_grpo=False"),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", 3, "ppo_mini_batch_size=4"),
    ],
)
def test_wrong_settings_are_refused_before_a_worker_starts(world, tmp_path, setting, value, line):
    config = make_config(world, tmp_path, {setting: value})
    with pytest.raises(ConfigError) as caught:
        evenodds.verl.DataEfficientTrainer(config)
    assert line in str(caught.value)


def test_verl_scores_with_our_rewards():
    row = {"index": 0, "columns": {"question_id": "a"}}
    assert compute_score("d", " 4", "4", row, kind="exact") == 1.0
    assert compute_score("d", "5", "4", row, kind="exact") == 0.0
