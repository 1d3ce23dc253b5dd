"""From one config to verl's settings, and the settings of verl that are refused. No verl needed."""

import shlex

import pytest

from evenodds.cli import main
from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError
from evenodds.run_config import RunConfig
from evenodds.verl_checks import check_config, read_efficiency
from evenodds.verl_command import Cluster, command, overrides, verl_row

FILES = {"train": "d/train.parquet", "test": "d/test.parquet"}


def config(**sections):
    tables = {
        "run": {"name": "mine", "steps": 60},
        "model": {"path": "Qwen/Qwen2.5-Math-1.5B"},
        "data": {"source": "q.jsonl", "max_prompt_tokens": 512},
        "reward": {"kind": "math"},
        "generation": {"group_size": 8, "groups_per_step": 512, "max_new_tokens": 3072},
        "training": {"updates_per_step": 8, "learning_rate": 1e-6},
        "efficiency": {"preset": "paper"},
        "evaluation": {"source": "t.jsonl", "every": 10, "samples": 4},
    }
    for name, table in sections.items():
        tables[name] = {**tables.get(name, {}), **table}
    return RunConfig.from_mapping(tables)


def settings(made, **cluster):
    lines = overrides(made, Cluster(**cluster), FILES, "runs/mine")
    keys = [line.partition("=")[0] for line in lines]
    assert len(keys) == len(set(keys))
    return dict(line.split("=", 1) for line in lines)


def test_a_config_in_verls_words():
    found = settings(config())
    assert found["data.train_batch_size"] == "512"
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == "64"  # 512 groups, 8 updates
    assert found["actor_rollout_ref.actor.optim.lr"] == "1e-06"
    assert found["actor_rollout_ref.actor.loss_agg_mode"] == "token-mean"
    assert found["algorithm.norm_adv_by_std_in_grpo"] == "False"
    assert found["algorithm.rollout_correction.rollout_is"] == "token"
    assert float(found["algorithm.rollout_correction.rollout_is_threshold"]) == 1e9
    assert found["trainer.v1.trainer_mode"] == "evenodds"
    assert found["+evenodds.preset"] == "paper"
    assert found["reward.custom_reward_function.path"] == "pkg://evenodds.verl.reward"
    assert "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES" not in found


def test_only_what_differs_from_the_paper_is_said():
    found = settings(config(efficiency={"preset": "evenodds", "replay_fraction": 0.25}))
    own = {key.removeprefix("+evenodds."): found[key] for key in found if "+evenodds." in key}
    assert own == {
        "estimator": "posterior",
        "criterion": "proportional",
        "curiosity": "1.0",
        "references": "batch",
        "adapt_references": "True",
        "steps_per_selection": "1",
        "fresh_fraction": "0.25",
        "replay_fraction": "0.25",
    }
    # a quarter of 512 is fresh and a quarter replayed: 256 groups in 8 updates
    assert found["actor_rollout_ref.actor.ppo_mini_batch_size"] == "32"


def test_without_replay_nothing_is_corrected():
    found = settings(config(efficiency={"preset": "grpo"}))
    assert "algorithm.rollout_correction.rollout_is" not in found
    assert found["+evenodds.selection"] == "host"


def test_several_nodes_hand_the_plug_in_on():
    found = settings(config(), nodes=4, gpus=8)
    place = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
    assert found[place] == "evenodds.verl"
    assert (found["trainer.nnodes"], found["trainer.n_gpus_per_node"]) == ("4", "8")


def test_the_command_is_one_that_a_shell_reads():
    text = command(config(), Cluster(), FILES, "runs/with space")
    words = shlex.split(text.replace("\\\n", " "))
    assert words[0] == "VERL_USE_EXTERNAL_MODULES=evenodds.verl"
    assert "trainer.default_local_dir='runs/with space'" in words


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"model": {"path": "toy"}}, "cannot load this policy"),
        ({"model": {"lora_rank": 8}}, "adapters"),
        ({"efficiency": {"loss": "paper"}}, r"efficiency\.loss"),
        ({"efficiency": {"second_moment_bound": 0.04}}, "no such bound"),
        ({"training": {"updates_per_step": 7}}, "do not divide"),
        ({"training": {"host": {"top_k": 3}}}, "arguments of TRL"),
    ],
)
def test_what_verl_cannot_have_is_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        settings(config(**sections))


def test_a_cluster_makes_sense():
    with pytest.raises(ConfigError, match="nodes"):
        Cluster(nodes=0)
    with pytest.raises(ConfigError, match="cannot be shared"):
        Cluster(gpus=8, tensor_parallel=3)


def test_a_row_of_verl():
    row = {"prompt": "1+1?", "answer": "2", "question_id": "ab", "level": 3}
    assert verl_row(row, 5, "mine", "train") == {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "1+1?"}],
        "ability": "",
        "reward_model": {"ground_truth": "2", "style": "rule"},
        "extra_info": {
            "index": 5,
            "split": "train",
            "columns": {"question_id": "ab", "level": 3},
        },
    }


def test_the_command_line_prints_and_writes_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    (tmp_path / "run.toml").write_text(
        '[model]\npath = "some/model"\n[data]\nsource = "q.jsonl"\n[reward]\nkind = "exact"\n'
        '[evaluation]\nsource = "q.jsonl"\n'
    )
    assert main(["verl-command", "run.toml", "--data", "rows", "--write-data"]) == 0
    printed = capsys.readouterr()
    assert "trainer.v1.trainer_mode=evenodds" in printed.out
    assert "1 rows in rows/train.parquet" in printed.err
    assert "not there yet" not in printed.err
    assert (tmp_path / "rows/test.parquet").exists()
    assert main(["verl-command", "run.toml"]) == 0
    assert "not there yet" in capsys.readouterr().err
    assert main(["verl-command", "quickstart"]) == 2
    assert main(["verl-command", "run.toml", "--set", "hardware.gpus_per_node=4"]) == 0
    assert "trainer.n_gpus_per_node=4" in capsys.readouterr().out
    assert main(["verl-command", "run.toml", "--nodes", "0"]) == 2


# verl's settings


def verl_config(**changes):
    tables = {
        "trainer": {"use_v1": True, "v1": {"trainer_mode": "evenodds", "sampler": {}}},
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": False,
            "filter_groups": {"enable": False},
            "rollout_correction": {
                "rollout_is": "token",
                "rollout_is_threshold": 1e9,
                "rollout_rs": None,
                "bypass_mode": False,
            },
        },
        "actor_rollout_ref": {
            "rollout": {"n": 8, "calculate_log_probs": True},
            "actor": {"ppo_mini_batch_size": 16, "policy_loss": {"loss_mode": "vanilla"}},
        },
        "data": {"train_batch_size": 64},
        "evenodds": {},
    }
    for key, value in changes.items():
        *path, last = key.split("__")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
        table[last] = value
    return tables


def test_good_settings_pass():
    assert read_efficiency(verl_config()) == EfficiencyConfig()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"trainer__use_v1": False}, "trainer.use_v1=True"),
        ({"algorithm__adv_estimator": "gae"}, "algorithm.adv_estimator=grpo"),
        ({"algorithm__filter_groups__enable": True}, "algorithm.filter_groups.enable=False"),
        ({"trainer__v1__sampler__sync_refill_failed_groups": True}, "refill_failed_groups=False"),
        ({"trainer__v1__evenodds__parameter_sync_step": 4}, "parameter_sync_step=1"),
        ({"actor_rollout_ref__hybrid_engine": False}, "hybrid_engine=True"),
        ({"algorithm__rollout_correction__rollout_is": None}, "rollout_is=token"),
        ({"algorithm__rollout_correction__rollout_is_threshold": 2.0}, "threshold=1e9"),
        ({"algorithm__rollout_correction__rollout_is_threshold": None}, "threshold=1e9"),
        ({"algorithm__rollout_correction__rollout_rs": "token_k1"}, "rollout_rs=null"),
        ({"algorithm__rollout_correction__bypass_mode": True}, "bypass_mode=False"),
        ({"actor_rollout_ref__rollout__calculate_log_probs": False}, "calculate_log_probs=True"),
        ({"actor_rollout_ref__actor__policy_loss__loss_mode": "gspo"}, "loss_mode=vanilla"),
        ({"actor_rollout_ref__rollout__n": 1}, "rollout.n=8"),
        ({"actor_rollout_ref__actor__ppo_mini_batch_size": 48}, "ppo_mini_batch_size=64"),
        ({"data__gen_batch_size": 1}, "data.gen_batch_size=null"),
        ({"algorithm__norm_adv_by_std_in_grpo": True}, "norm_adv_by_std_in_grpo=False"),
        ({"reward__reward_model__enable": True}, "enable_resource_pool=True"),
        ({"evenodds__drop_ineffective": True}, "+evenodds.drop_ineffective=False"),
        ({"evenodds__second_moment_bound": 0.04}, "+evenodds.second_moment_bound=null"),
        ({"evenodds__loss": "paper"}, "+evenodds.loss=decoupled"),
        ({"evenodds__num_references": 0}, "at least 2"),
        ({"evenodds__num_refrences": 3}, "num_references"),
    ],
)
def test_wrong_settings_are_refused_with_the_line_to_change(change, line):
    with pytest.raises(ConfigError) as caught:
        read_efficiency(verl_config(**change))
    assert line in str(caught.value)


def test_without_replay_verls_correction_is_its_own_affair():
    plain = verl_config(
        algorithm__rollout_correction__rollout_is_threshold=2.0, evenodds__preset="dots"
    )
    check_config(plain, read_efficiency(plain))
