"""Solvers of smooth problems: where they end, how long their steps are, and what they ask of the ranks."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.linear_model.solvers import (
    gradient_descent,
    lbfgs,
    newton_cholesky,
    scales_of,
    shortened,
    solved_system,
)

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(30, 3)) * [1.0, 2.0, 0.5]
CURVED = ROWS.T @ ROWS / 30
WANTED = np.array([1.0, -2.0, 0.5])
SOLVERS = [newton_cholesky, lbfgs, gradient_descent]


class Problem:
    """What ranks would sum; notes what was asked for."""

    def __init__(self, value, gradient, hessian):
        self.of = value, gradient, hessian
        self.asked = []

    def __call__(self, coef, order):
        self.asked.append(order)
        return [np.asarray(function(coef)) for function in self.of[: order + 1]]


def quadratic():
    return Problem(
        lambda w: (w - WANTED) @ CURVED @ (w - WANTED) / 2, lambda w: CURVED @ (w - WANTED), lambda w: CURVED
    )


def steep():
    """Of a start far away a whole step of Newton's leads far beyond the minimum at 0."""
    return Problem(lambda w: np.log(np.cosh(w)).sum(), np.tanh, lambda w: np.diag(1 / np.cosh(w) ** 2))


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_minimum_is_found(solver):
    coef, steps, converged = solver(quadratic(), np.zeros(3), 1e-9, 200)
    np.testing.assert_allclose(coef, WANTED, atol=1e-7)
    assert (steps > 0, converged) == (True, True)


@pytest.mark.parametrize("solver", SOLVERS)
def test_no_step_is_taken_from_the_minimum(solver):
    coef, steps, converged = solver(quadratic(), WANTED, 1e-9, 200)
    assert (coef.tolist(), steps, converged) == (WANTED.tolist(), 0, True)


@pytest.mark.parametrize("solver", [newton_cholesky, gradient_descent])
def test_where_no_step_is_allowed_none_is_taken_and_that_is_no_end(solver):
    coef, steps, converged = solver(quadratic(), np.zeros(3), 1e-9, 0)
    assert (coef.tolist(), steps, converged) == ([0.0] * 3, 0, False)


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_steps_are_no_end(solver):
    far = Problem(lambda w: (w**4).sum(), lambda w: 4 * w**3, lambda w: np.diag(12 * w**2))
    _, steps, converged = solver(far, np.array([50.0, 3.0]), 1e-9, 2)
    assert (steps, converged) == (2, False)


def test_newton_needs_one_step_of_a_quadratic():
    assert newton_cholesky(quadratic(), np.zeros(3), 1e-9, 10)[1:] == (1, True)


def test_newtons_steps_are_shortened_where_they_are_too_long():
    coef, _, converged = newton_cholesky(steep(), np.array([2.0]), 1e-9, 50)
    assert converged
    assert abs(coef[0]) < 1e-6


def test_a_good_hessian_of_a_sample_spares_that_of_all_rows():
    problem = quadratic()
    coef, _, converged = newton_cholesky(problem, np.zeros(3), 1e-9, 50, 1.01 * CURVED)
    assert converged
    np.testing.assert_allclose(coef, WANTED, atol=1e-7)
    assert 2 not in problem.asked


def test_a_poor_hessian_of_a_sample_is_replaced_by_that_of_all_rows():
    problem = quadratic()
    _, _, converged = newton_cholesky(problem, np.zeros(3), 1e-9, 50, 20 * CURVED)
    assert converged
    assert 2 in problem.asked


def test_a_slope_that_promises_what_no_step_brings_is_no_end():
    wrong = Problem(lambda w: (w**2).sum(), lambda w: -2 * w, lambda w: 2 * np.eye(1))
    for solver in (newton_cholesky, gradient_descent):
        coef, steps, converged = solver(wrong, np.ones(1), 1e-9, 50)
        assert (coef.tolist(), steps, converged) == ([1.0], 0, False)


def test_a_regular_system_is_solved():
    np.testing.assert_allclose(solved_system(CURVED, CURVED @ WANTED), WANTED, rtol=1e-12)


def test_the_units_of_features_do_not_matter():
    units = np.array([1e-9, 1.0, 1e9])
    hessian = CURVED * np.outer(units, units)
    np.testing.assert_allclose(solved_system(hessian, hessian @ (WANTED / units)) * units, WANTED, rtol=1e-9)


def test_of_a_singular_system_it_is_the_shortest_solution():
    np.testing.assert_allclose(solved_system(np.ones((2, 2)), np.full(2, 2.0)), [1.0, 1.0], rtol=1e-9)


def test_scales_are_roots_and_1_where_there_is_nothing():
    assert scales_of(np.array([4.0, 0.0, -1.0])).tolist() == [2.0, 1.0, 1.0]


def parabola():
    return Problem(lambda w: (w**2).sum(), lambda w: 2 * w, lambda w: 2 * np.eye(len(w)))


def test_of_a_whole_step_that_is_right_all_is_asked_at_once():
    problem = parabola()
    further, found = shortened(problem, np.ones(1), 1.0, -np.ones(1), 2.0)
    assert (further.tolist(), len(found), problem.asked) == ([0.0], 3, [2])


def test_of_shorter_steps_the_value_is_asked_and_the_rest_where_it_ends():
    problem = parabola()
    further, found = shortened(problem, np.ones(1), 1.0, np.array([-6.0]), 12.0, order=1)
    assert (further.tolist(), len(found), problem.asked) == ([-0.5], 2, [1, 0, 0, 1])


def test_a_step_has_to_bring_a_part_of_what_its_slope_promises():
    flat = Problem(lambda w: 1.0 - 1e-6 * w.sum(), lambda w: -1e-6 * np.ones(1), None)
    assert shortened(flat, np.zeros(1), 1.0, np.ones(1), 1e-6, order=1)[0].tolist() == [1.0]
    assert shortened(flat, np.zeros(1), 1.0, np.ones(1), 1.0, order=1)[0][0] < 1e-6, "rounding alone lets that be"


def test_the_penalty_counts_where_steps_are_shortened():
    start, direction = np.zeros(1), np.ones(1)
    sloped = Problem(lambda w: -w.sum(), lambda w: -np.ones(1), None)
    assert shortened(sloped, start, 0.0, direction, 1.0, 0.5, order=1)[0].tolist() == [1.0]
    assert shortened(sloped, start, 0.0, direction, 1.0, 2.0, order=1) is None


@pytest.mark.parametrize("nowhere", [np.nan, np.inf])
def test_where_a_value_is_no_number_a_step_does_not_end(nowhere):
    walled = Problem(lambda w: nowhere if w[0] < 0 else (w**2).sum(), lambda w: 2 * w, None)
    further, _ = shortened(walled, np.ones(1), 1.0, np.array([-1.5]), 3.0, order=1)
    assert further.tolist() == [0.25]
