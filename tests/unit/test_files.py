import json

import pytest
import torch

from evenodds import files
from evenodds.errors import CheckpointError


def test_what_is_written_comes_back(tmp_path):
    tensors = {"a": torch.arange(3), "b": torch.randn(2, 2).T}
    files.write_tensors(tmp_path / "t.safetensors", tensors, {"name": "x", "n": [1, None]})
    read, header = files.read_tensors(tmp_path / "t.safetensors")
    assert header == {"name": "x", "n": [1, None]}
    assert torch.equal(read["b"], tensors["b"])
    files.write_json(tmp_path / "j.json", {"a": 1})
    assert files.read_json(tmp_path / "j.json") == {"a": 1}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["j.json", "t.safetensors"]


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    files.write_json(path, {"step": 1})

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_json(path, {"step": 2})
    assert json.loads(path.read_text()) == {"step": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_nan_is_not_written_as_json(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(tmp_path / "x.json", float("nan"))
    assert not (tmp_path / "x.json").exists()


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_truncated_tensors_are_refused(tmp_path, keep):
    path = tmp_path / "t.safetensors"
    files.write_tensors(path, {"a": torch.zeros(100)}, {})
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"t\.safetensors cannot be read"):
        files.read_tensors(path)


def test_tensors_of_another_program_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, tmp_path / "t.safetensors")
    with pytest.raises(CheckpointError, match="written by evenodds"):
        files.read_tensors(tmp_path / "t.safetensors")


def test_missing_and_damaged_json(tmp_path):
    with pytest.raises(CheckpointError, match=r"x\.json cannot be read"):
        files.read_json(tmp_path / "x.json")
    (tmp_path / "x.json").write_text('{"a": ')
    with pytest.raises(CheckpointError, match="a complete JSON file"):
        files.read_json(tmp_path / "x.json")


def test_a_last_line_cut_off_by_a_kill_is_left_out(tmp_path):
    path = tmp_path / "m.jsonl"
    files.append_line(path, {"step": 1})
    files.append_line(path, {"step": 2})
    path.write_text(path.read_text()[:-4])
    assert files.read_lines(path) == [{"step": 1}]


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(CheckpointError, match=r"line 2 of m\.jsonl"):
        files.read_lines(path)


def test_no_file_has_no_lines(tmp_path):
    assert files.read_lines(tmp_path / "m.jsonl") == []
