"""Solvers by name, called alike: what they find is in the coordinates of the features as they are."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.linear_model import solving
from dask_train.linear_model.coordinate_descent import soft
from dask_train.linear_model.families import Family, Logistic
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.sampling import Sample
from dask_train.linear_model.solving import FIRST_ORDER, SOLVERS, WITH_L1, solved

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(60, 3))
UNITS = np.array([1e-3, 1.0, 1e4])
Y = X @ [1.0, -2.0, 0.0] + 3.0 + RANDOM.normal(size=60)
BINARY = (X[:, 0] + RANDOM.logistic(size=60) > 0).astype(float)


def objective(x=X, y=Y, family=None, ranks=None, **settings):
    known = {"fit_intercept": True, "penalty": 0.0, "total": 60.0} | settings
    return Objective(ranks or Alone(), [rows_of(x, y)], family or Family(), x.shape[1], **known)


def solution(x, y, penalty):
    rows = np.column_stack([x, np.ones(len(x))])
    gram = rows.T @ rows / len(x) + np.diag([penalty] * x.shape[1] + [0.0])
    return np.linalg.solve(gram, rows.T @ y / len(x))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("penalty", [0.0, 0.4])
def test_each_comes_to_the_solution_of_squares(solver, penalty):
    coef, steps, converged = solved(Alone(), objective(penalty=penalty), solver, np.zeros(4), 1e-9, 2000)
    assert (steps > 0, converged) == (True, True)
    assert isinstance(steps, int)
    np.testing.assert_allclose(coef, solution(X, Y, penalty), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_units_that_are_far_apart_cost_none_of_them_its_end(solver):
    coef, steps, converged = solved(Alone(), objective(X * UNITS + 50 * UNITS), solver, np.zeros(4), 1e-9, 500)
    assert converged
    assert steps < 100
    np.testing.assert_allclose(coef[:3] * UNITS, solution(X, Y, 0.0)[:3], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", WITH_L1)
def test_what_the_penalty_of_absolute_values_leaves_is_exactly_0(solver):
    """Columns that are orthogonal, in any unit: the minimum has a closed form."""
    x = np.linalg.qr(X - X.mean(axis=0))[0] * np.sqrt(60) * [1.0, 5.0, 0.2]
    of = objective(x, l1=0.5)
    coef, _, converged = solved(Alone(), of, solver, np.ones(4), 1e-10, 2000)
    wanted = soft(x.T @ Y / 60, np.full(3, 0.5)) / [1.0, 25.0, 0.04]
    assert converged
    assert 0.0 in wanted
    np.testing.assert_allclose(coef, [*wanted, Y.mean()], rtol=1e-7, atol=1e-12)
    assert ((coef[:3] == 0) == (wanted == 0)).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_it_begins_where_it_is_told_to(solver):
    of = objective(X * UNITS + 1, BINARY, Logistic(), penalty=0.1)
    at = solved(Alone(), of, solver, np.zeros(4), 1e-9, 5000)[0]
    coef, steps, converged = solved(Alone(), of, solver, at, 1e-6, 5000)
    assert (steps, converged) == (0, True)
    np.testing.assert_allclose(coef, at, rtol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_too_few_steps_are_told(solver):
    of = objective(X * [1, 10, 1], BINARY, Logistic(), penalty=0.01)
    coef, steps, converged = solved(Alone(), of, solver, np.full(4, 2.0), 1e-12, 1)
    assert (steps, converged) == (1, False)
    assert np.isfinite(coef).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_ranks_with_some_rows_each_are_told_the_same(solver, ranks_of):
    cut = [slice(0, 2), slice(2, 2), slice(2, None)]

    def task(rank):
        at = cut[rank.world_rank]
        return solved(rank, objective(X[at], Y[at], ranks=rank, penalty=0.4), solver, np.zeros(4), 1e-9, 2000)

    found = ranks_of([()] * 3, task)
    for coef, steps, converged in found:
        assert (coef.tobytes(), steps, converged) == (found[0][0].tobytes(), found[0][1], True)
        np.testing.assert_allclose(coef, solution(X, Y, 0.4), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("good", [True, False], ids=["a good sample", "one that leads astray"])
def test_a_sample_is_fitted_first_and_changes_nothing_of_the_end(solver, good):
    of = objective(X, BINARY, Logistic(), penalty=0.1)
    rows = rows_of(X[::2], BINARY[::2]) if good else rows_of(X[:20], 1 - BINARY[:20])
    sample = Sample([rows], float(len(rows[1])), 1e-3)
    wanted = solved(Alone(), of, "newton-cholesky", np.zeros(4), 1e-10, 100)[0]
    coef, _, converged = solved(Alone(), of, solver, np.zeros(4), 1e-9, 5000, sample)
    assert converged
    np.testing.assert_allclose(coef, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("first", [-1.0, 1.0], ids=["the first takes it", "others take it"])
def test_ranks_take_a_sample_where_the_first_one_does(solver, first, ranks_of, monkeypatch):
    """Processors that round differently may see a tie differently, and would make other calls from there."""
    value = solving._value

    def rounded(problem, coef, order):
        leads = getattr(problem, "_objective", problem)._ranks.world_rank == 0
        return value(problem, coef, order) + (first if leads else -first) * (order > 0)

    def task(rank):
        at = slice(0, 30) if rank.world_rank else slice(30, None)
        of = objective(X[at], BINARY[at], Logistic(), ranks=rank, penalty=0.1)
        sample = Sample([rows_of(X[at][::2], BINARY[at][::2])], 30.0, 1e-3)
        return solved(rank, of, solver, np.zeros(4), 1e-9, 5000, sample)

    monkeypatch.setattr(solving, "_value", rounded)
    (coef, *_), other = ranks_of([()] * 2, task)
    assert coef.tobytes() == other[0].tobytes()


def test_a_sample_that_is_all_the_rows_leaves_no_more_than_a_look():
    of = objective(X, BINARY, Logistic(), penalty=0.1)
    sample = Sample([rows_of(X, BINARY)], 60.0, 1e-12)
    for solver in ("newton-cd", "lbfgs", "gradient_descent"):
        assert solved(Alone(), of, solver, np.zeros(4), 1e-6, 1000, sample)[1:] == (0, True)


def test_the_names():
    assert set(FIRST_ORDER) < set(SOLVERS)
    assert set(WITH_L1) < set(SOLVERS)
    with pytest.raises(KeyError, match="saga"):
        solved(Alone(), objective(), "saga", np.zeros(4), 1e-9, 10)
