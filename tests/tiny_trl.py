"""A small run of the host for tests: 8 groups of 4 a step."""

from trl import GRPOConfig

from evenodds.trl import EfficiencyConfig

SMALL = EfficiencyConfig(num_references=8, capacity=8, selection_temperature=0.05)
EVERYTHING = EfficiencyConfig.preset(
    "evenodds",
    num_references=4,
    fresh_fraction=0.5,
    replay_fraction=0.25,
    capacity=16,
    selection_temperature=0.05,
    explore_share=0.25,
    oldest_share=0.125,
    park_after=2,
    refill=True,
    replay_policy="priority",
    max_age=4,
    max_uses=3,
    min_ess=0.2,
    second_moment_bound=0.04,
)


def host_config(folder, **settings):
    """8 groups of 4 a step."""
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 5,
        "max_steps": 4,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "report_to": "none",
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "seed": 7,
    }
    return GRPOConfig(**{**defaults, **settings})
