"""Run folders with known numbers, as a trainer would have left them."""

import json

import numpy as np

PARTS = ("reference", "generate", "select", "logprobs", "update")


def write_run(
    folder,
    accuracies=(0.2, 0.4, 0.6),
    every=2,
    steps=None,
    seconds=10.0,
    predicts=True,
    replays=True,
    pool=None,
    planned=None,
    effective=0.5,
):
    """A run of `steps` steps, evaluated every `every`; step s took `seconds` and 32 rollouts.

    With references in odd steps, predicted at 0.25 and 0.75 and observed as 0 and 1.
    """
    steps = every * (len(accuracies) - 1) if steps is None else steps
    folder.mkdir(parents=True)
    lines = [{"step": 0, "rollout_step": 0}] if accuracies else []
    lines += [_step(step, seconds, predicts, replays, effective) for step in range(1, steps + 1)]
    for number, accuracy in enumerate(accuracies):
        if number * every <= steps:
            lines[number * every] |= {"eval/accuracy": accuracy, "time/evaluate_s": 0.5}
    write_lines(folder / "metrics.jsonl", lines)
    choices = [_choice(step, predicts, replays, pool) for step in range(1, steps + 1)]
    write_lines(folder / "selections.jsonl", choices)
    if planned is not None:
        (folder / "config.json").write_text(json.dumps({"run": {"steps": planned, "seed": 0}}))
    return folder


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _step(step, seconds, predicts, replays, effective):
    return {
        "step": 2 * step,  # two updates a step
        "rollout_step": step,
        "time/step_s": seconds,
        **{f"time/{part}_s": seconds / 5 for part in PARTS},
        "reward/mean": 0.5,
        "select/num_fresh": 4.0,
        "select/num_references": 2.0 if predicts and step % 2 else 0.0,
        "select/effective_fraction": effective,
        "select/pearson": 0.9 if predicts else None,
        "replay/num_replayed": 2.0 if replays else 0.0,
        "replay/ratio_mean": 1.0 + step / 100 if replays else None,
        "rollouts/total": 32 * step,
        "tokens/generated_total": 320 * step,
    }


def _choice(step, predicts, replays, pool):
    nothing = {"id": [], "predicted": [], "observed": []}
    probed = {"id": ["a", f"r{step}"], "predicted": [0.25, 0.75], "observed": [0.0, 1.0]}
    line = {
        "step": 2 * step,
        "fresh": {
            "id": ["a", "b", "c", f"f{step}"],
            "predicted": [0.5] * 4 if predicts else [None] * 4,
            "observed": [0.0, 0.5, 0.5, 1.0],
        },
        "replayed": {"id": ["b"], "age": [step], "observed": [0.5]}
        if replays
        else nothing | {"age": []},
        "reference": probed if predicts and step % 2 else nothing,
    }
    if pool is not None:
        line["pool"] = np.roll([pool] + [0] * 9, step).tolist() if step % 2 else None
    return line
