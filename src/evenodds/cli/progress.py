"""Progress bars and tables of the commands."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

WIDE = 215  # columns


def track(items: Sequence[Any], description: str) -> Iterable[Any]:
    """The items, with a bar of how many are done and the time left."""
    with make_progress() as progress:
        task = progress.add_task(description, total=len(items))
        for item in items:
            yield item
            progress.advance(task)


@contextlib.contextmanager
def epochs(total: int) -> Iterator[Callable[[int], None]]:
    """A bar over epochs, or on no terminal a line now and then; yields what to call after each."""
    with make_progress() as progress:
        task = progress.add_task("Fitting, epoch", total=total)

        def done(epoch: int) -> None:
            progress.advance(task)
            if not progress.console.is_terminal and (epoch + 1) % max(1, total // 10) == 0:
                progress.console.print(f"Fitting, epoch {epoch + 1} of {total}")

        yield done


def quieten_transformers() -> None:
    """Leave the screen to our own display."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def make_progress() -> Progress:
    """A bar in the style of the command line; it shows nothing where there is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        MofNCompleteColumn(),
        BarColumn(bar_width=None),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> None:
    """Print a table; the first column is text, the others are numbers."""
    headed = any(columns)
    table = Table(title=title, title_justify="left", show_header=headed, caption=note or None)
    table.caption_justify = "left"
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def is_wide() -> bool:
    """Whether a table of eight columns with intervals fits on a line."""
    return _console().width >= WIDE


def _console() -> Console:
    """The terminal; where there is none, lines may be long."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)
