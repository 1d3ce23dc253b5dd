import pytest

from evenodds.comparison.arms import parse_arms
from evenodds.errors import ConfigError
from evenodds.run_config import config_tables, read_config, recipes

TABLES = {
    "run": {"name": "mine"},
    "model": {"path": "toy"},
    "data": {"source": "toy"},
    "reward": {"kind": "exact"},
    "efficiency": {"preset": "paper", "num_references": 32, "capacity": 64},
    "evaluation": {"every": 5},
}


def efficiency(arm, seed=0):
    return parse_arms([arm])[0].config(TABLES, seed).efficiency


def test_presets_keep_the_sizes_of_the_config():
    both = efficiency("dots+rr")
    assert (both.num_references, both.capacity, both.fresh_fraction) == (32, 64, 0.5)
    dots = efficiency("dots")
    assert (dots.selection, dots.fresh_fraction, dots.num_references) == ("difficulty", 1.0, 32)
    rr = efficiency("rr")
    assert (rr.selection, rr.fresh_fraction, rr.capacity) == ("host", 0.5, 64)
    plain = efficiency("grpo")
    assert (plain.selects, plain.replays, plain.advantage) == (False, False, "host")


def test_the_preset_of_an_arm_goes_before_the_config():
    tables = {**TABLES, "efficiency": {"preset": "grpo", "fresh_fraction": 0.25}}
    config = parse_arms(["dots"])[0].config(tables, 3)
    assert config.efficiency.selection == "difficulty"  # the config's own preset is gone
    assert config.efficiency.fresh_fraction == 1.0
    assert config.run.seed == 3


def test_a_file_is_an_arm(tmp_path):
    path = tmp_path / "warm.toml"
    path.write_text("[efficiency]\nselection_temperature = 0.1\n[training]\nlearning_rate = 2e-4\n")
    (arm,) = parse_arms([str(path)])
    config = arm.config(TABLES, 0)
    assert arm.name == "warm"
    assert config.efficiency.selection_temperature == 0.1
    assert config.efficiency.num_references == 32
    assert config.training.learning_rate == 2e-4


def test_an_arm_can_have_its_own_number_of_steps(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text("[run]\nsteps = 75\n")
    (arm,) = parse_arms([str(path)])
    assert arm.steps == 75
    assert arm.config({**TABLES, "run": {"steps": 20}}, 3).run.steps == 75
    assert parse_arms(["grpo"])[0].steps is None


def test_a_file_can_hold_several_arms(tmp_path):
    path = tmp_path / "several.toml"
    path.write_text('[arms.a.efficiency]\npreset = "grpo"\n[arms."b+c".efficiency]\ncapacity = 9\n')
    arms = parse_arms(["grpo", str(path)])
    assert [arm.name for arm in arms] == ["grpo", "a", "b+c"]
    assert not arms[1].config(TABLES, 0).efficiency.selects
    assert arms[2].config(TABLES, 0).efficiency.capacity == 9


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[data]\nlimit = 3\n", "share"),
        ("[run]\nseed = 3\n", "share"),
        ("[run]\nsteps = 3\nthreads = 1\n", "`steps` alone"),
        ('[efficiency]\npreset = "papr"\n', "papr"),
        ("[arms]\na = 3\n", "not made of tables"),
        ("[arms.a.efficiency]\n[training]\nmicro_batch = 3\n", "mixes"),
        ("efficiency = 3\n", "not made of tables"),
    ],
)
def test_what_is_no_arm(tmp_path, text, words):
    path = tmp_path / "arm.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        parse_arms([str(path)])


def test_names_are_known_and_different():
    with pytest.raises(ConfigError, match="did you mean 'dots'"):
        parse_arms(["dotz"])
    with pytest.raises(ConfigError, match="twice"):
        parse_arms(["grpo", "grpo"])
    with pytest.raises(ConfigError, match="no arm"):
        parse_arms([])


@pytest.mark.parametrize("name", recipes())
@pytest.mark.parametrize("preset", ["grpo", "paper", "evenodds"])
def test_arms_of_a_recipe_are_its_twins_whichever_twin_was_named(name, preset):
    (arm,) = parse_arms([preset])
    twin = read_config(f"{name}/{preset}")
    for base in (name, f"{name}/grpo", f"{name}/evenodds"):
        config = arm.config(config_tables(base), 0)
        assert config.efficiency == twin.efficiency
        assert (config.generation, config.training) == (twin.generation, twin.training)
