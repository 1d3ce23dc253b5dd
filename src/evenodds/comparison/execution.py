"""Runs a plan: some runs at a time, each in a process of its own, resumable at any moment."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

from evenodds.comparison.plan import Plan, PlannedRun
from evenodds.errors import CheckpointError, HostError
from evenodds.files import locked
from evenodds.recorder import METRICS

LOG = "train.log"
POLL_SECONDS = 0.5

OnProgress = Callable[[int], None]  # steps done over all runs


def execute(plan: Plan, on_progress: OnProgress | None = None) -> None:
    """Start or go on with every run that has not ended; runs that have are kept.

    Args:
        plan: Whose configs lie in the run folders.
        on_progress: Called now and then.

    Raises:
        HostError: a run failed; the others that had begun are waited for.
    """
    waiting = deque(run for run in plan.runs if not run.is_done)
    active: dict[PlannedRun, subprocess.Popen[bytes] | None] = {}
    failed: list[PlannedRun] = []
    try:
        while waiting or active:
            while waiting and len(active) < plan.at_once and not failed:
                run = waiting.popleft()
                active[run] = None if _is_held(run) else _start(run)
            time.sleep(POLL_SECONDS)
            for run, process in list(active.items()):
                if _has_ended(run, process):
                    del active[run]
                    if process is None and not run.is_done:
                        waiting.appendleft(run)  # who held it has gone
                    elif not run.is_done:
                        failed.append(run)
            if failed:
                waiting.clear()
            if on_progress is not None:
                on_progress(steps_done(plan.runs))
    except BaseException:
        _stop([process for process in active.values() if process is not None])
        raise
    if failed:
        raise HostError(
            f"a run of {failed[0].arm} failed",
            got=_last_words(failed[0]),
            expected="a run that ends",
            fix=f"see {failed[0].folder / LOG}; the same command goes on with what is left",
        )


def steps_done(runs: Sequence[PlannedRun]) -> int:
    """Training steps that are recorded, over all runs."""
    total = 0
    for run in runs:
        path = run.folder / METRICS
        if run.is_done:
            total += run.config.run.steps
        elif path.exists():
            total += min(path.read_bytes().count(b"\n"), run.config.run.steps)
    return total


def _start(run: PlannedRun) -> subprocess.Popen[bytes]:
    threads = str(run.config.run.threads)
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    command = [sys.executable, "-m", "evenodds", "train", "--resume", str(run.folder)]
    with (run.folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
        )


def _is_held(run: PlannedRun) -> bool:
    """Whether a process that an earlier, killed comparison left behind still works on it."""
    try:
        with locked(run.folder):
            return False
    except CheckpointError:
        return True


def _has_ended(run: PlannedRun, process: "subprocess.Popen[bytes] | None") -> bool:
    return not _is_held(run) if process is None else process.poll() is not None


def _stop(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait()


def _last_words(run: PlannedRun) -> str:
    """The error that the run ended with, or else the last line of its log."""
    lines = (run.folder / LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    said = [place for place, line in enumerate(lines) if line.startswith("evenodds: ")]
    return " ".join(" ".join(lines[said[-1] if said else -1 :]).split()) or "no word"
