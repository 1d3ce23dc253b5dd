import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from evenodds.difficulty import GroupPlatt, fit_platt, platt
from evenodds.difficulty.calibration import spread


def test_platt_by_hand():
    # logit(0.8) = 1.38629; 0.5 * 1.38629 + 0.2 = 0.89315; sigmoid = 0.70953
    assert platt(torch.tensor([0.8]), 0.5, 0.2).item() == pytest.approx(0.70953, abs=1e-5)


def test_platt_with_slope_1_and_shift_0_changes_nothing_inside():
    values = torch.tensor([0.001, 0.3, 0.999])
    assert platt(values, 1.0, 0.0).tolist() == pytest.approx(values.tolist(), abs=1e-6)


def test_platt_of_0_and_1_is_finite():
    # kept 1e-4 away: logit = -9.21024
    low, high = platt(torch.tensor([0.0, 1.0]), 2.0, 0.0).tolist()
    assert low == pytest.approx(1 / (1 + math.exp(18.42048)), rel=1e-3)
    assert high == pytest.approx(1 - low, abs=1e-6)


def test_group_platt_by_hand():
    module = GroupPlatt()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        first, last = module.layers[0], module.layers[2]
        first.weight[0] = torch.tensor([1.0, 0.0])  # unit 0: the mean
        first.weight[1] = torch.tensor([0.0, 1.0])  # unit 1: the standard deviation
        last.weight[0, 1] = 2.0  # raw slope = 2 std
        last.weight[1, 0] = -1.0  # shift = -mean
    slope, shift = module(torch.tensor([0.2, 0.6]))  # mean 0.4, std 0.2
    # softplus(0.4 + ln(e - 1)) = ln(1 + 1.71828 * 1.49182) = ln(3.56337) = 1.27071
    assert slope.item() == pytest.approx(1.27071, abs=1e-5)
    assert shift.item() == pytest.approx(-0.4, abs=1e-6)


def test_group_platt_starts_at_slope_1_when_its_output_is_0():
    module = GroupPlatt()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    slope, shift = module(torch.tensor([0.1, 0.9, 0.4]))
    assert slope.item() == pytest.approx(1.0, abs=1e-6)
    assert shift.item() == 0.0


def test_fit_platt_agrees_with_a_general_optimiser():
    generator = np.random.default_rng(0)
    predicted = generator.uniform(0.1, 0.9, 200)
    observed = np.clip(predicted + 0.3 * generator.normal(size=200), 0, 1)
    logits = np.log(predicted / (1 - predicted))

    def objective(theta):
        z = theta[0] * logits + theta[1]
        fit = np.sum(np.logaddexp(0, z) - observed * z)
        return fit + 0.5 * ((theta[0] - 1) ** 2 + theta[1] ** 2)

    best = minimize(objective, [1.0, 0.0], tol=1e-12).x
    assert fit_platt(predicted, observed) == pytest.approx(tuple(best), abs=1e-4)


def test_fit_platt_of_equal_predictions_by_hand():
    # logit 0 everywhere: slope stays 1; shift solves 2 sigmoid(b) - 2 + b = 0, b = 0.6748
    slope, shift = fit_platt(np.array([0.5, 0.5]), np.array([1.0, 1.0]))
    assert slope == pytest.approx(1.0)
    assert shift == pytest.approx(0.6748, abs=1e-3)


def test_fit_platt_never_reverses_the_order():
    predicted = np.linspace(0.1, 0.9, 100)
    slope, shift = fit_platt(predicted, 1 - predicted)
    assert slope == 0.05
    assert shift == pytest.approx(0.0, abs=1e-6)


def test_spread_by_hand():
    # d(1 - d) = 0.25 twice; squared errors 0.0625 twice; n = 4 gives noise 0.0625 each
    half = np.array([0.5, 0.5])
    assert spread(half, np.array([0.25, 0.75]), np.array([4, 4])) == pytest.approx(0.0)
    # errors 0.25: (0.5 - 0.125) / (0.5 * 0.75) = 1
    assert spread(half, np.array([0.0, 1.0]), np.array([4, 4])) == pytest.approx(1.0)
    # one of each: (0.3125 - 0.125) / 0.375 = 0.5
    assert spread(half, np.array([0.25, 1.0]), np.array([4, 4])) == pytest.approx(0.5)
    assert spread(half, np.array([0.0, 1.0]), np.array([1, 1])) == 1.0
    assert spread(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([4, 4])) == 1.0


def test_spread_finds_the_strength_of_a_beta_distribution():
    generator = np.random.default_rng(0)
    mean = generator.uniform(0.1, 0.9, size=20000)
    truth = generator.beta(4 * mean, 4 * (1 - mean))  # c = 1 / (4 + 1)
    observed = generator.binomial(8, truth) / 8
    assert spread(mean, observed, np.full(20000, 8)) == pytest.approx(0.2, abs=0.01)
