import pytest

from evenodds.config import EfficiencyConfig
from evenodds.errors import ConfigError
from evenodds.run_config import RunConfig, apply_change, read_config

LEAST = {"model": {"path": "toy"}, "data": {"source": "toy"}, "reward": {"kind": "exact"}}


def test_defaults_are_the_papers():
    config = EfficiencyConfig()
    assert config == EfficiencyConfig.preset("paper")
    assert (config.num_references, config.steps_per_selection) == (256, 2)
    assert (config.target_difficulty, config.selection_temperature) == (0.5, 1e-3)
    assert (config.fresh_fraction, config.capacity) == (0.5, 512)
    assert (config.advantage, config.loss) == ("mean", "decoupled")


def test_preset_grpo_neither_selects_nor_replays():
    config = EfficiencyConfig.preset("grpo")
    assert not config.selects
    assert not config.replays
    assert not config.predicts


def test_preset_in_a_table_can_be_changed():
    config = EfficiencyConfig.from_mapping({"preset": "grpo", "fresh_fraction": 0.25})
    assert (config.selection, config.fresh_fraction) == ("host", 0.25)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_reference": 3}, "did you mean 'efficiency.num_references'"),
        ({"num_references": 3.5}, r"num_references has .*\n  got: +3\.5\n +expected: a whole"),
        ({"num_references": True}, r"got: +True"),
        ({"num_references": 1}, "expected: 0, or at least 2"),
        ({"fresh_fraction": 0.0}, "expected: more than 0.0 and at most 1.0"),
        ({"fresh_fraction": "half"}, r"got: +'half'\n +expected: a number"),
        ({"selection_temperature": float("nan")}, "not finite"),
        ({"selection": "best"}, "one of 'host', 'uniform', 'difficulty'"),
        ({"reward_range": [0.0, 1.0, 2.0]}, "a list"),
        ({"reward_range": [1.0, 0.0]}, "lowest < highest"),
        ({"predictor": 3}, "text or nothing"),
        ({"preset": "papre"}, "unknown preset 'papre'"),
    ],
)
def test_mistakes_name_what_is_expected(settings, message):
    with pytest.raises(ConfigError, match=message):
        EfficiencyConfig.from_mapping(settings)


def test_whole_numbers_and_lists_are_taken_where_they_fit():
    config = EfficiencyConfig.from_mapping({"fresh_fraction": 1, "reward_range": [-1, 1]})
    assert config.fresh_fraction == 1.0
    assert config.reward_range == (-1.0, 1.0)


def test_empty_text_unsets_a_setting_that_may_be_unset():
    assert EfficiencyConfig.from_mapping({"predictor": ""}).predictor is None
    with pytest.raises(ConfigError, match="wrong type"):
        EfficiencyConfig.from_mapping({"loss": ""})


def test_a_config_comes_back_from_its_own_json():
    config = EfficiencyConfig(reward_range=(-1.0, 1.0), predictor="p.safetensors")
    assert EfficiencyConfig.from_mapping(config.as_dict()) == config
    run = RunConfig.from_mapping({**LEAST, "evaluation": {"every": 5}})
    assert RunConfig.from_mapping(run.as_dict()) == run


def test_changes_from_the_command_line():
    tables = {"run": {"steps": 5}}
    for change in (
        "run.steps=7",
        "run.name=a name",
        "training.host.max_grad_norm=0.5",
        "efficiency.reward_range=[-1, 1]",
        "run.threads = 2",
    ):
        apply_change(tables, change)
    assert tables == {
        "run": {"steps": 7, "name": "a name", "threads": 2},
        "training": {"host": {"max_grad_norm": 0.5}},
        "efficiency": {"reward_range": [-1, 1]},
    }


@pytest.mark.parametrize("change", ["steps=7", "run.steps", "=7", "run.=7"])
def test_changes_of_another_form_are_refused(change):
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        apply_change({}, change)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({**LEAST, "runs": {}}, "did you mean 'run'"),
        ({"model": {"path": "toy"}}, r"no section \[data\]"),
        ({**LEAST, "model": {}}, r"\[model\] lacks path"),
        ({**LEAST, "run": 3}, r"\[run\] is not a table"),
        ({**LEAST, "run": {"step": 3}}, "did you mean 'run.steps'"),
        ({**LEAST, "training": {"loss_type": "sapo"}}, "'dapo', 'grpo', 'dr_grpo', 'bnpo'"),
    ],
)
def test_mistakes_in_a_run_config(tables, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig.from_mapping(tables)


def test_evaluation_questions_default_to_the_same_source():
    config = RunConfig.from_mapping({**LEAST, "evaluation": {"limit": 9, "split": "held"}})
    held_out = config.evaluation_data
    assert held_out is not None
    assert (held_out.source, held_out.split, held_out.limit) == ("toy", "held", 9)
    other = RunConfig.from_mapping({**LEAST, "evaluation": {"source": "x.jsonl"}})
    assert other.evaluation_data is not None
    assert other.evaluation_data.source == "x.jsonl"
    assert RunConfig.from_mapping(LEAST).evaluation_data is None


def test_a_file_with_a_mistake_in_its_toml(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[run\nsteps = 3")
    with pytest.raises(ConfigError, match=r"a\.toml is not TOML\n  got: .*line 1"):
        read_config(str(path))


def test_a_config_that_does_not_exist():
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        read_config("quikstart")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config("no/such/file.toml")


def test_shares_of_a_batch():
    assert EfficiencyConfig().replay_share == 0.5
    assert EfficiencyConfig(fresh_fraction=0.5, replay_fraction=0.25).replay_share == 0.25
    assert not EfficiencyConfig(fresh_fraction=0.5, replay_fraction=0.0).replays
    assert not EfficiencyConfig(fresh_fraction=1.0).replays
    with pytest.raises(ConfigError, match="more than a batch"):
        EfficiencyConfig(fresh_fraction=0.8, replay_fraction=0.25)


def test_presets_of_the_parts():
    assert EfficiencyConfig.preset("dots+rr") == EfficiencyConfig.preset("paper")
    assert not EfficiencyConfig.preset("dots").replays
    assert not EfficiencyConfig.preset("rr").selects
