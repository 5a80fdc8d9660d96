"""A model of a family fitted by ranks: weights of classes, where it begins, and what it says of its end."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from dask_train.linear_model import sampling
from dask_train.linear_model.families import Family, Logistic, Multinomial, Tweedie
from dask_train.linear_model.fitting import Task
from dask_train.linear_model.ranks import Alone

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([0.0, 2.0], size=(90, 2))
SIGNAL = X @ [1.0, -0.5]
LETTERS = np.where(SIGNAL + RANDOM.logistic(size=90) > -0.5, "b", "a")
CLASSES = np.array(["x", "y", "z"])[np.digitize(SIGNAL + RANDOM.logistic(size=90), [-1.5, 0.5])]
WEIGHTS = RANDOM.integers(0, 4, 90).astype(float)


def task(family, **settings):
    known = {"num_features": 2, "fit_intercept": True, "alpha": 0.1, "of_sum": False}
    known |= {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 100}
    return Task(family=family, **known | settings)


def binary(**settings):
    return task(Logistic(), classes=np.array(["a", "b"]), **settings)


def several(**settings):
    return task(Multinomial(3), classes=np.array(["x", "y", "z"]), **settings)


def gradient(fitted, y, weights, alpha):
    """Of the mean loss of two classes, with its penalty; by hand."""
    slopes = weights * (expit(X @ fitted.coef[0, :2] + fitted.coef[0, 2]) - (y == "b"))
    return [*(X.T @ slopes / weights.sum() + alpha * fitted.coef[0, :2]), slopes.sum() / weights.sum()]


@pytest.mark.parametrize("weights", [np.ones(90), WEIGHTS], ids=["", "weights"])
def test_labels_are_fitted_as_the_numbers_of_their_classes(weights):
    found = binary()(Alone(X, LETTERS, weights))
    assert (found.coef.shape, found.converged, found.separable) == ((1, 3), True, False)
    np.testing.assert_allclose(gradient(found, LETTERS, weights, 0.1), 0.0, atol=1e-8)


def test_a_penalty_beside_the_sum_is_one_beside_the_mean_divided_by_the_weight_of_all_rows():
    of_sum = binary(alpha=0.1 * WEIGHTS.sum(), of_sum=True)(Alone(X, LETTERS, WEIGHTS))
    np.testing.assert_allclose(of_sum.coef, binary()(Alone(X, LETTERS, WEIGHTS)).coef, rtol=1e-9)


def test_weights_of_classes_multiply_those_of_their_rows():
    found = binary(class_weight={"a": 3.0})(Alone(X, LETTERS, WEIGHTS))
    by_hand = binary()(Alone(X, LETTERS, WEIGHTS * np.where(LETTERS == "a", 3.0, 1.0)))
    np.testing.assert_allclose(found.coef, by_hand.coef, rtol=1e-9)


@pytest.mark.parametrize("weights", [np.ones(90), WEIGHTS], ids=["", "weights"])
def test_balanced_classes_count_alike(weights):
    found = several(class_weight="balanced")(Alone(X, CLASSES, weights))
    of_each = {label: weights.sum() / (3 * weights[label == CLASSES].sum()) for label in "xyz"}
    by_hand = several(class_weight=of_each)(Alone(X, CLASSES, weights))
    np.testing.assert_allclose(found.coef, by_hand.coef, rtol=1e-9)


def test_classes_are_balanced_over_all_ranks(ranks_of):
    order = np.argsort(CLASSES)  # each rank has other classes
    x, y = X[order], CLASSES[order]
    parts = [[(x[:20], y[:20]), (x[20:21], y[20:21])], [], [(x[21:], y[21:])]]
    wanted = several(class_weight="balanced")(Alone(X, CLASSES)).coef
    for found in ranks_of(parts, several(class_weight="balanced")):
        np.testing.assert_allclose(found.coef, wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_coefficients_of_several_classes_come_to_0_over_them(alpha):
    found = several(alpha=alpha, start=np.arange(9.0))(Alone(X, CLASSES))
    np.testing.assert_allclose(found.coef.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(found.coef, several(alpha=alpha)(Alone(X, CLASSES)).coef, rtol=1e-6, atol=1e-8)


def test_where_it_begins_is_the_callers_and_stays_as_it_is():
    start = np.arange(9.0)
    found = several(start=start, tol=1e9)(Alone(X, CLASSES))
    assert (found.steps, start.tolist()) == (0, list(range(9)))
    np.testing.assert_allclose(found.coef.sum(axis=0), 0.0, atol=1e-12)


def test_where_absolute_values_are_penalised_only_intercepts_come_to_0():
    found = several(l1_ratio=1.0, alpha=0.05, solver="newton-cd")(Alone(X, CLASSES))
    assert (found.coef[:, :2] == 0).any(), "what is 0 stays that"
    assert found.coef[:, 2].sum() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "is_separable"),
    [(np.where(X[:, 0] > 0.1, "b", "a"), True), (LETTERS, False)],
    ids=["divided", "mixed"],
)
@pytest.mark.parametrize("alpha", [0.0, 1e-6])
def test_classes_that_a_plane_divides_have_no_best_coefficients_without_a_penalty(labels, is_separable, alpha):
    found = binary(alpha=alpha)(Alone(X, labels))
    assert found.separable == (is_separable and alpha == 0)
    assert np.isfinite(found.coef).all()


def test_several_classes_that_planes_divide():
    labels = np.array(["x", "y", "z"])[np.digitize(X[:, 0], [-0.3, 0.3])]
    assert several(alpha=0.0, max_iter=200)(Alone(X[:, :1] * [1.0, 0.0], labels)).separable
    assert not several(alpha=0.0)(Alone(X, CLASSES)).separable


def test_rows_that_do_not_count_are_on_no_side():
    labels = np.where(X[:, 0] > 0.1, "b", "a")
    wrong = labels.copy()
    wrong[7] = "a" if labels[7] == "b" else "b"
    weights = np.ones(90)
    assert not binary(alpha=0.0)(Alone(X, wrong, weights)).separable
    weights[7] = 0.0
    assert binary(alpha=0.0)(Alone(X, wrong, weights)).separable


def test_one_rank_sees_that_classes_are_not_divided(ranks_of):
    order = np.argsort(X[:, 0])
    x, labels = X[order], np.where(X[order, 0] > 0.1, "b", "a")
    labels[3] = "b"
    parts = [[(x[:80], labels[:80])], [(x[80:], labels[80:])]]  # the second one has all on their side
    assert [each.separable for each in ranks_of(parts, binary(alpha=0.0))] == [False, False]


@pytest.mark.parametrize("family", [Family(), Tweedie(1), Tweedie(2)], ids=["squares", "poisson", "gamma"])
def test_numbers_begin_at_their_mean_where_there_is_an_intercept(family):
    y = np.full(90, 7.0)
    found = task(family)(Alone(X, y, WEIGHTS))
    assert (found.steps, found.converged) == (0, True), "nothing is left to do"
    np.testing.assert_allclose(found.coef, [[0.0, 0.0, family.link(7.0)]], rtol=1e-12, atol=1e-14)
    assert task(family, fit_intercept=False)(Alone(X, y)).coef.shape == (1, 2)


def test_it_begins_at_the_coefficients_that_it_is_given_unless_they_are_of_another_model():
    y = RANDOM.poisson(np.exp(SIGNAL / 2)).astype(float)
    at = task(Tweedie(1))(Alone(X, y)).coef
    again = task(Tweedie(1), start=at, tol=1e-8)(Alone(X, y))
    assert (again.coef.tobytes(), again.steps) == (at.tobytes(), 0)
    other = task(Tweedie(1), start=np.full(2, 1e3))(Alone(X, y))
    np.testing.assert_allclose(other.coef, at, rtol=1e-8)


@pytest.mark.parametrize(
    ("family", "y", "told"),
    [(Tweedie(1), -1.0, "y are below 0"), (Tweedie(2), 0.0, "y are not above 0"), (Family(), np.nan, "y has values")],
)
def test_targets_that_can_not_be_are_refused(family, y, told):
    with pytest.raises(ValueError, match=told):
        task(family)(Alone(X, np.full(90, y)))


@pytest.mark.parametrize("alpha", [0.0, 0.1])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_where_no_row_counts_it_is_refused(alpha, class_weight):
    with pytest.raises(ValueError, match="so no row counts"):
        binary(alpha=alpha, class_weight=class_weight)(Alone(X, LETTERS, np.zeros(90)))


def test_of_squares_no_sample_is_drawn_as_one_step_is_the_whole_way(monkeypatch):
    drawn = []
    monkeypatch.setattr("dask_train.linear_model.fitting.sample_of", lambda *given: drawn.append(given[2:]))
    assert task(Family())(Alone(X, SIGNAL)).steps == 1
    assert drawn == []
    binary()(Alone(X, LETTERS, WEIGHTS))
    assert drawn == [(90, 3)], "rows and coefficients"
    assert sampling.FEWEST_ROWS > 90
