"""Every kind of file, folders and the hub, and what a user reads when one is wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from evenodds.errors import ConfigError
from evenodds.questions import DataConfig, load_pool

from question_rows import ROWS, refusal, write_lines

DATA = Path(__file__).parents[4] / "shared" / "data"


class TestSources:
    def test_every_kind_of_file_gives_the_same_pool(self, tmp_path: Path) -> None:
        rows = [{"question": 'Say "é, 😀"\nplease', "answer": "07"}, *ROWS]
        write_lines(tmp_path / "a.jsonl", rows)
        (tmp_path / "b.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        write_lines(tmp_path / "c.json", rows)
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
        (tmp_path / "e.csv").write_text(
            'question,answer\r\n"Say ""é, 😀""\nplease",07\r\n\r\n'
            "What is 1+1?,2\r\nWhat is 2+3?,5\r\n",
            encoding="utf-8-sig",
            newline="",
        )
        datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "f")
        datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(
            tmp_path / "g"
        )
        pools = [load_pool(DataConfig(source=str(path))) for path in sorted(tmp_path.iterdir())]
        assert len(pools) == 7
        for pool in pools:
            assert pool.prompts == ('Say "é, 😀"\nplease', "What is 1+1?", "What is 2+3?")
            assert pool.answers == ("07", "2", "5")
            assert pool.ids == pools[0].ids
            assert pool.extras == {}

    def test_hub_dataset_is_asked_for_by_name_subset_and_split(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []

        def load_dataset(*names: Any, **options: Any) -> datasets.Dataset:
            asked.append((names, options))
            return datasets.Dataset.from_list(ROWS)

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        pool = load_pool(DataConfig(source="openai/gsm8k", subset="main", split="test"))
        assert asked == [(("openai/gsm8k", "main"), {"split": "test"})]  # no remote code
        assert pool.answers == ("2", "5")

    def test_hub_failure_names_both_readings_of_the_source(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_dataset(*names: Any, **options: Any) -> datasets.Dataset:
            raise ValueError("Config name is missing.\nPlease pick one: ['main', 'socratic']")

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        text = refusal("toyy")
        assert "'toyy' is no file or folder here, and no dataset that the hub gives" in text
        assert "Config name is missing. Please pick one: ['main', 'socratic']" in text
        assert "did you mean 'toy'?" in text

    def test_missing_file_suggests_its_neighbour(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "train.jsonl", ROWS)
        text = refusal(tmp_path / "trian.jsonl")
        assert "does not exist" in text
        assert f"did you mean '{tmp_path / 'train.jsonl'}'?" in text
        assert f"the folder of data.source does not exist\n  got:      {tmp_path}/no" in refusal(
            tmp_path / "no" / "train.jsonl"
        )

    def test_file_of_another_kind(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        assert ".jsonl, .json, .parquet, .csv" in refusal(tmp_path / "notes.txt")

    def test_folder_that_was_not_saved_by_datasets(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "train.jsonl", ROWS)
        text = refusal(tmp_path)
        assert "was not written by `save_to_disk`" in text
        assert "name a file in it: train.jsonl" in text

    def test_damaged_folder(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").write_text("{}")
        assert "cannot be read" in refusal(tmp_path)

    def test_missing_split_names_those_that_are_there(self, tmp_path: Path) -> None:
        datasets.DatasetDict({"test": datasets.Dataset.from_list(ROWS)}).save_to_disk(tmp_path)
        text = refusal(tmp_path)
        assert "has no split 'train'" in text
        assert 'set data.split = "test"' in text

    def test_broken_json_line_is_numbered(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "a.jsonl", ROWS)
        path.write_text(path.read_text() + '\n{"question": "x", \n')
        assert "line 4 of a.jsonl is not JSON" in refusal(path)
        path.write_text('["question"]\n')
        assert "line 1 of a.jsonl is not a JSON object" in refusal(path)

    def test_broken_json_array(self, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text('[{"question": "x", "answer": "1"},]')
        assert "a.json is not JSON" in refusal(path)
        path.write_text('[{"question": "x", "answer": "1"}, 5]')
        assert "element 2 of a.json is not a JSON object\n  got:      5" in refusal(path)

    def test_broken_csv_line_is_numbered(self, tmp_path: Path) -> None:
        path = tmp_path / "a.csv"
        path.write_text("question,answer\nWhat, me?,2\n")
        text = refusal(path)
        assert "line 2 of a.csv is not CSV\n  got:      3 fields under 2 column names" in text
        path.write_text('question,answer\n"open,2\n')
        assert "is not CSV" in refusal(path)

    def test_long_csv_field(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text(f"question,answer\n{'x' * 200_000},2\n")
        assert len(load_pool(DataConfig(source=str(tmp_path / "a.csv"))).texts[0]) == 200_000

    def test_damaged_parquet(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
        assert "a.parquet cannot be read as parquet" in refusal(tmp_path / "a.parquet")

    @pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
    def test_other_encodings_are_placed_and_named(self, tmp_path: Path, suffix: str) -> None:
        path = tmp_path / f"a.{suffix}"
        path.write_bytes(b'\n{"question": "caf\xe9?"}\n')
        text = refusal(path)
        assert f"a.{suffix} is not UTF-8 text\n  got:      byte 0xe9 at offset 18" in text
        assert f"iconv -f WINDOWS-1252 -t UTF-8 a.{suffix} > utf8-a.{suffix}" in text
        path.write_text("question,answer\nx,1\n", encoding="utf-16")
        assert "iconv -f UTF-16 -t UTF-8" in refusal(path)

    @pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
    def test_empty_file(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"")
        assert "there are no questions" in refusal(tmp_path / name)

    def test_missing_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ConfigError, match="pip install datasets"):
            load_pool(DataConfig(source="openai/gsm8k"))


@pytest.mark.parametrize(
    ("name", "size"), [("gsm8k_train.jsonl", 7473), ("math500_test.jsonl", 500)]
)
def test_real_questions(name: str, size: int) -> None:
    if not (DATA / name).exists():
        pytest.skip(f"needs {name} in shared/data beside the repository")
    assert len(load_pool(DataConfig(source=str(DATA / name)))) == size
