"""The lasso and the elastic net over ranks, a fit of each target: beside closed forms and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn import linear_model as plain

from dask_train.linear_model.coordinate_descent import soft
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.solving import WITH_L1

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 4)) * [1.0, 3.0, 0.5, 1.0] + [0.0, 4.0, 0.0, -1.0]
Y = np.column_stack([X @ [1.0, -1.0, 0.5, 0.0] + 100, X @ [0.0, 0.0, 3.0, 1.0]]) + RANDOM.normal(size=(80, 2))
WEIGHTS = RANDOM.integers(0, 4, 80).astype(float)


def problem(l1=0.2, l2=0.1, **settings):
    known = {"fit_intercept": True, "num_features": 4, "solver": "newton-cd", "tol": 1e-10, "max_iter": 5000}
    return PenalisedSquares(l1=l1, l2=l2, **known | settings)


def scikit_learns(y, weights=None, **settings):
    model = plain.ElasticNet(alpha=0.3, l1_ratio=2 / 3, tol=1e-14, max_iter=100_000, **settings).fit(X, y, weights)
    return np.append(model.coef_, model.intercept_)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_each_target_is_fitted_as_if_alone(fit_intercept, weights):
    columns = (X, Y) if weights is None else (X, Y, weights)
    found = problem(fit_intercept=fit_intercept)(Alone(*columns))
    assert [each.coef.shape for each in found] == [(1, 5)] * 2
    assert all(each.converged and each.steps > 0 and not each.separable for each in found)
    for each, y in zip(found, Y.T, strict=True):
        wanted = scikit_learns(y, weights, fit_intercept=fit_intercept)
        np.testing.assert_allclose(each.coef[0], wanted, rtol=1e-6, atol=1e-8)


def test_orthogonal_columns_have_a_minimum_in_closed_form():
    x = np.linalg.qr(X - X.mean(axis=0))[0] * np.sqrt(80)
    (found,) = problem(l1=0.6, l2=0.5)(Alone(x + 7, Y[:, 0]))
    wanted = soft(x.T @ Y[:, 0] / 80, np.full(4, 0.6)) / 1.5
    assert (wanted == 0).any()
    np.testing.assert_allclose(found.coef[0], [*wanted, Y[:, 0].mean() - 7 * wanted.sum()], rtol=1e-8, atol=1e-12)
    assert ((found.coef[0, :4] == 0) == (wanted == 0)).all()


def test_a_penalty_that_outweighs_all_leaves_the_mean():
    for each, y in zip(problem(l1=1e4)(Alone(X, Y, WEIGHTS)), Y.T, strict=True):
        assert each.coef[0, :4].tolist() == [0.0] * 4
        assert each.coef[0, 4] == pytest.approx(np.average(y, weights=WEIGHTS))


@pytest.mark.parametrize("solver", WITH_L1)
def test_ranks_with_uneven_and_without_rows(solver, ranks_of):
    parts = [[(X[:1], Y[:1]), (X[1:30], Y[1:30])], [], [(X[30:], Y[30:])]]
    wanted = np.stack([scikit_learns(y) for y in Y.T])
    for found in ranks_of(parts, problem(solver=solver)):
        np.testing.assert_allclose(np.concatenate([each.coef for each in found]), wanted, rtol=1e-6, atol=1e-7)


def test_means_far_from_0_cost_no_digits():
    found = problem()(Alone(X + 1e7, Y + 1e8))
    for each, y in zip(found, Y.T, strict=True):
        np.testing.assert_allclose(each.coef[0, :4], scikit_learns(y)[:4], rtol=1e-6, atol=1e-7)


def test_sparse_features_are_centred_as_others():
    for each, y in zip(problem()(Alone(scipy.sparse.csr_array(X), Y)), Y.T, strict=True):
        np.testing.assert_allclose(each.coef[0], scikit_learns(y), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("solver", WITH_L1)
def test_tol_is_in_the_unit_of_the_targets(unit, solver):
    """The penalty of absolute values is in that unit, too: then coefficients and steps are the same."""
    (wanted,) = problem(tol=1e-5, solver=solver)(Alone(X, Y[:, 0]))
    (found,) = problem(l1=0.2 * unit, tol=1e-5, solver=solver)(Alone(X, Y[:, 0] * unit))
    np.testing.assert_allclose(found.coef / unit, wanted.coef, rtol=1e-3, atol=1e-4)
    assert found.converged


def test_constant_targets_need_no_step():
    (found,) = problem()(Alone(X, np.full(80, 3.0)))
    assert (found.coef[0].tolist(), found.steps, found.converged) == ([0.0] * 4 + [3.0], 0, True)


def test_it_begins_where_it_is_told_to_unless_that_is_of_another_problem():
    at = np.concatenate([each.coef[:, :4] for each in problem()(Alone(X, Y))])
    again = problem(start=at, tol=1e-7)(Alone(X, Y))
    assert [each.steps for each in again] == [0, 0]
    for start in (at[:1], at[:, :3], at.T):
        found = problem(start=start)(Alone(X, Y))
        np.testing.assert_allclose(np.concatenate([each.coef[:, :4] for each in found]), at, rtol=1e-8, atol=1e-10)


def test_too_few_steps_are_told_of_each_target():
    found = problem(solver="proximal_gradient", max_iter=1)(Alone(X, np.column_stack([Y[:, 0], np.full(80, 3.0)])))
    assert [(each.steps, each.converged) for each in found] == [(1, False), (0, True)]


def test_where_no_row_counts_it_is_refused():
    with pytest.raises(ValueError, match="so no row counts"):
        problem()(Alone(X, Y, np.zeros(80)))
