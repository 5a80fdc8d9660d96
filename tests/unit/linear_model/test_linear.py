"""Ordinary least squares and ridge as estimators: beside closed forms and scikit-learn."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from sklearn import linear_model as plain
from sklearn.exceptions import NotFittedError

from dask_train import linear_model
from dask_train.linear_model import LinearRegression, Ridge

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([0.0, 5.0, 0.0], size=(50, 3))
Y = X @ [1.0, -2.0, 0.5] + RANDOM.normal(size=50)
TWO = np.column_stack([Y, X[:, 0] + RANDOM.normal(size=50)])
WEIGHTS = RANDOM.integers(0, 4, 50).astype(float)


@pytest.mark.parametrize("y", [Y, Y[:, None], TWO], ids=["numbers", "a column", "two targets"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("alpha", [0.0, 2.5])
def test_attributes_predictions_and_scores_are_of_scikit_learns_shapes_and_values(y, fit_intercept, weights, alpha):
    kinds = (Ridge(alpha), plain.Ridge(alpha)) if alpha else (LinearRegression(), plain.LinearRegression())
    found, wanted = (each.set_params(fit_intercept=fit_intercept).fit(X, y, weights) for each in kinds)
    assert type(found.intercept_) is type(wanted.intercept_)
    for name in ("coef_", "intercept_"):
        assert np.shape(getattr(found, name)) == np.shape(getattr(wanted, name))
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-8, atol=1e-12)
    assert found.predict(X).shape == wanted.predict(X).shape
    np.testing.assert_allclose(found.predict(X), wanted.predict(X), rtol=1e-8)
    assert found.score(X, y, weights) == pytest.approx(wanted.score(X, y, weights))


@pytest.mark.parametrize("kind", ["ElasticNet", "Lasso"])
@pytest.mark.parametrize("y", [Y, Y[:, None], TWO], ids=["numbers", "a column", "two targets"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_so_they_are_with_a_penalty_of_absolute_values(kind, y, fit_intercept):
    found, wanted = (
        getattr(each, kind)(alpha=0.1, fit_intercept=fit_intercept).fit(X, y) for each in (linear_model, plain)
    )
    assert type(found.intercept_) is type(wanted.intercept_)
    for name in ("coef_", "intercept_", "n_iter_"):
        assert np.shape(getattr(found, name)) == np.shape(getattr(wanted, name))
    lazy = found.predict(da.from_array(X, chunks=(20, 3)))
    assert lazy.shape == lazy.compute().shape == wanted.predict(X).shape


def test_a_penalty_of_0_is_none_and_a_large_one_leaves_the_mean():
    np.testing.assert_allclose(Ridge(0).fit(X, Y).coef_, LinearRegression().fit(X, Y).coef_, rtol=1e-9)
    model = Ridge(1e14).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), Y.mean(), rtol=1e-6)


@pytest.mark.parametrize("alpha", [-1, np.nan, np.inf, "1", None, True])
def test_a_penalty_that_can_not_be_is_refused(alpha):
    with pytest.raises(ValueError, match=r"alpha is .*; it is a number from 0"):
        Ridge(alpha).fit(X, Y)


@pytest.mark.parametrize("kind", [LinearRegression, Ridge])
def test_it_has_to_be_fitted_first(kind):
    for use in (lambda model: model.predict(X), lambda model: model.score(X, Y)):
        with pytest.raises(NotFittedError):
            use(kind())
    with pytest.raises(NotFittedError):
        kind().score(da.from_array(X), da.from_array(Y))


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_of_other_features_are_refused(lazy):
    model = Ridge().fit(X, Y)
    other = X[:, :2]
    with pytest.raises(ValueError, match="X has 2 features, but Ridge is expecting 3 features"):
        model.predict(da.from_array(other) if lazy else other)


@pytest.mark.parametrize("y", [Y, TWO], ids=["numbers", "two targets"])
def test_predictions_of_a_dask_array_are_lazy_and_in_its_chunks(y):
    model = LinearRegression().fit(X, y)
    lazy = model.predict(da.from_array(X, chunks=((20, 0, 30), 3)))
    assert (lazy.shape, lazy.chunks[0], lazy.dtype) == (y.shape, (20, 0, 30), np.float64)
    np.testing.assert_allclose(lazy.compute(), model.predict(X), rtol=1e-12)
    spread = da.from_array(y, chunks=(25, *y.shape[1:]))
    assert model.score(da.from_array(X, chunks=(20, 3)), spread) == pytest.approx(model.score(X, y))


def test_a_fit_that_is_refused_leaves_the_coefficients_of_the_one_before():
    model = Ridge().fit(X, Y)
    before = model.coef_.copy()
    with pytest.raises(ValueError, match="below 0"):
        model.fit(X, Y, -np.ones(50))
    assert model.coef_.tolist() == before.tolist()


def test_weights_that_come_to_0_are_refused():
    with pytest.raises(ValueError, match=r"at least one non-zero number|come to 0"):
        LinearRegression().fit(X, Y, np.zeros(50))
