"""What evenodds holds on to in verl 0.9, checked when the trainer is made."""

import inspect

from evenodds.errors import HostError

SEAMS: dict[str, tuple[str, ...]] = {
    "__init__": ("config",),
    "_build_replay_buffer": (),
    "_init_dataloader": (),
    "_next_train_batch": ("num_prompts",),
    "_submit_batch_to_rollout": ("batch",),
    "prepare_step": (),
    "_step_once": ("metrics", "timing_raw", "sample_batch_size"),
    "_compute_metrics": ("batch", "metrics", "timing_raw", "global_steps", "epoch"),
    "_validate": (),
    "on_train_begin": (),
    "_save_checkpoint": (),
    "_load_checkpoint": (),
}
SAMPLE = ("global_steps", "partition_id", "batch_size")


def check_seams(host: type, replay_buffer: type) -> None:
    """Fail by name if the installed verl lacks a method that the trainer overrides or calls.

    Args:
        host: `PPOTrainerSync`.
        replay_buffer: verl's staging queue of finished groups.

    Raises:
        HostError: a method is gone or takes other arguments.
    """
    for name, arguments in SEAMS.items():
        _check(host, name, arguments)
    _check(replay_buffer, "sample", SAMPLE)


def _check(owner: type, name: str, arguments: tuple[str, ...]) -> None:
    method = getattr(owner, name, None)
    found = () if method is None else tuple(inspect.signature(method).parameters)[1:]
    if method is None or found[: len(arguments)] != arguments:
        raise HostError(
            f"this version of verl does not fit: {owner.__name__}.{name}",
            got="no such method" if method is None else f"arguments {', '.join(found)}",
            expected=f"arguments {', '.join(arguments)}",
            fix='pip install "verl>=0.9,<0.10"',
        )
