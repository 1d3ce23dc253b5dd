"""Make the toy world of `evenodds.toy`, and measure it. Everything is seeded and runs on a CPU.

python scripts/make_toy.py policy                    the start policy, into the package
python scripts/make_toy.py labels --out build/toy    other policies, and what each can answer
python scripts/make_toy.py predictor --out build/toy a predictor of difficulty from these labels
python scripts/make_toy.py statistics                the tables of the README
python scripts/make_toy.py curve --world easy        plain GRPO with TRL: accuracy and time
"""

import argparse
import functools
import itertools
import json
import math
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrainerCallback,
)

from evenodds import toy
from evenodds.difficulty import AttentionPredictor, FitConfig, fit_predictor, pearson
from evenodds.embeddings import embed_with_policy
from evenodds.labels import read_labels
from evenodds.questions import question_id
from evenodds.rewards.exact import grade
from evenodds.toy.questions import TASKS, WORLDS, draw, split_of
from evenodds.types import Observation

Row = dict[str, Any]

MAX_NEW_TOKENS = 40  # the longest right answer: 39 characters and the end
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


# The tutor: whose demonstrations a policy imitates, and who errs the more the harder the question

TASK_LEVELS = {
    "copy": 1.0,
    "reverse": 0.0,
    "sort": 0.0,
    "rotate": -0.5,
    "peaks": 0.5,
    "double": -0.5,
    "sums": -0.5,
    "spell": 0.5,
}


@dataclass(frozen=True, kw_only=True)
class Tutor:
    """How often the demonstrations are right, in log-odds.

    Attributes:
        level: For three digits, before task and content count.
        slope: Lost with each further digit.
        content: Weight of which digits they are.
        taste: Seed of what sets this tutor apart from others; none for the plain one.
        spread: Standard deviation of what does: of each task, and half as much of each digit.
    """

    level: float = 2.7
    slope: float = 1.4
    content: float = 0.9
    taste: int | None = None
    spread: float = 0.7

    def log_odds(self, row: Row) -> float:
        task_level, digit_weights = habits(self, row["task"])
        content = sum(digit_weights[int(digit)] for digit in digits_of(row))
        return task_level - self.slope * (row["length"] - 3) + content


@functools.cache
def habits(tutor: Tutor, task: str) -> tuple[float, list[float]]:
    """Log-odds of a task, and of each digit that occurs; some digits are hard for all tutors."""
    common, special = random.Random("digits"), random.Random(f"digits-{task}")
    weights = [0.6 * common.gauss(0, 1) + 0.8 * special.gauss(0, 1) for _ in range(10)]
    mean = sum(weights) / 10
    weights = [tutor.content * (weight - mean) for weight in weights]
    level = tutor.level + TASK_LEVELS[task]
    if tutor.taste is not None:
        own = random.Random(f"{tutor.taste}-{task}")
        level += own.gauss(0, tutor.spread)
        weights = [weight + own.gauss(0, tutor.spread / 2) for weight in weights]
    return level, weights


def demonstrate(tutor: Tutor, row: Row, dice: random.Random) -> str:
    """The right answer, or one that is wrong in a way of its own.

    Half of the log-probability of being right is lost to mistaking the task, half to slips of
    single characters.
    """
    answer = row["answer"]
    right = 1 / (1 + math.exp(-tutor.log_odds(row)))
    if dice.random() > right**0.5:
        answer = mistake(row)
    slip = 1 - right ** (0.5 / len(answer))
    return "".join(slipped(char, answer, dice) if dice.random() < slip else char for char in answer)


def mistake(row: Row) -> str:
    """What comes of mistaking the task."""
    digits, answer = digits_of(row), row["answer"]
    turn = len(digits) - digits_turned(row)
    return {
        "copy": lambda: digits[:-2] + digits[-1] + digits[-2],
        "reverse": lambda: digits,
        "sort": lambda: "".join(sorted(digits, reverse=True)),
        "rotate": lambda: digits[turn:] + digits[:turn],
        "peaks": lambda: "".join(itertools.accumulate(digits, min)),
        "double": lambda: "".join(str(2 * int(digit) % 10) for digit in digits),
        "sums": lambda: ",".join(total[-1] for total in answer.split(",")),
        "spell": lambda: " ".join(reversed(answer.split(" "))),
    }[row["task"]]()


def slipped(char: str, answer: str, dice: random.Random) -> str:
    kind = dice.random()
    if kind < 0.2:
        return ""
    if kind < 0.4:
        return char + char
    return str((int(char) + dice.choice((1, 9))) % 10) if char.isdigit() else dice.choice(answer)


def digits_of(row: Row) -> str:
    return row["question"].split("(")[1].rstrip(")=").split(",")[0]


def digits_turned(row: Row) -> int:
    return int(row["question"].rstrip(")=").split(",")[1]) if TASKS[row["task"]].turns else 0


# Policies


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a policy is made: first from right answers, then from a tutor's."""

    tutor: Tutor
    seed: int
    hidden: int = 64
    intermediate: int = 160
    layers: int = 4
    right_steps: int = 800
    tutored_steps: int = 1200
    batch_size: int = 256
    learning_rate: float = 2e-3


START = Recipe(tutor=Tutor(), seed=0)
SHORTER = {"right_steps": 600, "tutored_steps": 700}
OTHERS = {
    "twin": Recipe(tutor=Tutor(taste=1), seed=1, **SHORTER),
    "weak": Recipe(tutor=Tutor(taste=2, level=1.5), seed=2, layers=3, **SHORTER),
    "strong": Recipe(tutor=Tutor(taste=3, level=4.0), seed=3, **SHORTER),
    "steep": Recipe(tutor=Tutor(taste=4, level=4.0, slope=1.9), seed=4, layers=3, **SHORTER),
    "slim": Recipe(tutor=Tutor(taste=5), seed=5, hidden=48, intermediate=128, **SHORTER),
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A token for each printable ASCII character."""
    characters = ["<pad>", "<eos>", "<unk>", *map(chr, range(32, 127))]
    vocabulary = {character: number for number, character in enumerate(characters)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
        model_max_length=128,
    )
    fast.chat_template = CHAT
    return fast


def make_policy(recipe: Recipe) -> LlamaForCausalLM:
    """Train a policy from nothing."""
    torch.manual_seed(recipe.seed)
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    imitate(model, tokenizer, recipe)
    return model.eval()


def imitate(model: LlamaForCausalLM, tokenizer: Any, recipe: Recipe) -> None:
    """Cross-entropy on the answers of demonstrations; AdamW, warm-up, cosine decay to 5 %."""
    steps = recipe.right_steps + recipe.tutored_steps
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / 100) * (0.525 + 0.475 * math.cos(math.pi * step / steps))
        ),
    )
    start, total = time.perf_counter(), 0.0
    for step, batch in zip(range(1, steps + 1), demonstrations(recipe), strict=False):
        ids, targets = padded(batch, tokenizer)
        asked = targets != -100
        loss = functional.cross_entropy(model(ids).logits[asked], targets[asked])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % 200 == 0:
            seconds = time.perf_counter() - start
            print(f"  step {step}/{steps}, loss {total / 200:.3f}, {seconds:.0f} s", flush=True)
            total = 0.0


def demonstrations(recipe: Recipe, batches: int = 8) -> Iterator[list[tuple[str, str]]]:
    """Batches of (question, demonstrated answer), each of about one length, without end."""
    dice, step = random.Random(recipe.seed), 0
    while True:
        pairs = []
        while len(pairs) < recipe.batch_size * batches:
            row = draw(dice, WORLDS["main"])
            if split_of(row["question"]) == "demonstrations":
                is_right = step < recipe.right_steps
                answer = row["answer"] if is_right else demonstrate(recipe.tutor, row, dice)
                pairs.append((row["question"], answer))
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        starts = list(range(0, len(pairs), recipe.batch_size))
        dice.shuffle(starts)
        for begin in starts:
            yield pairs[begin : begin + recipe.batch_size]
        step += batches


def padded(batch: Sequence[tuple[str, str]], tokenizer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and next-token targets, padded on the right; -100 where nothing is asked."""
    texts = [tokenizer(question + answer)["input_ids"] for question, answer in batch]
    width = max(map(len, texts)) + 1
    ids = torch.full((len(batch), width), tokenizer.pad_token_id)
    targets = torch.full((len(batch), width), -100)
    for row, ((question, _), text) in enumerate(zip(batch, texts, strict=True)):
        full = torch.tensor([*text, tokenizer.eos_token_id])
        ids[row, : len(full)] = full
        targets[row, len(question) - 1 : len(full) - 1] = full[len(question) :]
    return ids, targets


# Rollouts


@torch.no_grad()
def sample(
    model: Any, tokenizer: Any, rows: Sequence[Row], num_samples: int, *, greedy: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each of (N, num_samples) rollouts is right, and its length in tokens, eos included.

    Sampled at temperature 1 from all tokens.
    """
    config = GenerationConfig(
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **({"do_sample": False} if greedy else {"do_sample": True, "top_k": 0}),
    )
    repeated = [row for row in rows for _ in range(num_samples)]
    right, lengths = [], []
    for begin in range(0, len(repeated), 512):
        batch = repeated[begin : begin + 512]
        asked = tokenizer([row["question"] for row in batch], return_tensors="pt", padding=True)
        full = model.generate(
            input_ids=asked["input_ids"],
            attention_mask=asked["attention_mask"],
            generation_config=config,
        )
        new = full[:, asked["input_ids"].shape[1] :]
        texts = tokenizer.batch_decode(new, skip_special_tokens=True)
        right += [grade(text, row["answer"]) for text, row in zip(texts, batch, strict=True)]
        lengths += (new != tokenizer.pad_token_id).sum(dim=1).tolist()
    shape = len(rows), num_samples
    return np.array(right).reshape(shape), np.array(lengths).reshape(shape)


# Measures


def describe_rollouts(right: np.ndarray, lengths: np.ndarray) -> dict[str, float]:
    """What a training run meets at its start, in groups of the first 8 rollouts."""
    solved = right[:, :8].sum(axis=1)
    return {
        "groups at 0": np.mean(solved == 0),
        "groups at 1": np.mean(solved == 8),
        "groups effective": np.mean((solved > 0) & (solved < 8)),
        "mean pass rate": right.mean(),
        "completion tokens, mean": lengths.mean(),
        "completion tokens, most": lengths.max(),
    }


def cells(rows: Sequence[Row]) -> np.ndarray:
    """The (task, length) of each question as a number."""
    names = [(row["task"], row["length"]) for row in rows]
    numbers = {name: number for number, name in enumerate(sorted(set(names)))}
    return np.array([numbers[name] for name in names])


def correlation_with_cell(rows: Sequence[Row], right: np.ndarray) -> float:
    """Correlation of a question's true pass rate with that of the others of its task and length.

    Corrected for the noise of the samples by their split-half reliability.
    """
    rates, members = right.mean(axis=1), cells(rows)
    totals = np.bincount(members, weights=rates)[members]
    others = (totals - rates) / (np.bincount(members)[members] - 1)
    half = np.corrcoef(right[:, ::2].mean(axis=1), right[:, 1::2].mean(axis=1))[0, 1]
    return np.corrcoef(rates, others)[0, 1] / math.sqrt(2 * half / (1 + half))


def ridge(features: np.ndarray, rates: np.ndarray, penalty: float = 3.0) -> tuple[float, float]:
    """R^2 and correlation on the second half of the questions, fitted on the first."""
    half = len(rates) // 2
    mean, scale = features[:half].mean(axis=0), features[:half].std(axis=0) + 1e-9
    inputs = (features - mean) / scale
    known, level = inputs[:half], rates[:half].mean()
    square = known.T @ known + penalty * np.eye(known.shape[1])
    predicted = level + inputs[half:] @ np.linalg.solve(square, known.T @ (rates[:half] - level))
    truth = rates[half:]
    r_squared = 1 - ((truth - predicted) ** 2).mean() / truth.var()
    return r_squared, np.corrcoef(truth, predicted)[0, 1]


def predictability(model: Any, tokenizer: Any, rows: Sequence[Row], right: np.ndarray) -> Row:
    """How well a linear model foretells the pass rates from embeddings, and from (task, length)."""
    embeddings = embed_with_policy(model, tokenizer, [row["question"] for row in rows])
    by_embedding = ridge(embeddings.values_NE.numpy().astype(float), right.mean(axis=1))
    members = cells(rows)
    by_cell = ridge(np.eye(members.max() + 1)[members], right.mean(axis=1))
    return {
        "correlation with (task, length)": correlation_with_cell(rows, right),
        "ridge on embeddings, R^2": by_embedding[0],
        "ridge on embeddings, r": by_embedding[1],
        "ridge on (task, length), R^2": by_cell[0],
        "ridge on (task, length), r": by_cell[1],
    }


def rates_by_cell(rows: Sequence[Row], right: np.ndarray) -> str:
    """Mean pass rate of each task (lines) and number of digits (columns)."""
    found = defaultdict(list)
    for row, one in zip(rows, right.mean(axis=1), strict=True):
        found[row["task"], row["length"]].append(one)
    lengths = sorted({length for _, length in found})
    lines = ["| task | " + " | ".join(map(str, lengths)) + " |", "|---" * (len(lengths) + 1) + "|"]
    for task in TASKS:
        values = [found.get((task, length)) for length in lengths]
        shown = (f"{np.mean(value):.2f}" if value else "" for value in values)
        lines.append(f"| {task} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


# Commands


def policy(args: argparse.Namespace) -> None:
    """Train the start policy and save it as the package's."""
    model = make_policy(START)
    save_policy(model, Path(args.out))
    size = sum(file.stat().st_size for file in Path(args.out).iterdir())
    print(f"{args.out}: {model.num_parameters()} parameters, {size / 1e6:.2f} MB in all")


def save_policy(model: Any, folder: Path) -> None:
    model.save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors leaves its file to its owner alone


def labels(args: argparse.Namespace) -> None:
    """Train the other policies and let each answer the pool; the start policy in its own file.

    Columns: `row` in the pool, `question`, `policy`, `n_samples`, `n_correct`.
    """
    out, rows = Path(args.out), toy.pool()
    start, tokenizer = load_policy(toy.policy_path())
    start_right = labelled(start, tokenizer, rows, args.samples, seed=0)
    write_labels(out / "start.parquet", rows, {"start": start_right})
    others = {}
    for name, recipe in OTHERS.items():
        print(name, flush=True)
        folder = out / "policies" / name
        if not (folder / "config.json").exists():
            save_policy(make_policy(recipe), folder)
        model, tokenizer = load_policy(folder)
        others[name] = labelled(model, tokenizer, rows, args.samples, seed=recipe.seed)
        report = describe_rollouts(others[name], np.zeros((1, 1)))
        agreement = np.corrcoef(others[name].mean(axis=1), start_right.mean(axis=1))[0, 1]
        shares = ", ".join(f"{key} {value:.2f}" for key, value in list(report.items())[:4])
        print(f"  {shares}, correlation with start {agreement:.3f}", flush=True)
    write_labels(out / "labels.parquet", rows, others)


VALIDATION = "twin"  # the policy whose labels choose the epoch
PREDICTOR = FitConfig(
    width=64, num_references=32, batch_size=128, epochs=40, warmup_steps=50, seed=0
)


def predictor(args: argparse.Namespace) -> None:
    """Fit the difficulty predictor of the quickstart to the other policies' labels.

    The start policy's own labels are only looked at afterwards, to print how good it is.
    """
    rows = toy.pool()
    ids = [question_id(row["question"]) for row in rows]
    labels = read_labels(Path(args.out) / "labels.parquet").aligned(ids)
    model, tokenizer = load_policy(toy.policy_path())
    questions = [row["question"] for row in rows]
    embeddings = embed_with_policy(model, tokenizer, questions, name="toy", batch_size=256)
    names = [name for name in labels.policies if name != VALIDATION]
    fitted, report = fit_predictor(
        embeddings.values_NE,
        torch.from_numpy(labels.of_policies(names).difficulty_LN),
        PREDICTOR,
        validation_VN=torch.from_numpy(labels.of_policies([VALIDATION]).difficulty_LN),
        embedding_model=embeddings.model,
    )
    path = toy.policy_path() / "predictor.safetensors"
    fitted.save(path)
    path.chmod(0o644)
    best = report.validation_pearson[report.best_epoch]
    print(f"{path}: epoch {report.best_epoch}, r {best:.3f} on {VALIDATION}")
    start = read_labels(Path(args.out) / "start.parquet").aligned(ids).difficulty_LN[0]
    for name, estimator in (
        (
            "trained",
            AttentionPredictor.trained(
                fitted, embeddings.values_NE, embedding_model=embeddings.model
            ),
        ),
        ("embeddings as they are", AttentionPredictor.untrained(embeddings.values_NE)),
    ):
        print(f"  start policy, {name}: r {pearson_on(estimator, start):.3f}")


def pearson_on(estimator: AttentionPredictor, difficulty: np.ndarray, draws: int = 20) -> float:
    """Mean correlation with 16-rollout difficulty over reference sets of 32 with 8 rollouts."""
    dice = np.random.default_rng(0)
    scores = []
    for _ in range(draws):
        chosen = dice.choice(len(difficulty), PREDICTOR.num_references, replace=False)
        solved = dice.random((len(chosen), 8)) >= difficulty[chosen, None]
        predicted = estimator.predict(Observation.of_rewards(chosen, solved.astype(float)))
        rest = np.setdiff1d(np.arange(len(difficulty)), chosen)
        scores.append(pearson(predicted[rest], difficulty[rest]))
    return float(np.mean(scores))


def labelled(
    model: Any, tokenizer: Any, rows: Sequence[Row], num_samples: int, seed: int
) -> np.ndarray:
    torch.manual_seed(seed)
    return sample(model, tokenizer, rows, num_samples)[0]


def write_labels(path: Path, rows: Sequence[Row], right: dict[str, np.ndarray]) -> None:
    from datasets import Dataset

    table = [
        {
            "row": number,
            "question": row["question"],
            "policy": name,
            "n_samples": len(solved),
            "n_correct": int(solved.sum()),
        }
        for name, all_solved in right.items()
        for number, (row, solved) in enumerate(zip(rows, all_solved, strict=True))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(table).to_parquet(path)


def load_policy(folder: Path) -> tuple[Any, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


def statistics(args: argparse.Namespace) -> None:
    """Print what the start policy does in both worlds."""
    model, tokenizer = load_policy(toy.policy_path())
    tables, histograms = {}, {}
    for world in WORLDS:
        torch.manual_seed(0)
        rows = toy.pool(world=world)
        right, lengths = sample(model, tokenizer, rows, args.samples)
        prompts = [len(tokenizer(row["question"])["input_ids"]) for row in rows]
        held_out = toy.evaluation(world=world)
        tables[world] = {
            **describe_rollouts(right, lengths),
            "prompt tokens, mean": np.mean(prompts),
            "prompt tokens, most": np.max(prompts),
            "pass rate, held out": sample(model, tokenizer, held_out, 8)[0].mean(),
            "greedy accuracy, held out": sample(model, tokenizer, held_out, 1, greedy=True)[
                0
            ].mean(),
            **predictability(model, tokenizer, rows, right),
        }
        histograms[world] = np.histogram(right.mean(axis=1), bins=10, range=(0, 1))[0] / len(rows)
        if world == "main":
            by_cell = rates_by_cell(rows, right)
    print("| measure | " + " | ".join(tables) + " |\n" + "|---" * (len(tables) + 1) + "|")
    for name in tables["main"]:
        print(f"| {name} | " + " | ".join(f"{table[name]:.3g}" for table in tables.values()) + " |")
    for world, shares in histograms.items():
        print(f"\nPass rates in tenths, {world}: " + " ".join(f"{share:.3f}" for share in shares))
    print(f"\n{by_cell}")


def curve(args: argparse.Namespace) -> None:
    """Train the start policy with plain GRPO; print held-out accuracy and where time goes."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class TimedTrainer(GRPOTrainer):
        generation_seconds = 0.0

        def _generate(self, *arguments: Any, **keywords: Any) -> Any:
            begin = time.perf_counter()
            result = super()._generate(*arguments, **keywords)
            self.generation_seconds += time.perf_counter() - begin
            return result

    torch.set_num_threads(args.threads)
    model, tokenizer = load_policy(toy.policy_path())
    rows, held_out = toy.pool(world=args.world), toy.evaluation(world=args.world)
    watch = Watch(model, tokenizer, held_out, args.every)
    unreached = sample(model, tokenizer, held_out, 16)[0].sum(axis=1) == 0
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            seed=args.seed,
            max_steps=args.steps,
            learning_rate=args.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            per_device_train_batch_size=args.groups * 8,
            num_generations=8,
            max_completion_length=MAX_NEW_TOKENS,
            temperature=1.0,
            beta=0.0,
            loss_type="dapo",
            scale_rewards="none",
            gradient_checkpointing=False,
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        trainer = TimedTrainer(
            model=model,
            reward_funcs=exact,
            args=config,
            train_dataset=Dataset.from_list(
                [{"prompt": row["question"], "answer": row["answer"]} for row in rows]
            ),
            processing_class=tokenizer,
            callbacks=[watch],
        )
        begin = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - begin - watch.seconds  # the measurements are not counted
    share = trainer.generation_seconds / seconds
    after = sample(model.eval(), tokenizer, held_out, 16)[0].mean(axis=1)[unreached]
    zero = [log["frac_reward_zero_std"] for log in trainer.state.log_history if "reward" in log]
    record = {
        **vars(args),
        "accuracy": watch.accuracy,
        "effective": [round(1 - float(np.mean(part)), 3) for part in np.array_split(zero, 5)],
        "unreached_at_start": round(float(unreached.mean()), 3),
        "reached_of_these": round(float((after > 0).mean()), 3),
        "pass_rate_of_these": round(float(after.mean()), 3),
        "seconds_per_step": round(seconds / args.steps, 3),
        "generation_share": round(share, 3),
    }
    record.pop("command")
    print(json.dumps(record))


def exact(completions: list[str], answer: list[str], **_: object) -> list[float]:
    return [grade(text, right) for text, right in zip(completions, answer, strict=True)]


class Watch(TrainerCallback):
    """Held-out accuracy in the course of training: 4 rollouts a question at temperature 1."""

    def __init__(self, model: Any, tokenizer: Any, rows: Sequence[Row], every: int) -> None:
        self.model, self.tokenizer, self.rows, self.every = model, tokenizer, rows, every
        self.accuracy: dict[int, float] = {}
        self.seconds = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.measure(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        if state.global_step % self.every == 0:
            self.measure(state.global_step)

    def measure(self, step: int) -> None:
        begin = time.perf_counter()
        self.model.eval()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            right, _ = sample(self.model, self.tokenizer, self.rows, 4)
        self.model.train()
        self.accuracy[step] = round(float(right.mean()), 4)
        self.seconds += time.perf_counter() - begin
        print(f"  step {step}: accuracy {self.accuracy[step]:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("policy", help="train the start policy")
    adding.add_argument("--out", default=str(toy.policy_path()), help="folder to write")
    adding = commands.add_parser("labels", help="train other policies; label the pool with each")
    adding.add_argument("--out", default="build/toy", help="folder to write")
    adding.add_argument("--samples", type=int, default=16, help="rollouts a question")
    adding = commands.add_parser("predictor", help="fit the difficulty predictor")
    adding.add_argument("--out", default="build/toy", help="folder with the labels")
    adding = commands.add_parser("statistics", help="print what the start policy can do")
    adding.add_argument("--samples", type=int, default=16, help="rollouts a question")
    adding = commands.add_parser("curve", help="plain GRPO with TRL")
    adding.add_argument("--world", choices=list(WORLDS), default="main")
    adding.add_argument("--seed", type=int, default=0)
    adding.add_argument("--steps", type=int, default=100)
    adding.add_argument("--groups", type=int, default=64, help="groups of 8 rollouts a step")
    adding.add_argument("--learning-rate", type=float, default=1e-4)
    adding.add_argument("--every", type=int, default=10, help="steps between measurements")
    for command in commands.choices.values():
        command.add_argument("--threads", type=int, default=1, help="of torch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    steps = {
        "policy": policy,
        "labels": labels,
        "predictor": predictor,
        "statistics": statistics,
        "curve": curve,
    }
    steps[args.command](args)


if __name__ == "__main__":
    main()
