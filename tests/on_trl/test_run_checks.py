"""Checks of a run that need no training."""

from types import SimpleNamespace

import pytest
import torch

from evenodds.errors import CheckpointError, ConfigError, HostError
from evenodds.files import write_json
from evenodds.questions import pool_of_rows
from evenodds.questions.config import DataConfig
from evenodds.state import check_belongs
from evenodds.trl.checkpoint import last_complete
from evenodds.trl.run import _check_template, check_finite_weights


def test_messages_need_a_chat_template():
    rows = [{"question": "1+1", "answer": "2"}]
    plain = pool_of_rows(rows, DataConfig(source="x"))
    asked = pool_of_rows(rows, DataConfig(source="x", system_prompt="Be brief."))
    _check_template(SimpleNamespace(chat_template=None), plain)
    _check_template(SimpleNamespace(chat_template="{{ messages }}"), asked)
    with pytest.raises(ConfigError, match="has no chat template"):
        _check_template(SimpleNamespace(chat_template=None), asked)


def test_weights_that_are_not_finite_are_named():
    model = torch.nn.Linear(2, 2)
    check_finite_weights(model)
    with torch.no_grad():
        model.bias[1] = torch.nan
    with pytest.raises(HostError, match="bias has weights"):
        check_finite_weights(model)


def test_a_checkpoint_of_other_settings_is_refused():
    saved = {"questions": "a", "num_generations": 8}
    check_belongs(saved, dict(saved))
    with pytest.raises(CheckpointError, match=r"other num_generations\n.*4\n.*8"):
        check_belongs(saved, {**saved, "num_generations": 4})


@pytest.mark.parametrize("content", [{}, []])
@pytest.mark.parametrize("name", ["evenodds.json", "trainer_state.json"])
def test_a_checkpoint_with_an_empty_table_is_passed_over(tmp_path, name, content):
    for step in (1, 2):
        folder = tmp_path / f"checkpoint-{step}"
        write_json(folder / "evenodds.json", {"files": {}, "world_size": 1})
        write_json(folder / "trainer_state.json", {"global_step": step})
    assert last_complete(tmp_path).name == "checkpoint-2"
    write_json(tmp_path / "checkpoint-2" / name, content)
    assert last_complete(tmp_path).name == "checkpoint-1"
