"""Ranks that fit their own rows and agree by and by: on the minimum of all rows."""

from __future__ import annotations

import numpy as np
import pytest

from dask_train.linear_model.admm import admm
from dask_train.linear_model.coordinate_descent import violation
from dask_train.linear_model.families import Family, Logistic, Multinomial, Tweedie
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 3)) * [1.0, 3.0, 0.5] + [0.0, 1.0, 0.0]
SIGNAL = X @ [1.0, -0.5, 1.0]
TARGETS = {
    "squares": (Family(), SIGNAL + RANDOM.normal(size=80)),
    "logistic": (Logistic(), (SIGNAL + RANDOM.logistic(size=80) > 0).astype(float)),
    "classes": (Multinomial(3), np.digitize(SIGNAL + RANDOM.logistic(size=80), [-1, 1]).astype(float)),
    "poisson": (Tweedie(1), RANDOM.poisson(np.exp(SIGNAL / 3)).astype(float)),
}
CUTS = {
    "alone": [slice(None)],
    "alike": [slice(0, 40), slice(40, None)],
    "uneven": [slice(0, 3), slice(3, 10), slice(10, None)],
    "without rows": [slice(0, 0), slice(None)],
}


def objective(ranks, name, at=slice(None), rows=None, **settings):
    family, y = TARGETS[name]
    x, y = (X, y) if rows is None else (X[rows], y[rows])
    known = {"fit_intercept": True, "penalty": 0.05, "l1": 0.02, "total": 80.0} | settings
    return Objective(ranks, [rows_of(x[at], y[at])], family, 3, **known)


def left(of, coef):
    return violation(coef, of.evaluate(coef, 1)[1], of.l1)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", TARGETS)
def test_ranks_agree_on_the_minimum_of_all_rows(name, cut, ranks_of):
    def task(rank):
        of = objective(rank, name, CUTS[cut][rank.world_rank])
        return admm(rank, of, np.zeros(of.size), 1e-7, 2000)

    found = ranks_of([()] * len(CUTS[cut]), task)
    coef, steps, converged = found[0]
    assert converged
    assert left(objective(Alone(), name), coef) <= 1.01e-7
    for other, its_steps, its_end in found[1:]:
        assert (other.tobytes(), its_steps, its_end) == (coef.tobytes(), steps, converged)


def test_rows_of_another_kind_on_each_rank(ranks_of):
    """Each would find other coefficients: of one class only, say, there is no minimum without the others."""
    rows = np.argsort(TARGETS["logistic"][1], kind="stable")

    def task(rank):
        of = objective(rank, "logistic", slice(0, 30) if rank.world_rank else slice(30, None), rows, l1=0.0)
        return admm(rank, of, np.zeros(of.size), 1e-6, 5000)

    coef, _, converged = ranks_of([(), ()], task)[0]
    assert converged
    assert left(objective(Alone(), "logistic", l1=0.0), coef) <= 1.01e-6


def test_what_the_penalty_holds_at_0_is_exactly_that(ranks_of):
    def task(rank):
        of = objective(rank, "squares", CUTS["alike"][rank.world_rank], l1=1.0)
        return admm(rank, of, np.ones(of.size), 1e-9, 2000)

    coef, _, converged = ranks_of([(), ()], task)[0]
    assert converged
    assert (coef == 0).any()
    assert left(objective(Alone(), "squares", l1=1.0), coef) <= 1.01e-9


def test_of_squares_it_is_the_solution_of_the_normal_equations():
    of = objective(Alone(), "squares", l1=0.0, penalty=0.3)
    coef, _, converged = admm(Alone(), of, np.zeros(4), 1e-9, 1000)
    rows = np.column_stack([X, np.ones(80)])
    gram = rows.T @ rows / 80 + np.diag([0.3, 0.3, 0.3, 0.0])
    assert converged
    np.testing.assert_allclose(coef, np.linalg.solve(gram, rows.T @ TARGETS["squares"][1] / 80), rtol=1e-6)


def test_no_step_is_taken_from_the_minimum():
    of = objective(Alone(), "poisson")
    at = admm(Alone(), of, np.zeros(4), 1e-9, 2000)[0]
    coef, steps, converged = admm(Alone(), of, at, 1e-8, 2000)
    assert (coef.tobytes(), steps, converged) == (at.tobytes(), 0, True)


@pytest.mark.parametrize("max_iter", [0, 2])
def test_too_few_steps_are_no_end(max_iter):
    _, steps, converged = admm(Alone(), objective(Alone(), "poisson"), np.zeros(4), 1e-9, max_iter)
    assert (steps, converged) == (max_iter, False)


def test_hessian_matrices_of_where_it_begins_are_measured_no_more(ranks_of):
    asked = []

    class Asked(Objective):
        def evaluate(self, coef, order):
            asked.append(order)
            return super().evaluate(coef, order)

    def task(rank):
        family, y = TARGETS["logistic"]
        parts = [rows_of(X[at := CUTS["alike"][rank.world_rank]], y[at])]
        of = Asked(rank, parts, family, 3, fit_intercept=True, penalty=0.05, l1=0.02, total=80.0)
        other = objective(rank, "logistic", at)
        near = np.full(4, 0.1)
        return admm(rank, of, np.zeros(4), 1e-7, 2000, (other.evaluate(near, 2)[2], other.own(near, 2)[2]))

    coef, _, converged = ranks_of([(), ()], task)[0]
    assert converged
    assert left(objective(Alone(), "logistic"), coef) <= 1.01e-7
    assert set(asked) == {1}


def test_a_feature_that_no_row_has_stays_where_it_is():
    family, y = TARGETS["logistic"]
    parts = [rows_of(np.column_stack([X, np.zeros(80)]), y)]
    of = Objective(Alone(), parts, family, 4, fit_intercept=True, penalty=0.0, total=80.0)
    coef, _, converged = admm(Alone(), of, np.zeros(5), 1e-7, 2000)
    assert converged
    assert coef[3] == 0.0
    np.testing.assert_array_less(np.abs(of.evaluate(coef, 1)[1]), 1.01e-7)
