import json
from pathlib import Path

import pytest

from evenodds.benchmarks import BENCHMARKS, load_benchmark
from evenodds.errors import ConfigError, DataError

SHARED = Path(__file__).parents[3] / "shared/data"


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_usual_columns_are_found(tmp_path):
    name = write(tmp_path / "a.jsonl", [{"problem": "1+1?", "solution": "2"}])
    pool, reward = load_benchmark(name, system_prompt="Think.")
    assert (pool.answers, reward) == (("2",), "math")
    assert pool.prompt(0)[0] == {"role": "system", "content": "Think."}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no questions"),
        ([{"text": "1", "answer": "1"}], "there is no column 'question'"),
        (
            [{"id": 7, "question": q, "answer": "1"} for q in "ab"],
            "gives several questions one id\n  got:      7",
        ),
    ],
)
def test_files_that_cannot_be_used(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        load_benchmark(write(tmp_path / "a.jsonl", rows))


def test_the_nearest_name_is_suggested():
    with pytest.raises(ConfigError, match="did you mean 'math500'"):
        load_benchmark("math50")


def test_without_the_hub_a_file_is_advised(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*args, **kwargs):
        asked.append((*args, kwargs["split"]))
        raise ConnectionError("no network")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for name in BENCHMARKS.keys() - {"toy"}:
        with pytest.raises(DataError, match=r"--benchmarks questions\.jsonl"):
            load_benchmark(name)
    assert ("openai/gsm8k", "main", "test") in asked


def test_lists_of_answers_are_joined(monkeypatch):
    import datasets

    rows = [{"question": "roots of x^2=1?", "final_answer": ["1", "-1"], "subfield": "Algebra"}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: rows)
    assert load_benchmark("olympiadbench")[0].answers == ("1, -1",)


@pytest.mark.parametrize(("name", "size"), [("gsm8k_test", 1319), ("math500_test", 500)])
def test_the_shared_benchmarks(name, size):
    path = SHARED / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    assert len(load_benchmark(str(path))[0]) == size
