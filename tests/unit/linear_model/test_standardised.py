"""A problem in the coordinates of standardised features is the same problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_train.linear_model.families import Family, Logistic
from dask_train.linear_model.objective import Objective
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.standardised import standardised

X = np.random.default_rng(0).normal(size=(23, 3)) * [1.0, 5.0, 0.1] + [0.0, 7.0, 0.0]


def objective(y: np.ndarray, family: Family, x: np.ndarray = X, **settings: Any) -> Objective:
    return Objective(Alone(), [rows_of(x, y)], family, x.shape[1], total=float(len(y)), **settings)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coordinates_of_standardised_features_are_the_same_problem(fit_intercept):
    of = objective((X[:, 0] > 0).astype(float), Logistic(), fit_intercept=fit_intercept, penalty=0.7, l1=0.2)
    other = standardised(Alone(), of)
    coef = np.random.default_rng(1).normal(size=of.size)
    np.testing.assert_allclose(other.raw(other.standard(coef)), coef, rtol=1e-12)
    turned = other.standard(coef)
    assert other.evaluate(turned, 0)[0] == pytest.approx(of.evaluate(coef, 0)[0])
    assert other.l1 @ np.abs(turned) == pytest.approx(of.l1 @ np.abs(coef)), "the penalties are scaled along"
    turned[1] = 0.0
    assert other.raw(turned)[1] == 0.0, "what a solver has set to 0 stays exactly that"


def test_a_feature_that_is_constant_has_a_scale():
    x = np.column_stack([np.full(5, 3.0), np.zeros(5), np.arange(5.0)])
    of = objective(np.arange(5.0), Family(), x, fit_intercept=True, penalty=0.0)
    assert np.isfinite(standardised(Alone(), of).evaluate(np.ones(4), 2)[2]).all()
