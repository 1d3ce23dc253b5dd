"""Numbers of a run, worked out by hand, and every recipe with every twin."""

import pytest

from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError
from evenodds.forecast import buffer_bytes, forecast, prediction_bytes
from evenodds.run_config import RunConfig, config_tables, read_config, recipes

PAPER = {  # steps 60, K = 256 every 2 steps; share of generation, tokens
    "math-1.5b": (0.47, 3072),
    "deepscaler-1.5b": (0.47, 3072),
    "orz-1.5b": (0.47, 3072),
    "deepscaler-3b": (0.46, 4096),
    "deepmath-3b": (0.46, 4096),
    "deepscaler-7b": (0.54, 3072),
    "science-3b": (0.46, 4096),
}


def test_recipes_are_those_of_the_paper():
    assert recipes() == sorted(PAPER)


@pytest.mark.parametrize("name", PAPER)
def test_recipes_have_the_papers_settings(name):
    config = read_config(name)
    share, tokens = PAPER[name]
    assert config.hardware is not None
    assert (config.processes, config.hardware.generation_share) == (8, share)
    generation, training, efficiency = config.generation, config.training, config.efficiency
    assert (generation.groups_per_step, generation.group_size) == (512, 8)
    assert (generation.max_new_tokens, config.data.max_prompt_tokens) == (tokens, 1024)
    assert (training.learning_rate, training.weight_decay, training.updates_per_step) == (
        1e-6,
        0,
        8,
    )
    assert (efficiency.num_references, efficiency.steps_per_selection) == (256, 2)
    assert (efficiency.target_difficulty, efficiency.selection_temperature) == (0.5, 1e-3)
    assert (efficiency.fresh_fraction, efficiency.capacity) == (0.5, 512)
    assert config.reward.kind == ("choice" if name == "science-3b" else "math")


@pytest.mark.parametrize("name", PAPER)
def test_twins_differ_in_the_method_alone(name):
    paper = read_config(name).as_dict()
    grpo, ours = (read_config(f"{name}/{preset}") for preset in ("grpo", "evenodds"))
    assert not grpo.efficiency.selects
    assert not grpo.efficiency.replays
    assert ours.efficiency.estimator == "posterior"
    assert ours.efficiency == EfficiencyConfig.preset(
        "evenodds", embeddings=ours.efficiency.embeddings
    )
    for twin in (grpo, ours):
        other = twin.as_dict()
        changed = {section for section in paper if other[section] != paper[section]}
        assert changed == {"efficiency", "run"}
        assert {**other["run"], "name": name} == paper["run"]
    # generated groups: 512 at first and 256 in each of 59 steps, and 30 reference sets
    assert forecast(read_config(name), 8192).total_rollouts == (512 + 59 * 256 + 30 * 256) * 8
    assert forecast(grpo, 8192).total_rollouts == 60 * 512 * 8
    assert forecast(ours, 8192).total_rollouts == 60 * 128 * 8  # a quarter of each batch


def test_numbers_of_a_recipe_by_hand():
    config = read_config("deepscaler-1.5b")
    seen = forecast(config, 10_240)
    assert (seen.fresh, seen.replayed, seen.references) == (256, 256, 128)
    assert seen.rollouts == (256 + 128) * 8
    assert seen.tokens == 3072 * 3072
    assert seen.trained == 4096
    assert (seen.micro_batches, seen.micro_batch) == (32, 2)  # 512 rollouts / 8 processes / 2
    (modelled,) = seen.shares
    assert modelled.step == pytest.approx(0.47 * 384 / 512 + 0.53)  # 0.8825: the paper saved 11.7 %
    assert modelled.replay == pytest.approx(0.235)
    assert modelled.references == pytest.approx(0.47 * 0.25 / 0.8825)
    # a prompt of 1,024 ids, and 8 rollouts of 3,072 ids and log-probabilities, 8 bytes besides
    assert buffer_bytes(config) == 512 * (4096 + 8 * (3072 * 8 + 8))
    assert prediction_bytes(config, 10_240, 1536) == 10_240 * (1536 + 2) * 4
    assert seen.prediction_bytes == 10_240 * 1538 * 4


def test_plain_grpo_is_the_measure_of_itself():
    seen = forecast(read_config("deepscaler-7b/grpo"), 10_240)
    (modelled,) = seen.shares
    assert (modelled.step, modelled.replay, modelled.references) == (1.0, 0.0, 0.0)
    assert (seen.buffer_bytes, seen.prediction_bytes) == (0, 0)


def test_the_quickstart_generates_what_its_run_did():
    assert forecast(read_config("quickstart/paper"), 4096).total_rollouts == 23296  # of the README


def test_kl_stores_a_second_log_probability():
    tables = config_tables("quickstart/paper")
    plain = buffer_bytes(RunConfig.from_mapping(tables))
    tables["training"]["kl_coefficient"] = 0.1
    more = buffer_bytes(RunConfig.from_mapping(tables))
    assert more - plain == 64 * 8 * 40 * 4  # capacity, group, tokens, bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("hardware.gpus_per_node=7", "cannot share the groups a step evenly"),
        ("training.micro_batch=3", "cannot be cut evenly"),
        ("efficiency.capacity=100", "the replay buffer is smaller"),
        ("hardware.gpus_per_node=0", "hardware.gpus_per_node is out of range"),
        ("hardware.gpu_per_node=8", "did you mean 'hardware.gpus_per_node'"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    with pytest.raises(ConfigError, match=words):
        forecast(read_config("math-1.5b", [change]), 8000)


def test_a_pool_smaller_than_a_batch_is_refused():
    with pytest.raises(ConfigError, match="the pool is too small"):
        forecast(read_config("math-1.5b"), 500)


def test_an_unknown_twin_is_named():
    with pytest.raises(ConfigError, match=r"did you mean 'math-1\.5b/grpo'"):
        read_config("math-1.5b/grp")
