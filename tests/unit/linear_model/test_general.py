"""Generalised linear models as estimators: where their minimum is, and what they refuse."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import sklearn.linear_model
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dask_train.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([0.0, 1.0], size=(120, 2))
MEANS = np.exp(X @ [0.5, -0.3])
COUNTS = RANDOM.poisson(MEANS)
POSITIVE = RANDOM.gamma(2, MEANS) + 0.01
WEIGHTS = RANDOM.integers(0, 4, 120).astype(float)
EXACT = {"tol": 1e-10, "max_iter": 200}
MODELS = [
    (PoissonRegressor(**EXACT), COUNTS),
    (GammaRegressor(**EXACT), POSITIVE),
    (TweedieRegressor(power=1.7, **EXACT), COUNTS),
    (TweedieRegressor(power=3, **EXACT), POSITIVE),
    (TweedieRegressor(**EXACT), COUNTS - 3.0),
]
IDS = ["poisson", "gamma", "between", "inverse gaussian", "normal"]


def power_of(model):
    return model.power if hasattr(model, "power") else {PoissonRegressor: 1, GammaRegressor: 2}[type(model)]


def indicators(fit_intercept):
    """Rows of two groups, and the target's mean in each."""
    group = np.arange(120) % 2
    return group, (group[:, None] == 1).astype(float) if fit_intercept else (group[:, None] == [0, 1]).astype(float)


@pytest.mark.parametrize(("model", "y"), MODELS, ids=IDS)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_a_penalty_the_prediction_of_a_group_is_its_mean(model, y, fit_intercept):
    group, x = indicators(fit_intercept)
    model = clone(model).set_params(alpha=0, fit_intercept=fit_intercept).fit(x, y, WEIGHTS)
    wanted = [np.average(y[group == each], weights=WEIGHTS[group == each]) for each in (0, 1)]
    np.testing.assert_allclose(model.predict(x), np.array(wanted)[group], rtol=1e-8)
    assert (model.intercept_ == 0.0) == (not fit_intercept)
    assert model.coef_.shape == (x.shape[1],)
    assert isinstance(model.intercept_, float)


@pytest.mark.parametrize(("model", "y"), MODELS, ids=IDS)
@pytest.mark.parametrize("weights", [np.ones(120), WEIGHTS], ids=["", "weights"])
def test_the_gradient_of_the_penalised_mean_of_half_the_deviances_is_0(model, y, weights):
    model = clone(model).set_params(alpha=0.3).fit(X, y, weights)
    mean = model.predict(X)
    by_raw = (mean - y) * mean ** (1 - power_of(model)) if power_of(model) else mean - y
    slopes = weights * by_raw / weights.sum()
    np.testing.assert_allclose(X.T @ slopes + 0.3 * model.coef_, 0.0, atol=1e-7)
    assert slopes.sum() == pytest.approx(0.0, abs=1e-8), "the intercept is not penalised"


@pytest.mark.parametrize(("model", "y"), MODELS, ids=IDS)
def test_scores_of_arrays_and_of_dask_arrays_are_the_same(model, y):
    model = clone(model).fit(X, y, WEIGHTS)
    lazy = [da.from_array(each, chunks=(50, *each.shape[1:])) for each in (X, y, WEIGHTS)]
    assert 0 < model.score(X, y, WEIGHTS) < 1
    assert model.score(*lazy) == pytest.approx(model.score(X, y, WEIGHTS))
    np.testing.assert_allclose(model.predict(lazy[0]).compute(), model.predict(X))


def test_the_same_distributions_by_other_names():
    for named, power, y in ((PoissonRegressor, 1, COUNTS), (GammaRegressor, 2, POSITIVE)):
        other = TweedieRegressor(power=power, **EXACT).fit(X, y)
        np.testing.assert_allclose(named(**EXACT).fit(X, y).coef_, other.coef_, rtol=1e-9)


@pytest.mark.parametrize(
    ("model", "y", "told"),
    [
        (PoissonRegressor(), -1.0, "y are below 0"),
        (GammaRegressor(), 0.0, "y are not above 0"),
        (TweedieRegressor(power=1.5), -1.0, "y are below 0"),
        (TweedieRegressor(power=2.5), 0.0, "y are not above 0"),
    ],
)
def test_targets_out_of_the_range_of_the_distribution_are_refused(model, y, told):
    with pytest.raises(ValueError, match=told):
        model.fit(X, np.append(POSITIVE[:-1], y))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"power": 0.5}, r"power is 0.5; it is a number from 1 on, or up to 0"),
        ({"link": "logit", "power": 1}, "link is 'logit'; it is 'auto', 'identity' or 'log'"),
        ({"power": -1, "fit_intercept": False}, "link='identity' with power=-1 needs an intercept"),
        ({"alpha": -1}, "alpha is -1; it is a number from 0"),
        ({"solver": "newton"}, "solver is 'newton'; it is 'newton-cholesky'"),
        ({"l1_ratio": 0.5}, "solver is 'newton-cholesky'; with l1_ratio=0.5 it is 'newton-cd'"),
        ({"tol": -1e-3}, r"tol is -0.001"),
    ],
)
def test_parameters_that_can_not_be_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        TweedieRegressor(**settings).fit(X, COUNTS)


def test_the_usual_link_may_be_named():
    for settings in ({"power": 1.5, "link": "log"}, {"power": 0, "link": "identity"}):
        named = TweedieRegressor(**settings).fit(X, POSITIVE)
        assert named.coef_.tolist() == TweedieRegressor(power=settings["power"]).fit(X, POSITIVE).coef_.tolist()


@pytest.mark.parametrize("link", ["auto", "identity", "log"])
@pytest.mark.parametrize("power", [-2.5, -1, 0, 1, 1.5, 2, 3])
def test_links_and_powers_give_the_coefficients_of_scikit_learn(power, link):
    settings = {"power": power, "link": link, "alpha": 0.01, "tol": 1e-8, "max_iter": 1000}
    y = 5 + X @ [0.3, -0.2] + POSITIVE / 10
    found, wanted = TweedieRegressor(**settings).fit(X, y), sklearn.linear_model.TweedieRegressor(**settings).fit(X, y)
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-5)
    assert found.intercept_ == pytest.approx(wanted.intercept_, abs=1e-5)
    np.testing.assert_allclose(found.predict(X), wanted.predict(X), rtol=1e-5)


def test_targets_whose_mean_no_identity_reaches_are_refused():
    with pytest.raises(ValueError, match=r"The mean of y is -.* has means above 0. Pass power=0"):
        TweedieRegressor(power=-1).fit(X, -POSITIVE)


def test_what_of_the_penalty_is_of_absolute_values_leaves_zeros():
    x = np.column_stack([X, RANDOM.normal(size=120)])
    model = PoissonRegressor(alpha=0.2, l1_ratio=1.0, solver="newton-cd", **EXACT).fit(x, COUNTS)
    slopes = x.T @ (model.predict(x) - COUNTS) / 120
    assert model.coef_[2] == 0.0
    assert abs(slopes[2]) <= 0.2
    np.testing.assert_allclose(slopes[:2], -0.2 * np.sign(model.coef_[:2]), atol=1e-8)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_warm_start_begins_with_what_was_found_and_counts_one_look(fit_intercept):
    model = PoissonRegressor(fit_intercept=fit_intercept, warm_start=True).fit(X, COUNTS)
    assert model.n_iter_ > 1
    before = model.coef_.copy()
    assert model.fit(X, COUNTS).n_iter_ == 1
    np.testing.assert_allclose(model.coef_, before, rtol=1e-12)
    assert model.set_params(fit_intercept=not fit_intercept).fit(X, COUNTS).n_iter_ > 1, "that is another model"
    cold = PoissonRegressor(fit_intercept=not fit_intercept).fit(X, COUNTS)
    np.testing.assert_allclose(model.coef_, cold.coef_, rtol=1e-3, atol=1e-4)


def test_too_few_steps_are_told():
    with pytest.warns(ConvergenceWarning, match="newton-cholesky did not converge to tol=1e-10 within 1 steps"):
        PoissonRegressor(max_iter=1, tol=1e-10).fit(X, COUNTS)


def test_it_has_to_be_fitted_first():
    for use in (lambda model: model.predict(X), lambda model: model.score(X, COUNTS)):
        with pytest.raises(NotFittedError):
            use(PoissonRegressor())


def test_what_scikit_learn_is_told_of_targets():
    assert PoissonRegressor().__sklearn_tags__().target_tags.positive_only
    assert TweedieRegressor(power=1).__sklearn_tags__().target_tags.positive_only
    assert not TweedieRegressor().__sklearn_tags__().target_tags.positive_only
    assert PoissonRegressor().__sklearn_tags__().input_tags.sparse
