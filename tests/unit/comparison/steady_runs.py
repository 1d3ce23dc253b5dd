"""Run folders as a trainer leaves them, made from a few numbers."""

from evenodds.files import append_line, write_json


def write_run(
    folder,
    accuracies,
    *,
    every=10,
    seconds=2.0,
    fresh=4,
    replayed=0,
    references=0,
    embed=None,
    config=None,
    **further,
):
    """A run with an accuracy after every `every` steps, the first at step 0."""
    append_line(
        folder / "metrics.jsonl",
        {"step": 0, "rollout_step": 0, "eval/accuracy": accuracies[0], "time/evaluate_s": 1.0},
    )
    total = every * (len(accuracies) - 1)
    for step in range(1, total + 1):
        line = {
            "step": step,
            "rollout_step": step,
            "time/step_s": seconds,
            "time/generate_s": seconds / 2,
            "time/reference_s": 0.0,
            "time/select_s": 0.0,
            "time/logprobs_s": 0.0,
            "time/update_s": seconds / 2,
            "reward/mean": 0.5,
            "select/num_fresh": fresh,
            "select/num_references": references,
            "select/effective_fraction": 0.5,
            "select/pearson": None,
            "replay/num_replayed": replayed,
            "replay/ratio_mean": None,
            "train/num_groups": fresh + replayed,
            "rollouts/total": 8 * step * (fresh + references),
            "tokens/generated_total": 80 * step * (fresh + references),
            **further,
        }
        if embed is not None and step == 1:
            line["time/embed_s"] = embed
        if step % every == 0:
            line |= {"eval/accuracy": accuracies[step // every], "time/evaluate_s": 1.0}
        append_line(folder / "metrics.jsonl", line)
    if config is not None:
        write_json(folder / "config.json", config)
    return folder
