"""`evenodds eval` and `evenodds label`: sample a policy on questions and score what it says."""

import argparse
import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenodds.benchmarks import BENCHMARKS, SYSTEM_PROMPT, file_config, load_benchmark
from evenodds.errors import ConfigError
from evenodds.files import write_json
from evenodds.questions import READERS, DataConfig, QuestionPool, load_pool
from evenodds.resources import resolved_path
from evenodds.rewards import RewardConfig, make_reward
from evenodds.run_config import ModelSection, SamplingSection, packaged_configs, read_config

if TYPE_CHECKING:
    from evenodds.sampling import Answered, Loaded, Sampler

MODEL_HELP = "toy, a Hugging Face name or folder (such as RUN/final), a .gguf file, package:NAME/F"
RESULTS = "results.json"


def add_parsers(commands: Any) -> None:
    """Declare the commands."""
    _add_eval(commands)
    _add_label(commands)


def _add_eval(commands: Any) -> None:
    parser = commands.add_parser(
        "eval",
        help="measure the accuracy of a policy on benchmarks",
        description="Mean accuracy of sampled completions with its standard error. When it is "
        "interrupted, the same command goes on where it was.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument(
        "--benchmarks",
        required=True,
        metavar="B,B",
        help=f"{', '.join(BENCHMARKS)}, or files ({', '.join(READERS)}), with commas between",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="by default evals/MODEL")
    parser.add_argument(
        "--system-prompt",
        default=SYSTEM_PROMPT,
        metavar="TEXT",
        help="by default asks for steps and a \\boxed{} answer; empty for none",
    )
    _add_shared(parser, SamplingSection(temperature=0.6, top_p=0.95))
    parser.set_defaults(command=_eval)


def _add_label(commands: Any) -> None:
    parser = commands.add_parser(
        "label",
        help="sample a policy on a pool, for a label table",
        description="Count how often a policy solves each question of a pool, and write or extend "
        "a label table, from which `evenodds fit` trains a difficulty predictor. When it is "
        "interrupted, the same command goes on where it was.",
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument(
        "pool", nargs="+", help="questions as data.source takes them, or a config with [data]"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="LABELS", help=".parquet or .jsonl"
    )
    parser.add_argument("--name", help="of the policy in the table; by default MODEL")
    parser.add_argument("--split", default="train", help="of a dataset on the hub, or toy (train)")
    parser.add_argument("--system-prompt", default="", metavar="TEXT", help="none by default")
    _add_shared(parser, SamplingSection(samples=8, temperature=1.0, top_p=1.0))
    parser.set_defaults(command=_label)


def _add_shared(parser: argparse.ArgumentParser, unset: SamplingSection) -> None:
    add = parser.add_argument
    add("-n", type=int, default=unset.samples, dest="samples", metavar="N",
        help=f"completions of a question ({unset.samples})")  # fmt: skip
    add("--temperature", type=float, default=unset.temperature, metavar="T",
        help=f"0 is greedy ({unset.temperature})")  # fmt: skip
    add("--top-p", type=float, default=unset.top_p, metavar="P", help=f"({unset.top_p})")
    add("--max-new-tokens", type=int, default=unset.max_new_tokens, metavar="L",
        help=f"longest completion ({unset.max_new_tokens})")  # fmt: skip
    add("--batch-size", type=int, default=unset.batch_size, metavar="R",
        help=f"completions generated at once ({unset.batch_size})")  # fmt: skip
    add("--seed", type=int, default=0, help="of sampling and of --limit (0)")
    add("--limit", type=int, metavar="N", help="this many questions of each set, drawn by --seed")
    add("--question-column", metavar="C", help="of files; by default a usual name is looked for")
    add("--answer-column", metavar="C", help="likewise")
    add("--reward", metavar="KIND", help="as reward.kind; by default exact for toy, else math")
    add("--engine", choices=("auto", "vllm", "transformers"), default="auto",
        help="auto takes vLLM where it and a GPU are there")  # fmt: skip
    add("--dtype", choices=("float32", "bfloat16", "float16"),
        help="of the weights; by default bfloat16 on a GPU, else float32")  # fmt: skip


def _eval(options: argparse.Namespace) -> int:
    settings = _settings(options)
    names = [name.strip() for name in options.benchmarks.split(",") if name.strip()]
    if not names:
        raise ConfigError(
            "no benchmark was named",
            got=repr(options.benchmarks),
            expected=f"one of {', '.join(BENCHMARKS)}, or a file",
            fix="--benchmarks gsm8k,math500",
        )
    labels = [Path(name).stem if Path(name).suffix in READERS else name for name in names]
    if len(set(labels)) < len(labels):
        raise ConfigError(
            "a benchmark is named twice",
            got=options.benchmarks,
            expected="names, and files with different names",
        )
    folder = options.out or Path("evals") / _slug(options.model)
    _refuse_other_folder(folder)
    changes = {**_columns(options), "system_prompt": options.system_prompt or None}
    loaded = [load_benchmark(name, **changes) for name in names]
    tasks = {
        label: (pool, options.reward or kind, settings)
        for label, (pool, kind) in zip(labels, loaded, strict=True)
    }
    start = time.perf_counter()
    found = _sampled(options, {folder / label: task for label, task in tasks.items()})
    records = {label: _record(found[folder / label]) for label in labels}
    write_json(
        folder / RESULTS,
        {"model": options.model, "settings": settings.as_dict(), "benchmarks": records},
    )
    _show_results(options.model, records, time.perf_counter() - start, folder)
    return 0


def _refuse_other_folder(folder: Path) -> None:
    """Refuse an output folder with anything but results in it."""
    entries = list(folder.iterdir()) if folder.is_dir() else []
    if folder.is_file() or (entries and not list(folder.glob("*/manifest.json"))):
        raise ConfigError(
            "the output folder is in use",
            got=folder,
            expected="a new or empty folder, or one of `evenodds eval`",
            fix="name another place with --out",
        )


def _label(options: argparse.Namespace) -> int:
    from evenodds.labels import check_labels_path, extend_labels

    settings = _settings(options)
    policy = options.name or options.model
    check_labels_path(options.out)
    folder = options.out.with_name(f"{options.out.name}.samples") / _slug(policy)
    tasks = {
        folder / f"{_slug(source)}": (*_pool(source, options), settings) for source in options.pool
    }
    found = _sampled(options, tasks)
    rows: dict[str, dict[str, Any]] = {}
    for place, (pool, _, _) in tasks.items():
        for row, answered in enumerate(found[place]):
            prompt = pool.prompts[row]
            rows[answered.question_id] = {
                "question_id": answered.question_id,
                "question": prompt if isinstance(prompt, str) else None,
                "policy": policy,
                "n_samples": len(answered.scores),
                "n_correct": sum(score >= 1.0 for score in answered.scores),
            }
    policies = extend_labels(options.out, list(rows.values()))
    from evenodds.cli.progress import show_table

    rates = [row["n_correct"] / row["n_samples"] for row in rows.values()]
    shown = [
        ("questions", f"{len(rates)}"),
        ("completions of each", f"{settings.samples}"),
        ("solved", f"{sum(rates) / len(rates):.3f}"),
        ("never solved", f"{sum(rate == 0 for rate in rates) / len(rates):.3f}"),
        ("always solved", f"{sum(rate == 1 for rate in rates) / len(rates):.3f}"),
    ]
    show_table(f"Labels of {policy}", ("", ""), shown)
    print(f"The labels of {len(policies)} policies lie in {options.out}")
    return 0


Task = tuple[QuestionPool, str, SamplingSection]
"""Questions, the kind of their reward, and how to sample."""


def _sampled(
    options: argparse.Namespace, tasks: "dict[Path, Task]"
) -> "dict[Path, list[Answered]]":
    """The completions of each task, in its folder. All is checked before the policy is loaded."""
    from evenodds.cli.progress import quieten_transformers

    quieten_transformers()
    from evenodds.engines import engine_name
    from evenodds.policies import load_tokenizer
    from evenodds.sampling import Sampler, check_folder, pool_digest, sample_into

    engine = engine_name(options.engine)
    dtype = options.dtype or _default_dtype()
    model = ModelSection.from_mapping({"path": options.model, "dtype": dtype})
    rewards = {kind: make_reward(RewardConfig(kind=kind)) for _, kind, _ in tasks.values()}
    for pool, kind, _ in tasks.values():
        rewards[kind].check(pool.answers, pool.ids)
    manifests = {
        folder: {
            "model": options.model,
            "weights": _fingerprint(options.model),
            "engine": engine,
            "dtype": model.dtype,
            "reward": kind,
            "questions": pool_digest(pool),
            **settings.as_dict(),
        }
        for folder, (pool, kind, settings) in tasks.items()
    }
    for folder, manifest in manifests.items():
        check_folder(folder, manifest)
    tokenizer = load_tokenizer(model)
    policy = _Policy(model, tokenizer, engine)
    found = {}
    for folder, (pool, kind, settings) in tasks.items():
        _check_template(tokenizer, pool)
        sampler = Sampler(
            pool,
            rewards[kind],
            tokenizer,
            samples=settings.samples,
            batch_size=settings.batch_size,
            seed=settings.seed,
        )
        found[folder] = sample_into(
            folder,
            sampler,
            lambda settings=settings: policy.loaded(settings),
            manifests[folder],
            _Watch(folder.name, sampler).track,
        )
    return found


class _Policy:
    """A policy that is loaded when it is first needed."""

    def __init__(self, section: ModelSection, tokenizer: Any, engine: str) -> None:
        self.section, self.tokenizer, self.engine = section, tokenizer, engine
        self._loaded: Loaded | None = None

    def loaded(self, settings: SamplingSection) -> "Loaded":
        """The policy with these settings, which are the same at every call."""
        if self._loaded is None:
            self._loaded = self._load(settings)
        return self._loaded

    def _load(self, settings: SamplingSection) -> "Loaded":
        import torch

        from evenodds.engines import end_tokens, transformers_engine, vllm_engine
        from evenodds.policies import load_policy
        from evenodds.sampling import Loaded

        how: dict[str, Any] = {
            "pad_token_id": self.tokenizer.pad_token_id,
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_new_tokens": settings.max_new_tokens,
        }
        if self.engine == "vllm":
            path = str(resolved_path(self.section.path))
            generate = vllm_engine(path, dtype=self.section.dtype, **how)
            return Loaded(generate, torch.device("cpu"), (self.tokenizer.eos_token_id,))
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = load_policy(self.section).to(device).eval()
        ends = end_tokens(model, self.tokenizer)
        return Loaded(transformers_engine(model, eos_token_ids=ends, **how), device, tuple(ends))


class _Watch:
    """Shows how far the sampling is: a bar, or on no terminal a line now and then."""

    def __init__(self, name: str, sampler: "Sampler") -> None:
        self.name, self.sampler = name, sampler

    def track(self, blocks: Sequence[Any], description: str) -> Iterable[Any]:
        """The blocks, counted in questions."""
        from evenodds.cli.progress import make_progress

        total = len(self.sampler.pool)
        before = done = total - sum(len(block) for _, block in blocks)
        start, every = time.perf_counter(), max(1, total // 10)
        with make_progress() as progress:
            task = progress.add_task(f"{self.name}, question", total=total, completed=done)
            for number, block in blocks:
                yield number, block
                is_due = (done + len(block)) // every > done // every
                done += len(block)
                progress.advance(task, len(block))
                if is_due and done < total and not progress.console.is_terminal:
                    seconds = time.perf_counter() - start
                    left = seconds * (total - done) / (done - before)
                    progress.console.print(
                        f"{self.name}: {done} of {total} questions, {seconds:.0f} s, "
                        f"about {left:.0f} s left"
                    )


def _settings(options: argparse.Namespace) -> SamplingSection:
    if options.limit is not None and options.limit < 1:
        raise ConfigError("--limit leaves no questions", got=options.limit, expected="at least 1")
    names = ("samples", "temperature", "top_p", "max_new_tokens", "batch_size", "seed")
    return SamplingSection(**{name: getattr(options, name) for name in names})


def _columns(options: argparse.Namespace) -> dict[str, Any]:
    """What of `DataConfig` both commands set."""
    named = {
        name: getattr(options, name)
        for name in ("question_column", "answer_column", "limit")
        if getattr(options, name) is not None
    }
    return {**named, "seed": options.seed}


def _pool(source: str, options: argparse.Namespace) -> tuple[QuestionPool, str]:
    """The questions of a source or of a config, and the kind of their reward."""
    if source.endswith(".toml") or (source in packaged_configs() and not Path(source).exists()):
        config = read_config(source)
        data = config.data
        if options.limit is not None:
            data = data.replace(limit=options.limit)
        return load_pool(data), options.reward or config.reward.kind
    changes = {**_columns(options), "split": options.split}
    changes["system_prompt"] = options.system_prompt or None
    is_file = Path(source).suffix.lower() in READERS
    config = file_config(source, **changes) if is_file else DataConfig(source=source, **changes)
    return load_pool(config), options.reward or ("exact" if source == "toy" else "math")


def _check_template(tokenizer: Any, pool: QuestionPool) -> None:
    if not isinstance(pool.prompt(0), str) and tokenizer.chat_template is None:
        raise ConfigError(
            "the policy has no chat template",
            got="questions as messages, or a system prompt",
            expected="a tokenizer with a chat template, or questions as plain text",
            fix='use an instruct model, or --system-prompt ""',
        )


def _record(answered: "Sequence[Answered]") -> dict[str, Any]:
    """The numbers of a benchmark."""
    import numpy as np

    from evenodds.evaluation import Evaluation

    evaluation = Evaluation(np.array([each.scores for each in answered], dtype=np.float64))
    error = evaluation.standard_error
    return {
        "questions": len(answered),
        "samples": len(answered[0].scores),
        "accuracy": evaluation.accuracy,
        "standard_error": None if error != error else error,
        "tokens_mean": float(np.mean([each.num_tokens for each in answered])),
        "truncated": float(np.mean([each.truncated for each in answered])),
    }


def _show_results(
    model: str, records: dict[str, dict[str, Any]], seconds: float, folder: Path
) -> None:
    from evenodds.cli.progress import show_table

    rows = [
        (
            name,
            f"{record['questions']}",
            f"{record['samples']}",
            f"{record['accuracy']:.3f}",
            "-" if record["standard_error"] is None else f"{record['standard_error']:.3f}",
            f"{record['tokens_mean']:.1f}",
            f"{record['truncated']:.3f}",
        )
        for name, record in records.items()
    ]
    if len(records) > 1:
        mean = sum(record["accuracy"] for record in records.values()) / len(records)
        rows.append(("mean", "", "", f"{mean:.3f}", "", "", ""))
    columns = ("benchmark", "questions", "n", "accuracy", "s.e.", "tokens", "cut off")
    show_table(f"Accuracy of {model}", columns, rows)
    print(f"{seconds:.0f} s; the results lie in {folder / RESULTS}")


def _default_dtype() -> str:
    import torch

    return "bfloat16" if torch.cuda.is_available() else "float32"


def _fingerprint(model: str) -> str | None:
    """A hash of parts of the weights of a local model; none of one on the hub."""
    if model == "toy":
        return None
    path = resolved_path(model)
    if not path.exists():
        return None
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        size = file.stat().st_size
        digest.update(json.dumps([file.name, size]).encode())
        with file.open("rb") as opened:
            for part in range(64):
                opened.seek(size * part // 64)
                digest.update(opened.read(16384))
    return digest.hexdigest()


def _slug(name: str) -> str:
    """A name of a folder; different names have different ones."""
    plain = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "model"
    if plain == name:
        return plain
    return f"{plain[-60:]}-{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}"
