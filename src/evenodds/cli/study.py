"""`evenodds fit`, `predict`, `evaluate` and `simulate`: the difficulty predictor on labels."""

import argparse
import csv
import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenodds.config import Settings
from evenodds.errors import ConfigError
from evenodds.files import write_json, write_text
from evenodds.study_config import FitConfig, ScoringConfig, SimulationConfig, SplitConfig

if TYPE_CHECKING:
    from evenodds.embedding_file import EmbeddingFile
    from evenodds.labels import LabelTable
    from evenodds.report.page import Page
    from evenodds.study import Prediction


def add_parsers(commands: Any) -> None:
    """Declare the commands."""
    _add_fit(commands)
    _add_predict(commands)
    _add_evaluate(commands)
    _add_simulate(commands)


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a difficulty predictor on labels of other policies",
        description="Train adapters and calibration on a label table: a row for each policy and "
        "question with question (or question_id), policy, n_samples and n_correct.",
    )
    parser.add_argument("labels", type=Path, help="a label table: .parquet, .csv, .jsonl")
    parser.add_argument("--embeddings", type=Path, required=True, metavar="E")
    parser.add_argument("--out", type=Path, required=True, metavar="P", help="predictor file")
    parser.add_argument(
        "--further", type=Path, metavar="LABELS", help="more labels to train on, of any questions"
    )
    parser.add_argument(
        "--hold-out",
        choices=("policy", "question", "both", "time"),
        help="leave a part out, to be judged by `evenodds evaluate`",
    )
    parser.add_argument("--share", type=float, default=0.25, help="that is held out (0.25)")
    parser.add_argument(
        "--known-only", action="store_true", help="leave labels without embedding out"
    )
    _add_policies(parser)
    _add_settings(parser, FitConfig)
    _add_outputs(parser)
    parser.set_defaults(command=_fit)


def _fit(options: argparse.Namespace) -> int:
    _check_page()
    from evenodds.cli.progress import epochs, show_table
    from evenodds.report.study_pages import fit_page
    from evenodds.study import fit

    config = _settings(FitConfig, options)
    hold_out = None
    if options.hold_out is not None:
        hold_out = SplitConfig(kind=options.hold_out, share=options.share, seed=options.seed)
    embeddings = _embeddings(options.embeddings)
    labels = _chosen(_labels(options.labels, embeddings, options.known_only), options)
    further = None
    if options.further is not None:
        further = _labels(options.further, embeddings, options.known_only)
    with epochs(config.epochs) as on_epoch:
        fitted = fit(
            labels,
            embeddings,
            config=config,
            hold_out=hold_out,
            further=further,
            on_epoch=on_epoch,
        )
    fitted.model.save(options.out)
    report = fitted.report
    best = report.best_epoch
    rows = [
        ("policies trained on", f"{len(fitted.policies)}"),
        ("policies held out", f"{len(fitted.split.policies)}"),
        ("questions held out", f"{len(fitted.split.questions)}"),
        ("epoch kept", f"{best + 1} of {len(report.loss)}"),
        ("validation loss", f"{report.validation_loss[best]:.4f} nats"),
        ("validation Pearson r", f"{report.validation_pearson[best]:.3f}"),
    ]
    show_table(f"Predictor {options.out}", ("", ""), rows)
    record = {
        "policies": list(fitted.policies),
        "held_out": fitted.split.as_dict(),
        "config": config.as_dict(),
        **dataclasses.asdict(report),
    }
    _write(options, record, lambda: fit_page(fitted, options.out.stem), options.out)
    return 0


def _add_predict(commands: Any) -> None:
    parser = commands.add_parser(
        "predict",
        help="predict the difficulty of a pool from labels of some questions",
        description="Predict how often the policy fails each question of a pool, with an "
        "uncertainty, from its labels of a reference set.",
    )
    parser.add_argument("predictor", type=Path)
    parser.add_argument("pool", help="questions: a file, a folder, or a label table")
    parser.add_argument(
        "--references", type=Path, required=True, metavar="R", help="label table of one policy"
    )
    parser.add_argument("--policy", help="which one, where the table has several")
    parser.add_argument("--embeddings", type=Path, required=True, metavar="E")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help=".csv or .jsonl, a row a question"
    )
    _add_outputs(parser)
    parser.set_defaults(command=_predict)


def _predict(options: argparse.Namespace) -> int:
    _check_page()
    if options.out.suffix not in (".csv", ".jsonl"):
        raise ConfigError(
            "predictions are written in another form", got=options.out, expected=".csv or .jsonl"
        )
    from evenodds.cli.progress import show_table
    from evenodds.difficulty import PredictorModel
    from evenodds.labels import read_labels, read_questions
    from evenodds.report.page import number
    from evenodds.report.study_pages import prediction_page
    from evenodds.study import predict

    model = PredictorModel.load(options.predictor)
    references = read_labels(options.references)
    if options.policy is not None:
        references = references.of_policies([options.policy])
    ids, texts = read_questions(options.pool)
    prediction = predict(model, ids, _embeddings(options.embeddings), references)
    write_text(options.out, _predictions_text(options.out.suffix, prediction, texts))
    record = prediction.summary()
    rows = [
        ("questions", f"{len(prediction.ids)}"),
        ("references", f"{prediction.num_references}"),
        ("mean predicted difficulty", number(record["difficulty_mean"])),
        ("share within 0.25 of even odds", number(record["share_near_even_odds"])),
        ("mean standard deviation", number(record["standard_deviation_mean"])),
        ("r on the references, each from the others", number(record["pearson"])),
    ]
    show_table(f"Difficulty of {options.pool}", ("", ""), rows)
    _write(
        options, record, lambda: prediction_page(prediction, Path(options.pool).name), options.out
    )
    return 0


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser(
        "evaluate",
        help="judge a predictor on labels it has not seen, beside baselines",
        description="Predict held-out labels from reference sets; score the predictor, every "
        "baseline, and what the noise of the labels allows.",
    )
    parser.add_argument("predictor", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--embeddings", type=Path, required=True, metavar="E")
    parser.add_argument(
        "--split",
        choices=("policy", "question", "both", "time"),
        help="what must be held out; by default what `fit` held out",
    )
    _add_policies(parser)
    _add_settings(parser, ScoringConfig)
    _add_outputs(parser)
    parser.set_defaults(command=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    _check_page()
    from evenodds.cli.progress import is_wide, show_table, track
    from evenodds.difficulty import PredictorModel
    from evenodds.labels import read_labels
    from evenodds.report.page import number
    from evenodds.report.study_pages import evaluation_page, evaluation_rows
    from evenodds.study import evaluate
    from evenodds.study.evaluation import METRICS

    config = _settings(ScoringConfig, options)
    model = PredictorModel.load(options.predictor)
    labels = _chosen(read_labels(options.labels), options)
    evaluation = evaluate(
        model,
        labels,
        _embeddings(options.embeddings),
        kind=options.split,
        config=config,
        track=track,
    )
    show_table(
        f"{options.predictor.name} on {options.labels.name}, held out by {evaluation.split.kind}: "
        f"{len(evaluation.policies)} policies, {evaluation.num_questions:.0f} questions each",
        ("predictor", *METRICS.values()),
        evaluation_rows(evaluation, intervals=is_wide()),
        note=f"noise ceiling of Pearson r: {number(evaluation.noise_ceiling)}",
    )
    _write(
        options,
        evaluation.as_dict(),
        lambda: evaluation_page(evaluation, options.predictor.stem),
        options.predictor.with_name(f"{options.predictor.stem}-{evaluation.split.kind}"),
    )
    return 0


def _add_simulate(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate",
        help="replay a recorded training history under selection strategies",
        description="Let strategies choose from a recorded history, where a policy of the label "
        "table is a visit, and score what they choose and know.",
    )
    parser.add_argument("history", type=Path, help="label table; its policies are the visits")
    parser.add_argument(
        "--strategy",
        action="append",
        metavar="S",
        help="can be repeated; by default all that can be made from what is given",
    )
    parser.add_argument("--embeddings", type=Path, metavar="E")
    parser.add_argument("--predictor", type=Path, metavar="P", help="for the strategy `paper`")
    parser.add_argument(
        "--prior",
        type=Path,
        metavar="LABELS",
        help="another policy's, for `other-policy` and `posterior-prior`",
    )
    _add_policies(parser)
    _add_settings(parser, SimulationConfig)
    _add_outputs(parser)
    parser.set_defaults(command=_simulate)


def _simulate(options: argparse.Namespace) -> int:
    _check_page()
    from evenodds.cli.progress import is_wide, show_table, track
    from evenodds.labels import read_labels
    from evenodds.report.study_pages import simulation_page, simulation_rows
    from evenodds.study import make_strategy, simulate, usable_strategies
    from evenodds.study.simulation import METRICS

    config = _settings(SimulationConfig, options)
    history = _chosen(read_labels(options.history), options)
    material = _material(options, history)
    strategies = [make_strategy(name, material) for name in options.strategy or ()]
    strategies = strategies or usable_strategies(material)
    simulation = simulate(history, strategies, config=config, track=track)
    show_table(
        f"{options.history.name}: {simulation.visits} visits of {simulation.num_questions} "
        f"questions, {config.budget} observed a visit, {config.seeds} seeds",
        ("strategy", *METRICS.values()),
        simulation_rows(simulation, intervals=is_wide()),
    )
    _write(
        options,
        simulation.as_dict(),
        lambda: simulation_page(simulation, options.history.name),
        Path(f"simulate-{options.history.stem}"),
    )
    return 0


def _material(options: argparse.Namespace, history: "LabelTable") -> Any:
    from evenodds.difficulty import PredictorModel
    from evenodds.labels import difficulty_of_one, read_labels
    from evenodds.study import Material

    embeddings = None if options.embeddings is None else _embeddings(options.embeddings)
    prior_N = None
    if options.prior is not None:
        prior_N = difficulty_of_one(read_labels(options.prior), history.ids)
    return Material(
        history=history,
        embeddings_NE=None if embeddings is None else embeddings.aligned(history.ids),
        embedding_model="" if embeddings is None else embeddings.model,
        predictor=None if options.predictor is None else PredictorModel.load(options.predictor),
        prior_N=prior_N,
    )


def _add_policies(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policies",
        metavar="NAMES",
        help="use only these policies of the table: names or patterns, with commas between",
    )


def _chosen(labels: "LabelTable", options: argparse.Namespace) -> "LabelTable":
    return labels if options.policies is None else labels.matching(options.policies.split(","))


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="where the page is written")


def _write(
    options: argparse.Namespace, record: Any, page: "Callable[[], Page]", beside: Path
) -> None:
    """JSON where asked for, and the page, by default beside the result."""
    if options.json is not None:
        write_json(options.json, record)
    path = options.html or beside.with_name(f"{beside.name.removesuffix(beside.suffix)}.html")
    page().write(path)
    print(f"The page lies in {path}")


def _add_settings(parser: argparse.ArgumentParser, settings: type[Settings]) -> None:
    """An option for each setting of a record."""
    for field in dataclasses.fields(settings):
        parser.add_argument(
            f"--{field.name.replace('_', '-')}",
            type=type(field.default),
            default=field.default,
            metavar="X",
            help=f"{field.metadata['help']} ({field.default})".replace("%", "%%"),
        )


def _settings(kind: type[Any], options: argparse.Namespace) -> Any:
    return kind(**{field.name: getattr(options, field.name) for field in dataclasses.fields(kind)})


def _labels(path: Path, embeddings: "EmbeddingFile", known_only: bool) -> "LabelTable":
    import numpy as np

    from evenodds.labels import read_labels

    labels = read_labels(path)
    if not known_only:
        return labels
    known = set(embeddings.ids)
    columns = np.array([place for place, name in enumerate(labels.ids) if name in known], dtype=int)
    return labels.of_questions(columns)


def _embeddings(path: Path) -> "EmbeddingFile":
    from evenodds.embedding_file import EmbeddingFile

    return EmbeddingFile.read(path)


def _check_page() -> None:
    from evenodds.report.plots import check_matplotlib

    check_matplotlib()


def _predictions_text(suffix: str, prediction: "Prediction", texts: "Sequence[str]") -> str:
    """A row a question: its id, text, difficulty and standard deviation."""
    rows = zip(
        prediction.ids,
        texts,
        prediction.difficulty_N.tolist(),
        prediction.deviation_N.tolist(),
        strict=True,
    )
    names = ("question_id", "question", "difficulty", "standard_deviation")
    if suffix == ".jsonl":
        return "".join(f"{json.dumps(dict(zip(names, row, strict=True)))}\n" for row in rows)
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(names)
    writer.writerows(rows)
    return buffer.getvalue()
