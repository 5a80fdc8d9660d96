"""The penalised mean loss over ranks: its gradient and Hessian matrix are those of its value."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dask_train.linear_model.families import Family, Logistic, Multinomial, Tweedie
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.standardised import standardised

RNG = np.random.default_rng(0)
X, WEIGHT = RNG.normal(size=(23, 3)) * [1.0, 5.0, 0.1] + [0.0, 7.0, 0.0], RNG.random(23)
TARGETS = {
    "squares": (Family(), X @ [1.0, -1.0, 3.0]),
    "logistic": (Logistic(), (X[:, 0] > 0).astype(float)),
    "poisson": (Tweedie(1), RNG.poisson(2.0, 23).astype(float)),
    "classes": (Multinomial(3), RNG.integers(0, 3, 23).astype(float)),
}
CASES = [
    pytest.param(name, fit_intercept, kind, id=f"{name}, {fit_intercept}, {kind}")
    for name in TARGETS
    for fit_intercept in (True, False)
    for kind in ("dense", "sparse", "centred")
]


def objective(name, fit_intercept, kind, ranks=None, rows=slice(None)):
    family, y = TARGETS[name]
    parts = [rows_of(sparse.csr_matrix(X)[rows] if kind == "sparse" else X[rows], y[rows], WEIGHT[rows])]
    return Objective(
        ranks or Alone(),
        parts,
        family,
        3,
        fit_intercept=fit_intercept,
        penalty=0.7,
        l1=0.2,
        total=float(WEIGHT.sum()),
        centre=X.mean(0) if kind == "centred" else None,
    )


def numeric(function, at, step=1e-5):
    moves = np.eye(len(at)) * step
    return np.stack([(function(at + move) - function(at - move)) / (2 * step) for move in moves])


@pytest.mark.parametrize(("name", "fit_intercept", "kind"), CASES)
@pytest.mark.parametrize("in_other_coordinates", [False, True])
def test_derivatives_are_those_of_the_value(name, fit_intercept, kind, in_other_coordinates):
    of = objective(name, fit_intercept, kind)
    of = standardised(Alone(), of) if in_other_coordinates else of
    coef = np.random.default_rng(1).normal(size=of.size) * 0.1
    value, gradient, hessian = of.evaluate(coef, 2)
    np.testing.assert_allclose(gradient, numeric(lambda w: of.evaluate(w, 0)[0], coef), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hessian, numeric(lambda w: of.evaluate(w, 1)[1], coef), rtol=1e-5, atol=1e-6)
    assert of.evaluate(coef, 0)[0] == pytest.approx(value)


@pytest.mark.parametrize(("name", "fit_intercept", "kind"), CASES)
def test_ranks_sum_to_the_whole(name, fit_intercept, kind, ranks_of):
    coef = np.random.default_rng(1).normal(size=objective(name, fit_intercept, kind).size) * 0.1
    whole = objective(name, fit_intercept, kind).evaluate(coef, 2)
    cut = [slice(0, 5), slice(5, 5), slice(5, 23)]

    def task(rank):
        return objective(name, fit_intercept, kind, rank, cut[rank.world_rank]).evaluate(coef, 2)

    for found in ranks_of([(), (), ()], task):
        for one, other in zip(found, whole, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_an_intercept_is_not_penalised():
    of = objective("classes", True, "dense")
    np.testing.assert_array_equal(of.penalty.reshape(3, 4), [[0.7, 0.7, 0.7, 0.0]] * 3)
    np.testing.assert_array_equal(of.l1.reshape(3, 4), [[0.2, 0.2, 0.2, 0.0]] * 3)


def test_the_hessian_matrix_of_squares_is_made_once(monkeypatch):
    of = objective("squares", True, "dense")
    first = of.evaluate(np.zeros(4), 2)
    monkeypatch.setattr(of, "_add_hessian", None)
    np.testing.assert_array_equal(of.evaluate(np.ones(4), 2)[2], first[2])
