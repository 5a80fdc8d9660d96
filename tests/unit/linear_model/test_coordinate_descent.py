"""Minima of quadratic models with a penalty of absolute values, one coordinate after the other."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.linear_model.coordinate_descent import _exact, coordinate_descent, soft, violation

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(40, 5)) * [1, 3, 0.2, 1, 10]
HESSIAN = ROWS.T @ ROWS / 40
GRADIENT = RANDOM.normal(size=5)
ZEROS = np.zeros(5)


def test_values_move_towards_0_and_stay_there():
    assert soft(np.array([3.0, -3.0, 1.0, -0.5, 0.0]), np.full(5, 1.0)).tolist() == [2.0, -2.0, 0.0, 0.0, 0.0]


def test_a_coefficient_of_0_rests_while_its_gradient_is_within_the_penalty():
    assert violation(np.zeros(2), np.array([0.9, -1.0]), np.ones(2)) == 0.0
    assert violation(np.zeros(2), np.array([0.9, -1.5]), np.ones(2)) == 0.5


@pytest.mark.parametrize(("coef", "left"), [(2.0, 0.0), (-2.0, 2.0)])
def test_the_penalty_of_a_coefficient_pulls_towards_0(coef, left):
    assert violation(np.array([coef]), np.array([-1.0]), np.ones(1)) == left


def test_a_feature_in_small_units_counts_in_its_own_unit():
    small, large = np.diag([1e-8]), np.diag([100.0])
    at = np.zeros(1), np.array([1e-4]), np.zeros(1)
    assert violation(*at, small) == pytest.approx(1.0)
    assert violation(*at, large) == 1e-4, "a large unit makes nothing look closer than it is"


def test_nothing_is_left_where_there_are_no_coefficients():
    assert violation(np.zeros(0), np.zeros(0), np.zeros(0)) == 0.0


def test_without_a_penalty_it_is_the_solution_of_the_system():
    found = coordinate_descent(HESSIAN, GRADIENT, np.ones(5), ZEROS, 1e-12)
    np.testing.assert_allclose(found, 1 - np.linalg.solve(HESSIAN, GRADIENT), rtol=1e-9)


def test_features_that_do_not_touch_each_other_have_a_minimum_in_closed_form():
    diagonal, l1 = np.array([1.0, 4.0, 0.25]), np.array([0.5, 2.0, 3.0])
    wanted = soft(np.array([2.0, -3.0, 1.0]), l1) / diagonal
    found = coordinate_descent(np.diag(diagonal), np.array([-2.0, 3.0, -1.0]), np.zeros(3), l1, 1e-12)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert found[2] == 0.0


@pytest.mark.parametrize("start", [ZEROS, np.full(5, 2.0), np.array([-1.0, 1.0, 0.0, 3.0, -0.1])])
def test_from_everywhere_it_comes_to_the_one_minimum(start):
    l1 = np.array([0.3, 0.0, 0.8, 0.3, 0.3])
    there = GRADIENT + HESSIAN @ start
    found = coordinate_descent(HESSIAN, there, start, l1, 1e-11)
    np.testing.assert_allclose(found, coordinate_descent(HESSIAN, GRADIENT, ZEROS, l1, 1e-11), rtol=1e-8, atol=1e-12)
    assert violation(found, GRADIENT + HESSIAN @ found, l1, HESSIAN) <= 1e-11


def test_a_large_penalty_leaves_exact_zeros():
    found = coordinate_descent(HESSIAN, GRADIENT, np.ones(5), np.full(5, 1e3), 1e-9)
    assert found.tolist() == [0.0] * 5


def test_what_nothing_but_the_penalty_depends_on_is_0_and_without_a_penalty_as_it_was():
    found = coordinate_descent(np.diag([0.0, 0.0, 1.0]), np.zeros(3), np.full(3, 7.0), np.array([1.0, 0.0, 0.0]), 1e-9)
    assert found.tolist() == [0.0, 7.0, 7.0]


def test_columns_that_are_the_same_have_a_minimum_too():
    hessian, gradient, l1 = np.ones((2, 2)), np.full(2, -3.0), np.full(2, 1.0)
    found = coordinate_descent(hessian, gradient, np.zeros(2), l1, 1e-12)
    assert found.sum() == pytest.approx(2.0)
    assert violation(found, gradient + hessian @ found, l1, hessian) <= 1e-12


def test_what_it_is_given_stays_as_it_is():
    hessian, gradient, coef, l1 = HESSIAN.copy(), GRADIENT.copy(), np.ones(5), np.full(5, 0.1)
    coordinate_descent(hessian, gradient, coef, l1, 1e-9)
    assert (hessian == HESSIAN).all()
    assert (gradient == GRADIENT).all()
    assert (coef == 1).all()


@pytest.mark.parametrize(("slope", "found"), [(0.5, 0.25), (1.5, None)], ids=["same sign", "sign changes"])
def test_the_exact_step_is_taken_where_no_penalised_sign_changes(slope, found):
    exact = _exact(np.eye(1), np.array([slope]), np.array([1.0]), np.array([0.25]))
    assert (exact is None) if found is None else exact.tolist() == [found]


def test_a_sign_that_nothing_penalises_may_change():
    assert _exact(np.eye(1), np.array([1.5]), np.array([1.0]), np.zeros(1)).tolist() == [-0.5]
