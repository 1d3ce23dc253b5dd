"""Replayed less by itself, by hand."""

import logging

import pytest

from evenodds.replay_share import ReplayShare


def test_a_small_effective_sample_halves_the_share_and_says_so(caplog):
    share = ReplayShare(min_ess=0.5)
    with caplog.at_level(logging.WARNING):
        share.note(0.4, 1.0)
    assert (share.factor, share.of(16)) == (0.5, 8)
    assert "0.40" in caplog.text
    share.note(0.9, 1.0)
    assert share.factor == pytest.approx(0.625)
    assert share.of(16) == 10
    for _ in range(3):
        share.note(0.9, 1.0)
    assert share.of(16) == 16


def test_drifting_ratios_halve_it_too():
    share = ReplayShare(max_drift=0.1)
    share.note(1.0, 1.05)
    assert share.factor == 1.0
    share.note(1.0, 0.85)
    assert share.factor == 0.5


def test_it_never_falls_to_nothing_and_waits_where_nothing_was_replayed():
    share = ReplayShare(min_ess=0.5)
    for _ in range(9):
        share.note(0.1, 1.0)
    assert share.factor == 0.125
    share.note(float("nan"), float("nan"))
    assert share.factor == 0.125


def test_unwatched_it_stays():
    share = ReplayShare()
    share.note(0.01, 7.0)
    assert share.factor == 1.0


def test_it_is_restored():
    share, other = ReplayShare(min_ess=0.5), ReplayShare(min_ess=0.5)
    share.note(0.1, 1.0)
    other.restore(share.state())
    assert other.factor == 0.5
