"""Solvers of problems with a penalty of absolute values: where they end, and what they say of it."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.linear_model.composite import newton_cd, proximal_gradient
from dask_train.linear_model.coordinate_descent import soft, violation

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(30, 4)) * [1.0, 2.0, 0.5, 1.0]
CURVED = ROWS.T @ ROWS / 30
WANTED = np.array([1.0, -2.0, 0.5, 0.0])
L1 = np.array([0.1, 0.2, 0.3, 0.3])
SOLVERS = [newton_cd, proximal_gradient]


def quadratic(coef, order):
    """Of least squares whose minimum without a penalty is ``WANTED``."""
    off = coef - WANTED
    return [np.asarray(off @ CURVED @ off / 2), CURVED @ off, CURVED][: order + 1]


def logistic(coef, order):
    """Of rows that are on both sides, so that there is a minimum."""
    raw = ROWS @ coef
    right = (ROWS[:, 1] + np.sin(np.arange(30.0)) > 0).astype(float)
    chance = 1 / (1 + np.exp(-raw))
    of_rows = [np.logaddexp(0, raw) - right * raw, ROWS * (chance - right)[:, None]]
    hessian = ROWS.T @ (ROWS * (chance * (1 - chance))[:, None]) / 30
    return [np.asarray(of_rows[0].mean()), of_rows[1].mean(axis=0), hessian][: order + 1]


def cosh(coef, order):
    """Of a start far away a whole step of Newton's leads far beyond the minimum at 0."""
    return [np.log(np.cosh(coef)).sum(), np.tanh(coef), np.diag(1 / np.cosh(coef) ** 2)][: order + 1]


def separate(coef, order):
    """Features that do not touch each other: the minimum has a closed form."""
    curved, at = np.array([1.0, 4.0, 0.25]), np.array([2.0, -3.0, 1.0])
    return [np.asarray(coef @ (curved * coef) / 2 - at @ coef), curved * coef - at, np.diag(curved)][: order + 1]


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_minimum_in_closed_form(solver):
    l1 = np.array([0.5, 2.0, 3.0])
    coef, _, converged = solver(separate, np.zeros(3), 1e-10, 500, l1)
    assert converged
    np.testing.assert_allclose(coef, soft(np.array([2.0, -3.0, 1.0]), l1) / [1.0, 4.0, 0.25], rtol=1e-8)
    assert coef[2] == 0.0, "exactly"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("evaluate", [quadratic, logistic], ids=["squares", "logistic"])
@pytest.mark.parametrize("start", [np.zeros(4), np.array([5.0, 5.0, -5.0, 0.1])], ids=["from 0", "from afar"])
def test_it_ends_where_no_part_of_the_subgradient_is_larger_than_tol(solver, evaluate, start):
    coef, steps, converged = solver(evaluate, start, 1e-8, 1000, L1)
    assert (steps > 0, converged) == (True, True)
    assert violation(coef, evaluate(coef, 1)[1], L1) <= 1e-8


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_a_penalty_it_is_the_minimum_of_the_rest(solver):
    coef, _, converged = solver(quadratic, np.zeros(4), 1e-9, 1000, np.zeros(4))
    assert converged
    np.testing.assert_allclose(coef, WANTED, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_penalty_that_outweighs_all_leaves_zeros_at_once(solver):
    coef, steps, converged = solver(quadratic, np.zeros(4), 1e-9, 10, np.full(4, 1e3))
    assert (coef.tolist(), steps, converged) == ([0.0] * 4, 0, True)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_step_is_taken_from_the_minimum(solver):
    at = solver(quadratic, np.zeros(4), 1e-12, 1000, L1)[0]
    coef, steps, converged = solver(quadratic, at, 1e-9, 1000, L1)
    assert (coef.tolist(), steps, converged) == (at.tolist(), 0, True)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("max_iter", [0, 1])
def test_too_few_steps_are_no_end(solver, max_iter):
    start = np.array([5.0, 5.0, -5.0, 0.1])
    coef, steps, converged = solver(logistic, start, 1e-9, max_iter, L1)
    assert (steps, converged) == (max_iter, False)
    assert (coef == start).all() == (max_iter == 0)


def test_newton_takes_one_step_of_squares():
    assert newton_cd(quadratic, np.zeros(4), 1e-9, 10, L1)[1:] == (1, True)


def test_newtons_steps_are_shortened_where_they_are_too_long():
    coef, _, converged = newton_cd(cosh, np.array([3.0]), 1e-9, 50, np.array([0.1]))
    assert (coef.tolist(), converged) == ([0.0], True)


def test_the_intercept_moves_although_the_others_rest():
    l1 = np.array([9.0, 9.0, 9.0, 0.0])
    for solver in SOLVERS:
        coef, _, converged = solver(quadratic, np.zeros(4), 1e-10, 500, l1)
        assert converged
        np.testing.assert_allclose(coef, [0, 0, 0, (CURVED @ WANTED)[3] / CURVED[3, 3]], atol=1e-8)


def test_a_slope_that_promises_what_no_step_brings_is_no_end():
    def wrong(coef, order):
        return [(coef**2).sum(), -2 * coef, 2 * np.eye(1)][: order + 1]

    coef, steps, converged = newton_cd(wrong, np.ones(1), 1e-9, 50, np.zeros(1))
    assert (coef.tolist(), steps, converged) == ([1.0], 0, False)


@pytest.mark.parametrize("solver", SOLVERS)
def test_where_there_is_no_value_at_all_it_stays_and_that_is_no_end(solver):
    def nowhere(coef, order):
        return [np.asarray(np.nan), 2 * coef, 2 * np.eye(1)][: order + 1]

    coef, steps, converged = solver(nowhere, np.ones(1), 1e-9, 50, np.zeros(1))
    assert (coef.tolist(), steps, converged) == ([1.0], 0, False)


@pytest.mark.parametrize("nowhere", [np.nan, np.inf])
@pytest.mark.parametrize("solver", SOLVERS)
def test_where_there_is_no_value_a_step_does_not_end(solver, nowhere):
    def walled(coef, order):
        value = nowhere if coef[0] < 0 else ((coef - 0.5) ** 2).sum() * 4
        return [np.asarray(value), 8 * (coef - 0.5), np.eye(1)][: order + 1]  # too small a curvature: long steps

    coef, _, converged = solver(walled, np.ones(1), 1e-9, 500, np.array([0.8]))
    assert converged
    assert coef[0] == pytest.approx(0.4, abs=1e-8)


def test_nothing_to_fit():
    def nothing(coef, order):
        return [np.asarray(0.0), np.zeros(0), np.zeros((0, 0))][: order + 1]

    for solver in SOLVERS:
        coef, steps, converged = solver(nothing, np.zeros(0), 1e-9, 5, np.zeros(0))
        assert (coef.size, steps, converged) == (0, 0, True)
