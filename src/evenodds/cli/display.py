"""What a person sees of a training run: a progress bar, a line now and then, and a table."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from evenodds.run_config import RunConfig

LINE = (
    "reward {reward}  effective {effective}  r {pearson}  "
    "fresh {fresh} replayed {replayed} ref {references}  {seconds} s/step"
)


class TrainingDisplay:
    """Shows a run while it goes on: two lines that change, or on no terminal a line now and then.

    Args:
        config: The run.
        num_questions: Size of the pool.
        folder: The run folder.
        console: Where to show it; the terminal by default.
    """

    def __init__(
        self, config: RunConfig, num_questions: int, folder: Path, console: Console | None = None
    ) -> None:
        self.config = config
        self.num_questions = num_questions
        self.folder = folder
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("", total=config.run.steps)
        self._text = Text("loading the policy", overflow="ellipsis", no_wrap=True)
        self._live = Live(
            Group(self._progress, self._text), console=self.console, refresh_per_second=4
        )

    def __enter__(self) -> "TrainingDisplay":
        generation = self.config.generation
        self.console.print(
            f"{self.config.run.name}: {self.num_questions} questions, {self.config.run.steps} "
            f"steps of {generation.groups_per_step} groups of {generation.group_size}; "
            f"run folder {self.folder}"
        )
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def track(self, items: Sequence[Any], description: str) -> Iterable[Any]:
        """The items of work before the first step, counted in the second line."""
        for number, item in enumerate(items):
            self._text.plain = f"{description}: {number} of {len(items)} batches"
            yield item
        self._text.plain = ""

    def update(self, metrics: dict[str, Any]) -> None:
        """Show the metrics of a step."""
        step = int(metrics["rollout_step"])
        accuracy = metrics.get("eval/accuracy")
        parts = [] if step == 0 else [_line(metrics)]
        if accuracy is not None:
            parts.append(f"accuracy {accuracy:.3f}")
        text = "  ".join(parts)
        self._progress.update(self._task, completed=step)
        self._text.plain = text
        every = max(1, self.config.run.steps // 10)
        if accuracy is not None or (not self.console.is_terminal and step % every == 0):
            self.console.print(f"step {step:>4}  {text}")

    def summary(self, summary: dict[str, Any]) -> None:
        """Show the table at the end."""
        table = Table(title=self.config.run.name, title_justify="left", show_header=False)
        for name, text in summary_rows(summary):
            table.add_row(name, text)
        self.console.print(table)
        self.console.print(f"The run lies in {self.folder}")


def summary_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The lines of the table at the end of a run."""
    parts = ", ".join(
        f"{name} {_number(summary[f'time/{key}_s'], 2)}"
        for key, name in (
            ("reference", "references"),
            ("generate", "generation"),
            ("select", "selection"),
            ("logprobs", "log-probs"),
            ("update", "update"),
        )
    )
    rows = [
        ("steps", f"{summary['steps']}"),
        ("held-out accuracy", _change(summary, "eval/accuracy")),
        ("reward of fresh rollouts", _change(summary, "reward/mean")),
        ("effective groups", _number(summary["select/effective_fraction"])),
        ("predicted against observed difficulty, r", _number(summary["select/pearson"])),
        (
            "groups: fresh, replayed, references",
            f"{summary['select/num_fresh']:.0f}, {summary['replay/num_replayed']:.0f}, "
            f"{summary['select/num_references']:.0f}",
        ),
        ("importance ratio of replayed tokens", _number(summary["replay/ratio_mean"])),
        ("rollouts", f"{summary['rollouts/total']}"),
        ("tokens generated", f"{summary['tokens/generated_total']}"),
        ("seconds a step", f"{_number(summary['time/step_s'], 2)} ({parts})"),
        (
            "seconds of training; of evaluating",
            f"{summary['time/train_s']:.1f}; {summary['time/evaluate_s']:.1f}",
        ),
    ]
    return [(name, text) for name, text in rows if text not in ("-", "- to -")]


def _line(metrics: dict[str, Any]) -> str:
    return LINE.format(
        reward=_number(metrics["reward/mean"]),
        effective=_number(metrics["select/effective_fraction"], 2),
        pearson=_number(metrics["select/pearson"], 2),
        fresh=int(metrics["select/num_fresh"]),
        replayed=int(metrics["replay/num_replayed"]),
        references=int(metrics["select/num_references"]),
        seconds=_number(metrics["time/step_s"], 2),
    )


def _change(summary: dict[str, Any], key: str) -> str:
    return f"{_number(summary[f'{key}_first'])} to {_number(summary[f'{key}_last'])}"


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"
