"""How many references are probed, by hand."""

import numpy as np
import pytest

from evenodds.references import ProbeRule

from builders import observation


def test_fewer_as_the_pool_grows_sure_down_to_none():
    rule = ProbeRule(32, enough=0.2)
    assert rule.count(np.full(10, 0.09)) == 32  # the start: v_0 = 0.09, e^2 = 0.04
    assert rule.count(np.full(10, 0.065)) == 16  # (0.065 - 0.04) / (0.09 - 0.04)
    assert rule.count(np.full(10, 0.0401)) == 1
    assert rule.count(np.full(10, 0.04)) == 0
    assert rule.count(np.full(10, 0.12)) == 32  # never more than K


def test_a_pool_that_is_sure_from_the_start_is_not_probed():
    assert ProbeRule(32, enough=0.2).count(np.full(10, 0.03)) == 0


def test_an_estimate_that_errs_is_probed_again():
    rule = ProbeRule(32, enough=0.2)
    rule.count(np.full(4, 0.09))
    sure = np.full(4, 0.01)
    assert rule.count(sure) == 0
    # z^2 = 0.4^2 / (0.01 + (0.25 - 0.01) / 8) = 4, and 0.8 * 1 + 0.2 * 4 = 1.6, then 2.08
    rule.learn(np.full(2, 0.5), np.full(2, 0.01), observation([0, 1], [0.9, 0.1]))
    assert rule.surprise == pytest.approx(1.6)
    assert rule.count(sure) == 0
    rule.learn(np.full(2, 0.5), np.full(2, 0.01), observation([0, 1], [0.9, 0.1]))
    assert rule.surprise == pytest.approx(2.08)
    assert rule.count(sure) == 32
    # right again, it forgets
    for _ in range(3):
        rule.learn(np.full(2, 0.5), np.full(2, 0.01), observation([0, 1], [0.5, 0.5]))
    assert rule.count(sure) == 0


def test_groups_without_a_score_say_nothing():
    rule = ProbeRule(32, enough=0.2)
    rule.learn(np.full(1, 0.5), np.full(1, 0.0), observation([0], [1.0], samples=0))
    assert rule.surprise == 1.0


def test_a_rule_is_restored():
    rule, other = ProbeRule(8, 0.2), ProbeRule(8, 0.2)
    rule.count(np.full(4, 0.09))
    rule.learn(np.full(1, 0.5), np.full(1, 0.01), observation([0], [1.0]))
    other.restore(rule.state())
    assert (other.first, other.surprise) == (rule.first, rule.surprise)
