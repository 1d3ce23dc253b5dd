"""Completions of a policy for a question set, scored: the one way in which evenodds samples.

Questions are cut into blocks; each block has a seed of its own, from the seed and its number. So a
sampling that was killed and goes on gives what an unbroken one gives.
"""

import asyncio
import hashlib
import inspect
import json
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from evenodds.errors import CheckpointError, ConfigError
from evenodds.files import locked, read_json, read_lines, write_json, write_text
from evenodds.questions import QuestionPool

Generate = Callable[[Int[Tensor, "R P"], Int[Tensor, "R P"]], Int[Tensor, "R L"]]
"""From left-padded prompt ids and mask to prompt and completion ids."""

Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Shows how far a sequence is while it hands on its items."""

MANIFEST = "manifest.json"
QUESTIONS = "questions.jsonl"
_STRIDE = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Answered:
    """The S completions of a question.

    Attributes:
        question_id: Its id in the pool.
        scores: Reward of each.
        num_tokens: Length of each, its end token included.
        truncated: Whether each was cut off before its end token.
        completions: Their texts.
    """

    question_id: str
    scores: tuple[float, ...]
    num_tokens: tuple[int, ...]
    truncated: tuple[bool, ...]
    completions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A policy that can generate.

    Attributes:
        generate: Samples completions, settings included.
        device: Where it takes its prompts.
        eos_token_ids: Each ends a completion.
    """

    generate: Generate
    device: torch.device
    eos_token_ids: tuple[int, ...]


class Sampler:
    """Samples completions of a fixed question set and scores them.

    The same random numbers are used every time, and the global generators are left as they were.

    Args:
        pool: The questions.
        reward: In TRL's form; may be asynchronous.
        tokenizer: The policy's, padding on the left.
        samples: S, completions of a question, at least 1.
        batch_size: Completions generated at once, at least 1.
        seed: Of sampling.
        eos_token_ids: That end a completion; the tokenizer's by default.
    """

    def __init__(
        self,
        pool: QuestionPool,
        reward: Any,
        tokenizer: Any,
        *,
        samples: int,
        batch_size: int,
        seed: int,
        eos_token_ids: Sequence[int] = (),
    ) -> None:
        self.pool = pool
        self.reward = reward
        self.tokenizer = tokenizer
        self.samples = samples
        self.batch_size = batch_size
        self.seed = seed
        self.eos_token_ids = set(eos_token_ids) or {tokenizer.eos_token_id}
        self.prompt_ids = tokenize_prompts(tokenizer, [pool.prompt(i) for i in range(len(pool))])

    def rows(self, index: int = 0, count: int = 1) -> list[int]:
        """The questions of process `index` of `count`, longest prompt last."""
        order = sorted(range(len(self.pool)), key=lambda row: len(self.prompt_ids[row]))
        return order[index::count]

    def blocks(self, rows: Sequence[int]) -> list[list[int]]:
        """These questions, as many together as a batch holds with all their completions."""
        size = max(1, self.batch_size // self.samples)
        return [list(rows[start : start + size]) for start in range(0, len(rows), size)]

    @torch.no_grad()
    def answer(
        self, generate: Generate, number: int, block: Sequence[int], device: torch.device
    ) -> list[Answered]:
        """Sample and score all completions of a block.

        Args:
            generate: Samples completions, settings included.
            number: Of the block, from 0; the first one has the seed as it is.
            block: Rows of the pool.
            device: Where the policy is.
        """
        wanted = [row for row in block for _ in range(self.samples)]
        parts: list[tuple[float, int, bool, str]] = []
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed((self.seed + number * _STRIDE) % 2**63)
            for start in range(0, len(wanted), self.batch_size):
                parts += self._batch(generate, wanted[start : start + self.batch_size], device)
        answered = []
        for place, row in enumerate(block):
            own = parts[place * self.samples : (place + 1) * self.samples]
            scores, lengths, truncated, texts = zip(*own, strict=True)
            answered.append(Answered(self.pool.ids[row], scores, lengths, truncated, texts))
        return answered

    def _batch(
        self, generate: Generate, batch: Sequence[int], device: torch.device
    ) -> list[tuple[float, int, bool, str]]:
        longest = max(len(self.prompt_ids[row]) for row in batch)
        ids_RP = torch.full((len(batch), longest), self.tokenizer.pad_token_id)
        mask_RP = torch.zeros(len(batch), longest, dtype=torch.int64)
        for place, row in enumerate(batch):
            prompt = torch.tensor(self.prompt_ids[row])
            ids_RP[place, longest - len(prompt) :] = prompt
            mask_RP[place, longest - len(prompt) :] = 1
        output_RL = generate(ids_RP.to(device), mask_RP.to(device))
        completions = output_RL[:, longest:]
        texts = self.tokenizer.batch_decode(completions, skip_special_tokens=True)
        ends = [_end(ids, self.eos_token_ids) for ids in completions.tolist()]
        scores = self._scores(batch, texts)
        return [
            (float(score), length, truncated, text)
            for score, (length, truncated), text in zip(scores, ends, texts, strict=True)
        ]

    def _scores(self, batch: Sequence[int], texts: list[str]) -> list[float]:
        questions = [self.pool.row(row) for row in batch]
        columns = {name: [q[name] for q in questions] for name in questions[0] if name != "prompt"}
        prompts = [question["prompt"] for question in questions]
        completions: list[Any] = texts
        if not isinstance(prompts[0], str):
            completions = [[{"role": "assistant", "content": text}] for text in texts]
        scores = self.reward(prompts=prompts, completions=completions, **columns)
        return asyncio.run(_awaited(scores)) if inspect.isawaitable(scores) else scores


def sample_into(
    folder: Path,
    sampler: Sampler,
    load: Callable[[], Loaded],
    manifest: Mapping[str, Any],
    track: Track | None = None,
) -> list[Answered]:
    """Sample the whole pool, question by question into `folder`; go on where it was.

    Args:
        folder: Holds `manifest.json` and `questions.jsonl`; made where it is not there.
        sampler: With the pool.
        load: Loads the policy; called only if something is left to do.
        manifest: Model, questions and settings, as JSON has them.
        track: Shows how far it is, over blocks.

    Returns:
        A record a question, in the order of the pool.

    Raises:
        CheckpointError: the folder belongs to another sampling, or is damaged.
        ConfigError: it cannot be written to.
    """
    check_folder(folder, manifest)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / QUESTIONS
    blocks = list(enumerate(sampler.blocks(sampler.rows())))
    with locked(folder):
        write_json(folder / MANIFEST, manifest)
        known = {record["question_id"]: record for record in read_lines(path)}
        ids = sampler.pool.ids
        done = {number for number, block in blocks if all(ids[row] in known for row in block)}
        kept = [known[ids[row]] for number, block in blocks if number in done for row in block]
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
        left = [(number, block) for number, block in blocks if number not in done]
        if left:
            policy = load()
            sampler.eos_token_ids = set(policy.eos_token_ids)
            for number, block in _tracked(left, track):
                _append(path, sampler.answer(policy.generate, number, block, policy.device))
        found = {record["question_id"]: _answered(record) for record in read_lines(path)}
    return [found[name] for name in ids]


def check_folder(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something else, or that cannot be written to.

    Raises:
        CheckpointError: it belongs to another model, question set or settings.
        ConfigError: it cannot be written to.
    """
    if (folder / MANIFEST).exists():
        before = read_json(folder / MANIFEST)
        changed = [
            name for name in {**before, **manifest} if before.get(name) != manifest.get(name)
        ]
        if changed:
            name = changed[0]
            raise CheckpointError(
                f"{folder} holds the results of another {name}",
                got=f"{name} = {manifest.get(name)!r}",
                expected=f"{name} = {before.get(name)!r}",
                fix="use another --out, or the settings it was begun with",
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(
            "the output folder is in use", got=folder, expected="a new or empty folder"
        )
    try:
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise ConfigError(
            "the output folder cannot be written to",
            got=f"{folder}: {error.strerror}",
            fix="name another place with --out",
        ) from error


def pool_digest(pool: QuestionPool) -> str:
    """A hash of what is asked and of what is right, for a manifest."""
    parts = [pool.ids, pool.answers, pool.system_prompt]
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _append(path: Path, answered: Iterable[Answered]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(asdict(each)) + "\n" for each in answered))
        file.flush()
        os.fsync(file.fileno())


def _answered(record: Mapping[str, Any]) -> Answered:
    names = ("scores", "num_tokens", "truncated", "completions")
    return Answered(record["question_id"], *(tuple(record[name]) for name in names))


def _tracked(blocks: Sequence[Any], track: Track | None) -> Iterator[Any]:
    return iter(blocks if track is None else track(blocks, "Sampling, block"))


def _end(ids: Sequence[int], eos_token_ids: set[int]) -> tuple[int, bool]:
    """Number of tokens up to the end token, and whether there is none."""
    for place, token in enumerate(ids):
        if token in eos_token_ids:
            return place + 1, False
    return len(ids), True


async def _awaited(scores: Awaitable[list[float]]) -> list[float]:
    return await scores


def tokenize_prompts(tokenizer: Any, prompts: Sequence[Any]) -> list[list[int]]:
    """Token ids of prompts, by the chat template where they are messages."""
    if isinstance(prompts[0], str):
        return tokenizer(list(prompts))["input_ids"]
    return tokenizer.apply_chat_template(
        list(prompts), add_generation_prompt=True, tokenize=True, return_dict=True
    )["input_ids"]
