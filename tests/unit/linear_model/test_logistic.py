"""Logistic regression as an estimator: labels of all kinds, chances, and what is refused."""

from __future__ import annotations

import warnings

import dask.array as da
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dask_train.linear_model import LogisticRegression
from dask_train.linear_model.logistic import _classes_of

RANDOM = np.random.default_rng(0)
X = RANDOM.normal([0.0, 1.0], size=(120, 2))
SIGNAL = X @ [1.0, -0.5]
BINARY = (SIGNAL + RANDOM.logistic(size=120) > -0.5).astype(int)
CLASSES = np.digitize(SIGNAL + RANDOM.logistic(size=120), [-1.5, 0.5])
WEIGHTS = RANDOM.integers(0, 4, 120).astype(float)
EXACT = {"tol": 1e-10, "max_iter": 500}


def on_dask(array):
    return da.from_array(array, chunks=((50, 0, 70), *array.shape[1:]))


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [False, True], [-1, 1], [2.0, 7.0], np.array(["a", "b"], object)],
    ids=["text", "truths", "signs", "floats", "objects"],
)
def test_two_labels_of_any_kind_are_sorted_and_predicted_as_they_are(labels):
    y = np.asarray(labels)[BINARY]
    model, wanted = LogisticRegression(**EXACT).fit(X, y), LogisticRegression(**EXACT).fit(X, BINARY)
    assert model.classes_.tolist() == list(labels)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 2), (1,))
    assert model.coef_.tolist() == wanted.coef_.tolist()
    found = model.predict(X)
    assert (found.dtype, set(found.tolist())) == (y.dtype, set(labels))
    assert found.tolist() == np.asarray(labels)[wanted.predict(X)].tolist()
    assert model.score(X, y) == (found == y).mean()


def test_many_classes_of_a_collection_are_taken_for_no_regression():
    y = np.arange(120) % 30
    assert _classes_of(on_dask(y)).tolist() == list(range(30))
    posed = LogisticRegression()._posed_for(2, None, y[:0], lambda: np.unique(y))
    assert posed.problem.classes.tolist() == list(range(30))
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        _classes_of(on_dask(SIGNAL))
    with pytest.warns(UserWarning, match="could represent a regression problem"):
        _classes_of(np.arange(30))


@pytest.mark.parametrize(("y", "classes"), [(BINARY, 2), (CLASSES, 3)], ids=["two classes", "three"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_gradient_of_the_penalised_sum_of_losses_is_0(y, classes, fit_intercept):
    model = LogisticRegression(C=0.2, fit_intercept=fit_intercept, **EXACT).fit(X, y, WEIGHTS)
    chances, one_hot = model.predict_proba(X), np.eye(classes)[y]
    slopes = (WEIGHTS[:, None] * (chances - one_hot)).T
    slopes = slopes[1:] if classes == 2 else slopes
    np.testing.assert_allclose(slopes @ X + model.coef_ / 0.2, 0.0, atol=1e-6)
    if fit_intercept:
        np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-6)
    else:
        assert model.intercept_.tolist() == [0.0] * len(model.coef_)


@pytest.mark.parametrize(("y", "classes"), [(BINARY, 2), (CLASSES, 3)], ids=["two classes", "three"])
def test_what_it_says_of_a_row_agrees(y, classes):
    model = LogisticRegression().fit(X, y)
    chances, confidence, labels = model.predict_proba(X), model.decision_function(X), model.predict(X)
    assert (chances.shape, confidence.shape) == ((120, classes), (120,) if classes == 2 else (120, classes))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert (labels == chances.argmax(axis=1)).all()
    assert (labels == (confidence > 0 if classes == 2 else confidence.argmax(axis=1))).all()
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(chances))
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        lazy, wanted = getattr(model, name)(on_dask(X)), getattr(model, name)(X)
        assert (lazy.shape, lazy.chunks[0], lazy.dtype) == (wanted.shape, (50, 0, 70), wanted.dtype)
        np.testing.assert_allclose(lazy.compute(), wanted, rtol=1e-12)
    assert model.score(on_dask(X), on_dask(y), on_dask(WEIGHTS)) == pytest.approx(model.score(X, y, WEIGHTS))


def test_chances_of_rows_far_away_are_0_and_1_without_a_warning():
    model = LogisticRegression().fit(X, BINARY)
    model.coef_ = np.array([[1e3, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict_proba([[1e3, 0.0], [-1e3, 0.0]]).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_weights_by_class_and_balanced_ones():
    by_hand = LogisticRegression(**EXACT).fit(X, BINARY, np.where(BINARY == 1, 3.0, 1.0))
    for class_weight in ({1: 3.0}, {0: 1.0, 1: 3.0}):
        found = LogisticRegression(class_weight=class_weight, **EXACT).fit(X, BINARY)
        np.testing.assert_allclose(found.coef_, by_hand.coef_, rtol=1e-8)
    y = np.repeat([0, 1], [100, 20])
    model = LogisticRegression(class_weight="balanced", C=1e-8, **EXACT).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=1e-6)


def test_a_penalty_that_outweighs_all_leaves_the_shares_of_the_classes():
    model = LogisticRegression(C=1e-9, **EXACT).fit(X, CLASSES, WEIGHTS)
    wanted = np.bincount(CLASSES, WEIGHTS) / WEIGHTS.sum()
    np.testing.assert_allclose(model.predict_proba(X[:3]), [wanted] * 3, atol=1e-6)


def test_no_penalty_at_all():
    free = LogisticRegression(C=np.inf, **EXACT).fit(X, BINARY)
    np.testing.assert_allclose(free.coef_, LogisticRegression(C=1e12, **EXACT).fit(X, BINARY).coef_, rtol=1e-6)


@pytest.mark.parametrize("spread", [np.asarray, on_dask], ids=["arrays", "dask"])
@pytest.mark.parametrize(
    ("y", "told"),
    [
        (np.ones(120, int), "y has one class only, .*1.*; a classifier needs two classes or more"),
        (RANDOM.normal(size=120), "Unknown label type: continuous"),
    ],
    ids=["one class", "numbers"],
)
def test_targets_that_are_no_classes_are_refused(y, told, spread):
    with pytest.raises(ValueError, match=told):
        LogisticRegression(workers=0).fit(spread(X), spread(y))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"C": 0}, "C is 0; it is a number above 0"),
        ({"C": -1.0}, r"C is -1.0"),
        ({"C": "1"}, "C is '1'"),
        ({"class_weight": "even"}, "class_weight is 'even'"),
        ({"class_weight": {"no": 1.0}}, "weights of 'no', and none of the classes 0, 1"),
        ({"l1_ratio": 2}, "l1_ratio is 2"),
        ({"solver": "saga"}, "solver is 'saga'"),
    ],
)
def test_parameters_that_can_not_be_are_refused(settings, told):
    with pytest.raises(ValueError, match=told):
        LogisticRegression(**settings).fit(X, BINARY)


def test_a_fit_that_is_refused_leaves_the_model_of_the_one_before():
    model = LogisticRegression().fit(X, np.array(["no", "yes"])[BINARY])
    wanted = model.predict(X).tolist()
    with pytest.raises(ValueError, match="below 0"):
        model.fit(X, np.array(["a", "b"])[BINARY], -np.ones(120))
    assert model.predict(X).tolist() == wanted


def test_a_warm_start_after_a_fit_that_was_refused_begins_anew():
    model = LogisticRegression(warm_start=True, class_weight={5: 1.0})
    with pytest.raises(ValueError, match="weights of 5, and none of the classes 0, 1"):
        model.fit(X, BINARY)
    model.set_params(class_weight=None).fit(X, BINARY)
    assert model.coef_.tolist() == LogisticRegression().fit(X, BINARY).coef_.tolist()


def test_a_warm_start_goes_on_with_the_same_classes_only():
    model = LogisticRegression(warm_start=True, **EXACT).fit(X, BINARY)
    assert model.n_iter_.dtype == np.int32
    assert model.n_iter_ > 0
    assert LogisticRegression(warm_start=True).fit(X, BINARY).fit(X, BINARY).n_iter_ == 1
    other = model.fit(X, CLASSES)
    np.testing.assert_allclose(other.coef_, LogisticRegression(**EXACT).fit(X, CLASSES).coef_, rtol=1e-6)
    assert model.fit(X, np.array(["no", "yes"])[BINARY]).n_iter_ > 0


def test_too_few_steps_and_classes_without_a_best_plane_are_told():
    with pytest.warns(ConvergenceWarning, match="did not converge to tol=0.0001 within 1 steps"):
        LogisticRegression(max_iter=1).fit(X, BINARY)
    with pytest.warns(ConvergenceWarning, match=r"can be separated without an error.*Pass a finite C"):
        LogisticRegression(C=np.inf).fit(X, X[:, 0] > 0.1)


def test_it_has_to_be_fitted_first():
    for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        for rows in (X, on_dask(X)):
            with pytest.raises(NotFittedError):
                getattr(LogisticRegression(), name)(rows)


def test_labels_that_can_not_be_compared_have_no_score():
    model = LogisticRegression().fit(X, BINARY)
    with pytest.raises(ValueError, match="y has labels of dtype <U3, and the classes that were learnt are of int64"):
        model.score(on_dask(X), on_dask(np.array(["no", "yes"])[BINARY]))
