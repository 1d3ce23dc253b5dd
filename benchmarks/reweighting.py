"""Hold stored rollouts, re-weighted to the present policy, against the evidence posterior.

python benchmarks/reweighting.py RUN [RUN...]

Each run is one of plain GRPO in the embedded world that kept its checkpoints (`make reweighting`
trains three). Its policies are gone through in order. Each answers a random part of a small pool,
8 times a question, and what it answered is stored with its log-probabilities. Before that, the
success rates of questions that were asked before are estimated from what is stored, and measured
with 32 fresh answers each. So all estimates have seen the same rollouts.

Re-weighting is self-normalised importance sampling over whole answers, the idea of DARE (arXiv
2605.09188). It needs the present log-probabilities of all that is stored: a forward pass each time.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from evenodds.bootstrap import bootstrap_mean
from evenodds.difficulty import EvidencePosterior
from evenodds.difficulty.scores import pearson
from evenodds.embeddings import embed_with_model
from evenodds.engines import end_tokens, transformers_engine
from evenodds.toy import policy_path, pool
from evenodds.types import Observation

GROUP = 8  # answers that are stored of a question, each time it is drawn
TRUTH = 32  # answers that an estimate is held against
STORED = 64  # newest answers that are kept of a question
ENOUGH = 0.5  # effective sample size, as a share of what is stored, below which it is not trusted
ROWS = 512  # answers at once
NEW_TOKENS = 40

METHODS = ("newest group", "mean of all", "re-weighted", "re-weighted or newest", "posterior")


@dataclass(frozen=True)
class Answer:
    """What a policy said.

    Attributes:
        step: Place of the policy in its run.
        tokens: Prompt and completion.
        num_prompt: Tokens of the prompt.
        score: 1 for a right answer, else 0.
    """

    step: int
    tokens: tuple[int, ...]
    num_prompt: int
    score: float


class Policy:
    """A checkpoint that answers toy questions."""

    def __init__(self, folder: Path, step: int) -> None:
        self.step = step
        self.tokenizer: Any = AutoTokenizer.from_pretrained(policy_path(), padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.ends = end_tokens(self.model, self.tokenizer)
        self.generate = transformers_engine(
            self.model,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_ids=self.ends,
            temperature=1.0,
            top_p=1.0,
            max_new_tokens=NEW_TOKENS,
        )

    @torch.no_grad()
    def answers(self, rows: Sequence[dict[str, Any]], count: int) -> list[list[Answer]]:
        """`count` answers to each question."""
        wanted = [row for row in rows for _ in range(count)]
        found: list[Answer] = []
        for start in range(0, len(wanted), ROWS):
            part = wanted[start : start + ROWS]
            prompts = self.tokenizer(
                [row["question"] for row in part], return_tensors="pt", padding=True
            )
            output_RL = self.generate(prompts["input_ids"], prompts["attention_mask"])
            width = prompts["input_ids"].shape[1]
            texts = self.tokenizer.batch_decode(output_RL[:, width:], skip_special_tokens=True)
            lengths = prompts["attention_mask"].sum(dim=1).tolist()
            for row, ids, length, text in zip(
                part, output_RL.tolist(), lengths, texts, strict=True
            ):
                end = next(
                    (at + 1 for at in range(width, len(ids)) if ids[at] in self.ends), len(ids)
                )
                tokens = tuple(ids[width - length : end])
                found.append(Answer(self.step, tokens, length, float(text == row["answer"])))
        return [found[start : start + count] for start in range(0, len(found), count)]

    @torch.no_grad()
    def logps(self, answers: Sequence[Answer]) -> np.ndarray:
        """Log-probability of each completion, in nats."""
        logps_R = np.zeros(len(answers))
        order = sorted(range(len(answers)), key=lambda at: len(answers[at].tokens))
        for start in range(0, len(order), ROWS):
            places = order[start : start + ROWS]
            longest = max(len(answers[at].tokens) for at in places)
            ids_RL = torch.full((len(places), longest), self.tokenizer.pad_token_id)
            counts_RL = torch.zeros(len(places), longest, dtype=torch.bool)
            for row, at in enumerate(places):
                answer = answers[at]
                ids_RL[row, : len(answer.tokens)] = torch.tensor(answer.tokens)
                counts_RL[row, answer.num_prompt : len(answer.tokens)] = True
            logits_RLV = self.model(input_ids=ids_RL).logits[:, :-1].float()
            each_RL = torch.log_softmax(logits_RLV, dim=-1).gather(2, ids_RL[:, 1:, None])[..., 0]
            logps_R[places] = (each_RL * counts_RL[:, 1:]).sum(dim=1).numpy()
        return logps_R


def reweighted(scores_R: np.ndarray, log_ratios_R: np.ndarray) -> tuple[float, float]:
    """Success rate under the present policy, and the effective sample size.

    With w = exp(log ratio): sum w s / sum w, and (sum w)^2 / sum w^2.

    Args:
        scores_R: Of stored answers.
        log_ratios_R: Log-probability of each by the present policy less that by its own, in nats.
    """
    weights_R = np.exp(log_ratios_R - log_ratios_R.max())
    total = weights_R.sum()
    return float(weights_R @ scores_R / total), float(total**2 / np.square(weights_R).sum())


def checkpoints(run: Path) -> list[Path]:
    """Those of a run, first to last."""
    return sorted(
        (run / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1])
    )


def follow(run: Path, size: int, groups: int, hidden: int, seed: int) -> dict[str, np.ndarray]:
    """Estimates of each method, the truth and the share of effective samples, one an estimate."""
    generator = np.random.default_rng(seed)
    torch.manual_seed(seed)
    rows = [pool()[at] for at in generator.choice(len(pool()), size, replace=False)]
    embeddings = embed_with_model(str(policy_path()), [row["question"] for row in rows])
    posterior = EvidencePosterior(size, features_ND=embeddings.values_NE.float().numpy())
    stored: list[list[tuple[Answer, float]]] = [[] for _ in rows]
    found: dict[str, list[float]] = {name: [] for name in (*METHODS, "truth", "effective")}
    for step, folder in enumerate(checkpoints(run)):
        policy = Policy(folder, step)
        asked = [q for q in generator.choice(size, hidden, replace=False).tolist() if stored[q]]
        if asked:
            guessed_N = 1.0 - posterior.estimate().difficulty_N
            fresh = policy.answers([rows[q] for q in asked], TRUTH)
            for question, answers in zip(asked, fresh, strict=True):
                kept, logps = zip(*stored[question], strict=True)
                scores_R = np.array([answer.score for answer in kept])
                rate, effective = reweighted(scores_R, policy.logps(kept) - np.array(logps))
                newest = float(scores_R[-GROUP:].mean())
                share = effective / len(kept)
                values = (
                    newest,
                    float(scores_R.mean()),
                    rate,
                    rate if share >= ENOUGH else newest,
                    float(guessed_N[question]),
                    float(np.mean([answer.score for answer in answers])),
                    share,
                )
                for name, value in zip(found, values, strict=True):
                    found[name].append(value)
        drawn = generator.choice(size, groups, replace=False)
        answered = policy.answers([rows[q] for q in drawn], GROUP)
        logps_KG = policy.logps([a for group in answered for a in group]).reshape(-1, GROUP)
        for question, group, logps_G in zip(drawn, answered, logps_KG, strict=True):
            both = zip(group, logps_G.tolist(), strict=True)
            stored[question] = [*stored[question], *both][-STORED:]
        failed_K = np.array([1.0 - np.mean([a.score for a in group]) for group in answered])
        posterior.observe(
            Observation(
                drawn,
                failed_K.astype(np.float32),
                (failed_K > 0) & (failed_K < 1),
                np.full(groups, GROUP),
            )
        )
    return {name: np.array(values) for name, values in found.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=256, help="of the small pool (256)")
    parser.add_argument("--groups", type=int, default=64, help="answered by each policy (64)")
    parser.add_argument("--hidden", type=int, default=64, help="estimated at each policy (64)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for run in options.runs:
        if len(checkpoints(run)) < 2:
            parser.error(f"{run}: {len(checkpoints(run))} checkpoints; at least 2 are needed")
    transformers_logging.disable_progress_bar()
    found = []
    for place, run in enumerate(options.runs):
        sizes = options.questions, options.groups, options.hidden
        found.append(follow(run, *sizes, options.seed + place))
        print(f"{run}: {len(found[-1]['truth'])} estimates", flush=True)
    share = bootstrap_mean(np.array([run["effective"].mean() for run in found]))
    print(f"effective sample size, as a share of what is stored: {share}")
    print(f"{'':24}{'r':24}{'root mean square error'}")
    for name in METHODS:
        r = bootstrap_mean(np.array([pearson(run[name], run["truth"]) for run in found]))
        squares = [np.square(run[name] - run["truth"]).mean() for run in found]
        print(f"{name:24}{r!s:24}{bootstrap_mean(np.sqrt(squares))}")


if __name__ == "__main__":
    main()
