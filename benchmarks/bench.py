"""How long a refresh of predicted difficulty and a selection take, and how much memory.

    make bench                              everything, a few minutes
    python benchmarks/bench.py --quick      the slow comparison on a tenth of its questions

Everything runs on 2 threads, one after the other in one process, except for the memory, which is
the high-water mark of a process that does nothing else. A time is the median of several repeats,
with the fastest and the slowest beside it; what is compared takes turns. Targets are printed, not
enforced: another machine, or another process on this one, changes every number. How much of the
processors other processes took meanwhile stands under each table.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# As in `evenodds train`: idle threads sleep. Beside another busy process, threads that wait in a
# loop make the small products of the straightforward version twenty times slower.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from evenodds.config import EfficiencyConfig
from evenodds.difficulty import (
    AttentionPredictor,
    EvidencePosterior,
    GroupPlatt,
    PredictorModel,
    attention_difficulty,
    platt,
)
from evenodds.loop import DataEfficientLoop
from evenodds.selection import gumbel_top_k, selection_logits
from evenodds.types import Observation

THREADS = 2
EMBEDDING_SIZE, WIDTH, REFERENCES = 1536, 896, 256  # E, H, K of the paper
POOL = 10_240  # the paper's largest
BATCH = 32  # queries of the straightforward version that are predicted together
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
SELECTED = 512
FEATURES = 64  # of the text, for the posterior

console = Console(highlight=False, soft_wrap=True, width=100)


class OtherProcesses:
    """What other processes take of the processors, from now on (Linux)."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.busy = self._busy()

    def note(self) -> str:
        """Their share so far, as text."""
        seconds = (time.perf_counter() - self.start) * (os.cpu_count() or 1)
        share = (self._busy() - self.busy) / seconds
        return f"other processes took {max(0.0, share):.0%} of the processors meanwhile"

    def _busy(self) -> float:
        """Seconds that all processes but this one and its children have used."""
        stat = Path("/proc/stat")
        if not stat.exists():
            return float("nan")
        user, nice, system, _, _, *rest = map(int, stat.read_text().split("\n")[0].split()[1:9])
        everyone = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
        ours = os.times()
        return everyone - sum(ours[:4])


@dataclass(frozen=True)
class Timing:
    """Seconds of each repeat."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one, in seconds."""
        return statistics.median(self.seconds)

    def __add__(self, other: "Timing") -> "Timing":
        return Timing(self.seconds + other.seconds)

    def cells(self) -> tuple[str, str]:
        """The median, and the fastest and slowest."""
        low, high = min(self.seconds), max(self.seconds)
        return f"{self.median:.4f} s", f"{low:.4f} to {high:.4f} ({len(self.seconds)})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Time refresh and selection.")
    parser.add_argument(
        "--quick", action="store_true", help="the straightforward version on a tenth of the pool"
    )
    parser.add_argument("--memory-of", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    if options.memory_of is not None:
        print_memory(options.memory_of)
        return
    show_machine("before")
    compare_with_straightforward(POOL // 10 if options.quick else POOL)
    time_growth()
    time_selection()
    time_posterior()
    show_machine("after")


def compare_with_straightforward(count: int) -> None:
    """A refresh of the paper's pool, beside one that adapts anew what has not changed.

    Args:
        count: Questions that the straightforward version predicts, from the first on.
    """
    model = PredictorModel(EMBEDDING_SIZE, WIDTH).eval()
    embeddings_NE = torch.randn(POOL, EMBEDDING_SIZE)
    references = draw_references(POOL)
    start = time.perf_counter()
    predictor = AttentionPredictor.trained(model, embeddings_NE, embedding_model="")
    seconds_once = time.perf_counter() - start
    watch = OtherProcesses()
    fast, part = Timing(()), Timing(())
    for _ in range(3):
        part += timed(lambda: straightforward(model, embeddings_NE, references, count), 1)
        fast += timed(lambda: predictor.predict(references), 5)
    slow = Timing(tuple(seconds * POOL / count for seconds in part.seconds))
    expected_N = straightforward(model, embeddings_NE, references, count)
    difference = np.abs(predictor.predict(references)[:count] - expected_N).max()
    remark = "" if count == POOL else f", extrapolated from {count:,}"

    table = make_table(
        f"Refresh of {POOL:,} questions, E {EMBEDDING_SIZE:,}, H {WIDTH}, K {REFERENCES}, float32"
    )
    table.add_row(f"straightforward{remark}", *slow.cells())
    table.add_row("evenodds", *fast.cells())
    table.add_row("ratio", f"{slow.median / fast.median:,.0f}", "", "at least 2,000")
    table.add_row("largest difference", f"{difference:.1e}", "", "at most 1e-4")
    table.add_row("evenodds, once a run", f"{seconds_once:.4f} s")
    show(table, watch)


@torch.inference_mode()
def straightforward(
    model: PredictorModel, embeddings_NE: Tensor, references: Observation, count: int
) -> np.ndarray:
    """For each batch of queries: adapt these, adapt the references, attend. Then calibrate."""
    rows_K = torch.from_numpy(references.questions_K)
    observed_K = torch.from_numpy(references.difficulty_K)
    parts = []
    for start in range(0, count, BATCH):
        query_BE = embeddings_NE[start : min(start + BATCH, count)]
        own_K = rows_K - start
        own_K = torch.where((own_K >= 0) & (own_K < len(query_BE)), own_K, -1)
        query_BH = model.query_adapter(query_BE)
        reference_KH = model.reference_adapter(embeddings_NE[rows_K])
        parts.append(attention_difficulty(query_BH, reference_KH, observed_K, own_rows_K=own_K))
    return platt(torch.cat(parts), *model.calibration(observed_K)).numpy()


def time_growth() -> None:
    """Refreshes of growing pools, and the memory of the largest."""
    query_NH = random_queries(SIZES[-1])
    table = make_table(f"Refresh of growing pools, H {WIDTH}, K {REFERENCES}, bfloat16")
    table.add_column("size -> time", justify="right")
    smallest, watch = 0.0, OtherProcesses()
    for size in SIZES:
        predictor, references = adapted_pool(query_NH[:size])
        timing = timed(lambda now=predictor, seen=references: now.predict(seen), 5)
        smallest = smallest or timing.median
        growth = f"{size / SIZES[0]:.0f} -> {timing.median / smallest:.1f}"
        target = "at most 3 s" if size == 1_000_000 else ""
        table.add_row(f"{size:,}", *timing.cells(), target, growth)
    del query_NH
    gigabytes = memory_of(SIZES[-1])
    table.add_row(f"peak memory, {SIZES[-1]:,}", f"{gigabytes:.2f} GB", "", "under 3 GB")
    show(table, watch)


def time_selection() -> None:
    """Choosing questions out of the largest pool."""
    generator = np.random.default_rng(0)
    difficulty_N = generator.uniform(size=SIZES[-1]).astype(np.float32)

    def select() -> None:
        logits_N = selection_logits(difficulty_N, target=0.5, temperature=1e-3)
        gumbel_top_k(logits_N, SELECTED, generator)

    watch = OtherProcesses()
    timing = timed(select, 15)
    table = make_table(f"Selection out of {SIZES[-1]:,} questions")
    table.add_row(f"{SELECTED} questions", *timing.cells())
    show(table, watch)


def time_posterior() -> None:
    """A whole step of the preset `evenodds` without the host: plan, observe, estimate, choose."""
    watch = OtherProcesses()
    table = make_table(f"A step of the evidence posterior, {SELECTED} groups of 8")
    for size, target in ((10_000, "0.05 s"), (1_000_000, "1 s")):
        for features in (0, FEATURES):
            timing = timed(posterior_step(size, features), 7)
            columns = f"{features} features" if features else "no features"
            table.add_row(f"{size:,} questions, {columns}", *timing.cells(), target)
    show(table, watch)


def posterior_step(size: int, features: int) -> Callable[[], object]:
    """A step of a loop that has observed enough for its fit to be as large as it gets."""
    generator = np.random.default_rng(0)
    rate_N = generator.uniform(size=size)
    values_ND = generator.normal(size=(size, features)).astype(np.float32) if features else None
    config = EfficiencyConfig.preset("evenodds", fresh_fraction=1.0)
    estimator = EvidencePosterior(size, features_ND=values_ND)
    loop = DataEfficientLoop(config, size, SELECTED, estimator=estimator)

    def step() -> None:
        loop.plan_references()
        questions_B = loop.plan_batch().questions
        solved_B = generator.binomial(8, rate_N[questions_B])
        loop.observe(
            Observation(
                questions_K=questions_B,
                difficulty_K=(1.0 - solved_B / 8).astype(np.float32),
                effective_K=(solved_B > 0) & (solved_B < 8),
                samples_K=np.full(len(questions_B), 8),
            )
        )

    for _ in range(10):
        step()
    return step


def adapted_pool(query_NH: Tensor) -> tuple[AttentionPredictor, Observation]:
    """A predictor whose adapted queries are given, and references to refresh it with.

    The references are adapted in each refresh, from embeddings of as many numbers as the paper's.
    """
    adapter = PredictorModel(EMBEDDING_SIZE, WIDTH).eval().reference_adapter
    embeddings_KE = torch.randn(REFERENCES, EMBEDDING_SIZE)
    predictor = AttentionPredictor(query_NH, lambda rows_K: adapter(embeddings_KE), GroupPlatt())
    return predictor, draw_references(len(query_NH))


def random_queries(count: int) -> Tensor:
    """Numbers as the last LayerNorm of an adapter gives them, made in place."""
    query_NH = torch.empty(count, WIDTH, dtype=torch.bfloat16)
    for rows_MH in query_NH.split(8192):
        rows_MH.normal_()
    return query_NH


def draw_references(num_questions: int) -> Observation:
    """K random questions with random difficulty."""
    generator = np.random.default_rng(0)
    return Observation(
        questions_K=generator.permutation(num_questions)[:REFERENCES],
        difficulty_K=generator.uniform(size=REFERENCES).astype(np.float32),
        effective_K=np.ones(REFERENCES, dtype=bool),
        samples_K=np.full(REFERENCES, 8),
    )


def timed(function: Callable[[], object], repeats: int) -> Timing:
    """Seconds of each call, after one that does not count."""
    function()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return Timing(tuple(seconds))


def memory_of(size: int) -> float:
    """Most gigabytes in memory while a process refreshes a pool of this size."""
    command = [sys.executable, __file__, "--memory-of", str(size)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(result.stdout)


def print_memory(size: int) -> None:
    """Refresh once, and print this process's high-water mark in gigabytes."""
    predictor, references = adapted_pool(random_queries(size))
    predictor.predict(references)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak * (1 if sys.platform == "darwin" else 1024) / 1e9)


def make_table(title: str) -> Table:
    """What was measured beside what was aimed at."""
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("median", "spread (repeats)", "target"):
        table.add_column(name, justify="right")
    return table


def show(table: Table, watch: OtherProcesses) -> None:
    """Print a table with what else went on."""
    console.print(table)
    console.print(f"{watch.note()}\n")


def show_machine(when: str) -> None:
    """What it ran on, and how busy that was."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().split("\n") if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    console.print(
        f"{when}: {names[0] if names else 'unknown processor'}, {os.cpu_count()} CPUs, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"load of 1, 5, 15 minutes: {load}"
    )


if __name__ == "__main__":
    main()
