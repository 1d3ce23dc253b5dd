"""Each source in the shape that its dataset has, small and local."""

import json

import pytest

from evenodds.errors import ConfigError, DataError
from evenodds.preparation import SOURCES, prepare_pool
from evenodds.questions import DataConfig, load_pool

MATH = [
    {"problem": "1+1?", "level": "Level 3", "type": "Algebra", "solution": r"so \boxed{2}."},
    {"problem": "1+2?", "level": "Level 2", "type": "Algebra", "solution": r"\boxed{3}"},
    {
        "problem": "a/b?",
        "level": "Level 5",
        "type": "Algebra",
        "solution": r"$\boxed{\frac{1}{2}}$",
    },
    {"problem": "7?", "level": "Level 4", "type": "Algebra", "solution": r"is $\boxed 7$."},
    {"problem": "held  out?", "level": "Level 4", "type": "Algebra", "solution": r"\boxed{9}"},
]
SHAPES = {
    "math": (MATH, [("1+1?", "2"), ("a/b?", r"\frac{1}{2}"), ("7?", "7"), ("held  out?", "9")]),
    "deepscaler": ([{"problem": "q", "answer": "4", "solution": ""}], [("q", "4")]),
    "orz": (
        [{"0": {"from": "human", "value": "q"}, "1": {"ground_truth": {"value": "5"}}}],
        [("q", "5")],
    ),
    "deepmath": ([{"question": "q", "final_answer": "6", "difficulty": 5.0}], [("q", "6")]),
    "scp25k": ([{"question": "q", "choices": ["x", "y"], "answer": "B"}], [("q\nA. x\nB. y", "B")]),
    "gsm8k": ([{"question": "q", "answer": "2+5\n#### 7"}], [("q", "7")]),
    "math500": ([{"problem": "q", "answer": "8", "level": 3}], [("q", "8")]),
    "minerva": ([{"question": "q", "answer": "9"}], [("q", "9")]),
    "mmlu-science": (
        [
            {"question": "q", "choices": ["x", "y"], "answer": 1, "subject": "college_physics"},
            {"question": "r", "choices": ["x", "y"], "answer": 1, "subject": "world_religions"},
        ],
        [("q\nA. x\nB. y", "B")],
    ),
}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def questions(path):
    pool = load_pool(DataConfig(source=str(path)))
    return list(zip(pool.prompts, pool.answers, strict=True))


def many(count):
    return [{"problem": f"q{number}", "answer": str(number)} for number in range(count)]


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_in_its_own_shape(name, tmp_path):
    rows, wanted = SHAPES[name]
    local = write(tmp_path / "in.jsonl", rows)
    made = prepare_pool(name, tmp_path / "out", local=local, any_size=True)
    assert questions(made.path) == wanted
    assert (made.num_rows, made.num_questions) == (len(rows), len(wanted))
    first = json.loads(made.path.read_text().splitlines()[0])
    assert sorted(first) == ["answer", "id", "question"]
    assert first["id"] == load_pool(DataConfig(source=str(made.path))).ids[0]
    assert [path.name for path in made.path.parent.iterdir()] == [f"{name}.jsonl"]


def test_the_array_of_pairs_of_orz(tmp_path):
    pair = [{"from": "human", "value": "q"}, {"from": "a", "ground_truth": {"value": "5"}}]
    (tmp_path / "orz.json").write_text(json.dumps([pair]))
    made = prepare_pool("orz", tmp_path / "o", local=tmp_path / "orz.json", any_size=True)
    assert questions(made.path) == [("q", "5")]


def test_a_folder_is_read_whole_and_held_out_questions_leave(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "test.jsonl", MATH[:2])
    write(folder / "train.jsonl", MATH[2:])
    held_out = write(tmp_path / "math500.jsonl", [{"id": "x", "question": "held out?"}])
    made = prepare_pool("math", tmp_path / "o", local=folder, any_size=True, exclude=held_out)
    assert (made.num_rows, made.num_filtered, made.num_excluded) == (5, 1, 1)
    assert [question for question, _ in questions(made.path)] == ["1+1?", "a/b?", "7?"]


def test_the_draw_has_the_papers_size_and_a_seed(tmp_path):
    local = write(tmp_path / "in.jsonl", many(40_315))
    made = [
        prepare_pool("deepscaler", tmp_path / str(place), local=local, seed=seed)
        for place, seed in enumerate((0, 0, 1))
    ]
    assert [each.num_questions for each in made] == [10_240] * 3
    first, again, other = (each.path.read_text() for each in made)
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no questions"),
        ([{"problem": "q"}], "row 1 has no column 'answer'"),
        (many(39_000), r"got: +39,000 rows\n +expected: 40,000 rows, give or take 2%"),
        ([{"problem": "q", "answer": str(n % 2)} for n in range(40_000)], "another answer"),
        ([{"problem": "q", "answer": "1"}] * 40_000, "too few different questions"),
        ([{"problem": "", "answer": "1"}] * 40_000, "question is empty"),
    ],
)
def test_what_is_wrong_is_one_error_and_no_file(rows, words, tmp_path):
    local = write(tmp_path / "in.jsonl", rows)
    with pytest.raises(DataError, match=words):
        prepare_pool("deepscaler", tmp_path / "o", local=local)
    assert not (tmp_path / "o").exists()


def test_conflicts_can_be_left_out(tmp_path):
    rows = [*many(2), {"problem": "q0", "answer": "9"}]
    local = write(tmp_path / "in.jsonl", rows)
    made = prepare_pool(
        "deepscaler", tmp_path / "o", local=local, any_size=True, drop_conflicts=True
    )
    assert questions(made.path) == [("q1", "1")]
    assert made.num_conflicting == 2


def test_math_from_files_needs_to_know_math500(tmp_path):
    local = write(tmp_path / "in.jsonl", MATH * 2500)
    with pytest.raises(DataError, match="evenodds prepare math500 first"):
        prepare_pool("math", tmp_path, local=local)


def test_a_hub_out_of_reach_names_local_files(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")

    def load_dataset(*names, **options):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(DataError, match=r"no route(.|\n)*--from FILE_OR_FOLDER"):
        prepare_pool("gsm8k", tmp_path)


def test_scp_has_no_hub(tmp_path):
    with pytest.raises(DataError, match="evenodds prepare scp25k --from FILE"):
        prepare_pool("scp25k", tmp_path)


def test_an_unknown_source_is_named(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'deepmath'"):
        prepare_pool("deepmaths", tmp_path)


def test_verls_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    local = write(tmp_path / "in.jsonl", many(1))
    prepare_pool("math500", tmp_path / "o", local=local, any_size=True, verl=True)
    (row,) = parquet.read_table(tmp_path / "o/math500.verl.parquet").to_pylist()
    assert row["prompt"] == [{"role": "user", "content": "q0"}]
    assert row["reward_model"] == {"ground_truth": "0", "style": "rule"}
    assert questions(tmp_path / "o/math500.verl.parquet") == [
        ([{"role": "user", "content": "q0"}], "0")
    ]
