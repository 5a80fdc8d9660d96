"""Linear models in this process and over ranks that are threads: of scikit-learn's coefficients."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn import linear_model as plain
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import mean_tweedie_deviance

from dask_train import linear_model as ours
from dask_train.linear_model.families import Multinomial, Tweedie
from dask_train.linear_model.fitting import Task
from dask_train.linear_model.penalised_squares import PenalisedSquares
from dask_train.linear_model.ranks import Alone
from dask_train.linear_model.rows import rows_of
from dask_train.linear_model.solving import SOLVERS

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 6)) * [1, 2, 0.5, 1, 3, 1] + 1
SIGNAL = X @ [0.5, -0.3, 1.0, 0.0, 0.1, -0.4]
WEIGHTS = RANDOM.integers(0, 4, 300).astype(float)
BINARY = np.where(SIGNAL + RANDOM.logistic(size=300) > 0.7, "yes", "no")
CLASSES = np.digitize(SIGNAL + RANDOM.logistic(size=300), [0, 1.5])
COUNTS = RANDOM.poisson(np.exp(SIGNAL / 3))
POSITIVE = RANDOM.gamma(2, np.exp(SIGNAL / 3)) + 0.01

CASES = {
    "binary": (ours.LogisticRegression, plain.LogisticRegression, BINARY, {"C": 0.7}),
    "binary, balanced": (ours.LogisticRegression, plain.LogisticRegression, BINARY, {"class_weight": "balanced"}),
    "binary, no penalty": (ours.LogisticRegression, plain.LogisticRegression, BINARY, {"C": np.inf}),
    "no intercept": (ours.LogisticRegression, plain.LogisticRegression, BINARY, {"fit_intercept": False}),
    "classes": (ours.LogisticRegression, plain.LogisticRegression, CLASSES, {"C": 0.3, "class_weight": {1: 2.0}}),
    "poisson": (ours.PoissonRegressor, plain.PoissonRegressor, COUNTS, {"alpha": 0.1}),
    "gamma": (ours.GammaRegressor, plain.GammaRegressor, POSITIVE, {"alpha": 0.01}),
    "tweedie": (ours.TweedieRegressor, plain.TweedieRegressor, COUNTS, {"power": 1.5, "alpha": 0.1}),
    "normal": (ours.TweedieRegressor, plain.TweedieRegressor, SIGNAL, {"alpha": 0.1}),
    "squares": (ours.LinearRegression, plain.LinearRegression, SIGNAL + COUNTS, {}),
    "two targets": (ours.LinearRegression, plain.LinearRegression, np.column_stack([SIGNAL, COUNTS]), {}),
    "ridge": (ours.Ridge, plain.Ridge, COUNTS, {"alpha": 3.0}),
    "ridge, no intercept": (ours.Ridge, plain.Ridge, COUNTS, {"fit_intercept": False}),
}


def exact(model, **more):
    known = {"tol": 1e-11, "max_iter": 20_000} | more
    return model.set_params(**{name: value for name, value in known.items() if name in model.get_params()})


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
@pytest.mark.parametrize("name", CASES)
def test_coefficients_are_those_of_scikit_learn(name, weights):
    kind, other, y, settings = CASES[name]
    found = exact(kind(**settings)).fit(X, y, weights)
    solver = {"solver": "svd"} if other is plain.Ridge else {"solver": "newton-cholesky"}
    wanted = exact(other(**settings), **solver).fit(X, y, weights)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=1e-6, atol=1e-8)
    assert (found.coef_.shape, np.shape(found.intercept_)) == (wanted.coef_.shape, np.shape(wanted.intercept_))
    np.testing.assert_allclose(found.score(X, y, weights), wanted.score(X, y, weights), rtol=1e-6)
    if hasattr(wanted, "predict_proba"):
        np.testing.assert_allclose(found.predict_proba(X), wanted.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["binary", "classes", "poisson"])
def test_solvers_come_to_the_same(name, solver):
    kind, _, y, settings = CASES[name]
    first = exact(kind(**settings)).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the last digits are rounding
        found = exact(kind(**settings, solver=solver), tol=1e-9).fit(X, y)
    np.testing.assert_allclose(found.coef_, first.coef_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["binary", "classes", "poisson", "squares", "ridge"])
def test_sparse_features_and_collinear_ones(name):
    kind, _, y, settings = CASES[name]
    dense = exact(kind(**settings)).fit(X, y)
    sparse = exact(kind(**settings)).fit(scipy.sparse.csr_array(X), y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-8)
    doubled = exact(kind(**settings)).fit(np.column_stack([X, X[:, 0]]), y)
    coef = doubled.coef_.reshape(-1, 7)
    np.testing.assert_allclose(coef[:, 0], coef[:, -1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("power", [-0.5, -2.0])
def test_powers_below_0_are_fitted_to_a_minimum(power):
    """scikit-learn's own solver stops before it; the objective here is made of scikit-learn's deviance."""
    scaled = X / [1, 2, 0.5, 1, 3, 1]
    y = np.exp(0.1 * SIGNAL) + RANDOM.normal(scale=0.5, size=300)
    assert (y < 0).any()
    model = ours.TweedieRegressor(power=power, link="log", alpha=0.1, tol=1e-10, max_iter=1000).fit(scaled, y)

    def objective(coef):
        deviance = mean_tweedie_deviance(y, np.exp(scaled @ coef[:-1] + coef[-1]), power=power)
        return deviance / 2 + 0.05 * coef[:-1] @ coef[:-1]

    found = np.append(model.coef_, model.intercept_)
    for step in 1e-3 * np.concatenate([np.eye(7), -np.eye(7)]):
        assert objective(found + step) > objective(found)
    assert model.score(scaled, y) > 0


@pytest.mark.parametrize("y", [(X[:, 0] > 1).astype(int), np.digitize(X[:, 0], [0, 2])])
def test_classes_that_a_plane_divides(y):
    with pytest.warns(ConvergenceWarning, match="can be separated without an error"):
        found = ours.LogisticRegression(C=np.inf).fit(X[:, :1], y)
    assert np.isfinite(found.coef_).all()
    assert found.score(X[:, :1], y) == 1.0


def test_too_few_steps_are_told():
    with pytest.warns(ConvergenceWarning, match="newton-cholesky did not converge to tol=0.0001 within 1 steps"):
        ours.LogisticRegression(max_iter=1).fit(X, BINARY)


def test_a_warm_start_goes_on():
    model = exact(ours.PoissonRegressor(warm_start=True)).fit(X, COUNTS)
    assert model.n_iter_ > 1
    assert model.fit(X, COUNTS).n_iter_ <= 1


@pytest.mark.parametrize(
    ("family", "y", "classes"), [(Multinomial(3), CLASSES, np.arange(3)), (Tweedie(1), COUNTS, None)]
)
def test_ranks_with_uneven_and_without_rows(family, y, classes, ranks_of):
    task = Task(
        family=family,
        num_features=6,
        fit_intercept=True,
        alpha=0.1,
        of_sum=False,
        solver="newton-cholesky",
        tol=1e-10,
        max_iter=100,
        classes=classes,
    )
    whole = ranks_of([[(X, y)]], task)[0]
    parts = [[(X[:250], y[:250])], [], [(X[250:251], y[250:251]), (X[251:], y[251:])]]
    found = ranks_of(parts, task)
    for its in found:
        np.testing.assert_allclose(its.coef, whole.coef, rtol=1e-9, atol=1e-11)
        assert its.coef.tobytes() == found[0].coef.tobytes()


def test_features_of_other_dtypes_are_not_copied_as_a_whole():
    narrow = X.astype("f4")
    x, _, _ = rows_of(narrow, COUNTS)
    assert x is narrow
    parts = [(narrow, COUNTS)]
    found = PenalisedSquares(
        l1=0.1, l2=0.1, num_features=6, fit_intercept=True, solver="newton-cd", tol=1e-10, max_iter=9
    )(type("", (Alone,), {"partitions": lambda _: iter(parts)})())
    wanted = exact(plain.ElasticNet(alpha=0.2), tol=1e-14).fit(narrow.astype("f8"), COUNTS)
    np.testing.assert_allclose(found[0].coef[0, :-1], wanted.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("where", ["X", "y", "sample_weight"])
def test_rows_that_are_not_finite_are_refused_also_where_scikit_learn_does_not_look(where):
    columns = {"X": np.ones((3, 2)), "y": np.ones(3), "sample_weight": np.ones(3)}
    columns[where].reshape(-1)[1] = np.inf
    with pytest.raises(ValueError, match=f"{where} has values that are NaN or infinite"):
        rows_of(*columns.values())


@pytest.mark.parametrize(
    ("kind", "y"), [(ours.ElasticNet, SIGNAL), (ours.Lasso, SIGNAL), (ours.LogisticRegression, SIGNAL > 0)]
)
def test_a_warm_start_may_begin_with_whole_numbers_and_counts_as_scikit_learn_does(kind, y):
    model = kind(warm_start=True, tol=1e-10).fit(X, y)
    wanted = model.coef_.copy()
    model.coef_ = np.round(model.coef_).astype(int)
    np.testing.assert_allclose(model.fit(X, y).coef_, wanted, rtol=1e-6, atol=1e-9)
    if kind is ours.LogisticRegression:
        assert model.fit(X, y).n_iter_.tolist() == [1]


def test_no_step_at_all_is_for_classifiers_as_in_scikit_learn():
    for kind in (ours.ElasticNet, ours.Lasso, ours.PoissonRegressor):
        with pytest.raises(ValueError, match="max_iter is 0; it is 1 or more"):
            kind(max_iter=0).fit(X, np.abs(SIGNAL))
    for solver in ("newton-cholesky", "lbfgs", "gradient_descent"):
        with pytest.warns(ConvergenceWarning):
            model = ours.LogisticRegression(max_iter=0, solver=solver).fit(X, SIGNAL > 0)
        assert (model.n_iter_.tolist(), model.coef_.any()) == ([0], False)
