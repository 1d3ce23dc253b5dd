"""The contract with TRL: every seam exists, and what we add hides nothing of the host's."""

import inspect

import pytest
from trl import GRPOTrainer

from evenodds.errors import HostError
from evenodds.trl import DataEfficientGRPOTrainer
from evenodds.trl.checkpoint import PlainCheckpoints
from evenodds.trl.seams import SEAMS, check_seams


def test_the_installed_host_has_every_seam():
    check_seams(GRPOTrainer)


@pytest.mark.parametrize("name", sorted(SEAMS))
def test_a_missing_seam_is_named(name):
    methods = {other: getattr(GRPOTrainer, other) for other in SEAMS if other != name}
    with pytest.raises(HostError, match=rf"GRPOTrainer\.{name}\n  got: +no such method"):
        check_seams(type("Host", (), methods))


def test_a_changed_signature_is_named():
    def changed(self, batch):
        """Takes something else."""

    methods = {name: getattr(GRPOTrainer, name) for name in SEAMS}
    methods["_compute_loss"] = changed
    with pytest.raises(HostError, match="arguments batch\n  expected: arguments model, inputs"):
        check_seams(type("Host", (), methods))


def test_every_override_is_a_listed_seam_and_nothing_else_collides(make_trainer):
    own = {
        name
        for part in (DataEfficientGRPOTrainer, PlainCheckpoints)
        for name, value in vars(part).items()
        if inspect.isfunction(value) or isinstance(value, property)
    }
    shared = {name for name in own if hasattr(GRPOTrainer, name)} - {"__init__"}
    assert shared <= set(SEAMS)
    host = GRPOTrainer.__init__
    trainer = make_trainer()
    host_source = inspect.getsource(GRPOTrainer)
    assert host is not DataEfficientGRPOTrainer.__init__
    ours = ("efficiency", "ranks", "questions", "loop", "recorder", "step_metrics")
    for name in ours:
        assert hasattr(trainer, name)
        assert f"self.{name} " not in host_source
        assert f"self.{name}." not in host_source


def test_no_override_is_long():
    """The trainer carries rollouts between the loop and the host; a long method is a copy."""
    for part in (DataEfficientGRPOTrainer, PlainCheckpoints):
        for name, value in vars(part).items():
            if inspect.isfunction(value) and name in SEAMS:
                assert len(inspect.getsource(value).splitlines()) <= 35, name
