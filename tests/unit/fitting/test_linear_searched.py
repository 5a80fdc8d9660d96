"""Linear models as a search trains them: what is refused, and that trials are the fits of the estimators themselves."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import log_loss

from dask_train import linear_model
from dask_train.fitting.linear import LINEAR_MODELS
from dask_train.fitting.model_kind import TrialRows
from dask_train.inputs.making import input_data
from dask_train.role.time_spent import TimeSpent

RANDOM = np.random.default_rng(0)
X, XV = RANDOM.normal(size=(200, 3)), RANDOM.normal(size=(80, 3))
NUMBERS, NUMBERS_V = (each.sum(1) + RANDOM.normal(size=len(each)) + 50 for each in (X, XV))
LABELS, LABELS_V = (np.array(["a", "b", "c"])[np.digitize(each, [49.0, 51.0])] for each in (NUMBERS, NUMBERS_V))
WEIGHTS, WEIGHTS_V = (RANDOM.integers(0, 4, len(each)).astype(float) for each in (X, XV))


class Session:
    """What a role sees of a trial: its rows in two parts."""

    world_rank, world_size, peers, attempt, num_rows, _state_memory = 0, 1, {}, 0, len(X), None

    def __init__(self, rows, validation, stops=False):
        self.rows, self.validation, self.stops, self.told = rows, validation, stops, []
        self._link = SimpleNamespace(spent=TimeSpent(), moved=lambda *_, **__: None)

    def partitions(self):
        return iter([tuple(each[at] for each in self.rows) for at in (slice(0, 50), slice(50, None))])

    def dataset(self, name):
        assert name == "validation"
        return SimpleNamespace(partitions=lambda: iter([self.validation]))

    def all_reduce(self, arrays, op="sum"):
        return arrays

    broadcast = all_gather = lambda self, arrays, *_: arrays

    def should_stop(self):
        return self.stops

    def report(self, **scores):
        self.told.append(scores)


def trial(model, rows, validation):
    data = input_data("data", *rows, *[None] * (3 - len(rows)))
    lacks = [None] * (3 - len(validation or ()))
    validated = None if validation is None else input_data("validation_data", *validation, *lacks)
    of_all = TrialRows(data=data, validation=validated, workers=1, labels=lambda: np.unique(rows[1]))
    return LINEAR_MODELS.trial(model, LINEAR_MODELS.settings(), of_all)


def trained(model, rows, validation):
    spec, session = trial(model, rows, validation), Session(rows, validation)
    outcome = spec.work(session)
    return spec.model(spec.work.as_of(outcome, 0)), session.told


@pytest.mark.parametrize(
    ("model", "y", "yv", "score"),
    [
        (linear_model.LogisticRegression(), LABELS, LABELS_V, "val_accuracy"),
        (linear_model.LogisticRegression(solver="admm"), LABELS != "a", LABELS_V != "a", "val_accuracy"),
        (linear_model.LinearRegression(), NUMBERS, NUMBERS_V, "val_r2"),
        (linear_model.Ridge(), np.c_[NUMBERS, -2 * NUMBERS], np.c_[NUMBERS_V, NUMBERS_V], "val_r2"),
        (linear_model.Lasso(0.01), NUMBERS, NUMBERS_V, "val_r2"),
        (linear_model.PoissonRegressor(fit_intercept=False), NUMBERS, NUMBERS_V, None),
    ],
)
def test_a_trial_is_a_fit_of_the_estimator_whose_scores_are_told_once(model, y, yv, score):
    found, told = trained(model, (X, y, WEIGHTS), (XV, yv, WEIGHTS_V))
    assert not hasattr(model, "coef_"), "what build returned stays as it is"
    wanted = type(model)(**model.get_params()).fit(X, y, WEIGHTS)
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.intercept_, wanted.intercept_, rtol=1e-9)
    assert [each["step"] for each in told[:-1]] == list(range(1, len(told))), "of solvers that have steps"
    last = told[-1]
    assert last["epoch"] == 0
    assert {*last} == {"epoch", "val_loss", *([score] if score else [])}
    if score is not None:
        assert last[score] == pytest.approx(wanted.score(XV, yv, WEIGHTS_V), rel=1e-9)
    if score == "val_accuracy":
        assert last["val_loss"] == pytest.approx(log_loss(yv, wanted.predict_proba(XV), sample_weight=WEIGHTS_V))
    elif score is None:
        mean = wanted.predict(XV)
        assert last["val_loss"] == pytest.approx(np.average(mean - yv * np.log(mean), weights=WEIGHTS_V))
    else:
        off = (np.reshape(yv, (len(XV), -1)) - np.reshape(wanted.predict(XV), (len(XV), -1))) ** 2
        assert last["val_loss"] == pytest.approx(np.average(off.mean(1), weights=WEIGHTS_V) / 2)


def test_a_fit_that_is_stopped_has_no_score():
    spec, session = trial(linear_model.LogisticRegression(), (X, LABELS), (XV, LABELS_V)), None
    session = Session((X, LABELS), (XV, LABELS_V), stops=True)
    spec.work(session)
    assert [sorted(each) for each in session.told] == [["loss", "step"]]


def test_names_of_frames_are_those_of_the_model():
    frame = pd.DataFrame(X, columns=["one", "two", "three"])
    data = input_data("data", frame.assign(y=NUMBERS), None, None, label="y")
    of_all = TrialRows(data=data, validation=data, workers=1)
    spec = LINEAR_MODELS.trial(linear_model.Ridge(), LINEAR_MODELS.settings(), of_all)
    outcome = spec.work(Session((X, NUMBERS), (X, NUMBERS)))
    best = spec.model(outcome.header)
    assert best.feature_names_in_.tolist() == ["one", "two", "three"]
    np.testing.assert_allclose(best.predict(frame), linear_model.Ridge().fit(X, NUMBERS).predict(X))
    data = input_data("data", X, pd.Series(NUMBERS, name="y"), None)  # a schema of the targets alone
    spec = LINEAR_MODELS.trial(linear_model.Ridge(), None, TrialRows(data=data, validation=data, workers=1))
    best = spec.model(spec.work(Session((X, NUMBERS), (X, NUMBERS))).header)
    assert not hasattr(best, "feature_names_in_")


@pytest.mark.parametrize("model", [linear_model.LogisticRegression(), linear_model.LogisticRegression(solver="admm")])
def test_categories_are_indicators_in_trials_and_in_their_best_model(model):
    kinds = pd.Categorical(
        np.array(["b", "a", "c"])[np.digitize(X[:, 0], [-0.5, 0.5])], categories=["c", "b", "a", "d"]
    )
    frame = pd.DataFrame({"one": X[:, 1], "kind": kinds, "two": X[:, 2]})
    data = input_data("data", frame, LABELS, None)
    source = data.source("data")
    data = replace(data, columns=data.columns.with_rows(source.columns))  # as a search has seen them
    codes = source.arrays[0].compute()
    assert codes[:, 1].tolist() == kinds.codes.tolist()
    rows = TrialRows(data=data, validation=data, workers=1, labels=lambda: np.unique(LABELS))
    spec = LINEAR_MODELS.trial(model, LINEAR_MODELS.settings(), rows)
    session = Session((codes, LABELS), (codes, LABELS))
    best, wanted = spec.model(spec.work(session).header), type(model)(**model.get_params()).fit(frame, LABELS)
    np.testing.assert_allclose(best.coef_, wanted.coef_, rtol=1e-6, atol=1e-9)
    assert best.feature_names_in_.tolist() == ["one", "kind[c]", "kind[b]", "kind[a]", "kind[d]", "two"]
    later = frame.assign(kind=frame["kind"].astype(str))[::-1]
    np.testing.assert_array_equal(best.predict(later), wanted.predict(later))
    assert session.told[-1]["val_accuracy"] == pytest.approx(wanted.score(frame, LABELS))


@pytest.mark.parametrize(
    ("model", "rows", "validation", "told"),
    [
        (linear_model.Ridge(), (X, NUMBERS), None, "Pass validation_data, or validation_split"),
        (linear_model.Ridge(-1), (X, NUMBERS), (XV, NUMBERS_V), "alpha is -1"),
        (linear_model.Ridge(), (X, NUMBERS), (XV[:, :2], NUMBERS_V), "validation_data has 2 features, and the data 3"),
        (
            linear_model.Ridge(),
            (X, NUMBERS),
            (XV, NUMBERS_V[:, None]),
            "validation_data has targets of shape .1,., and",
        ),
        (linear_model.Ridge(), (X, NUMBERS, WEIGHTS[:, None]), (XV, NUMBERS_V), "data: weights are one per row"),
        (linear_model.Ridge(), (X,), (XV, NUMBERS_V), "data: a linear model takes a matrix of numbers and a column"),
        (linear_model.Ridge(), (LABELS[:, None], NUMBERS), (XV, NUMBERS_V), "takes a matrix of numbers"),
        (
            linear_model.LogisticRegression(),
            (X, LABELS[:, None]),
            (XV, LABELS_V[:, None]),
            "y has the shape .0, 1.; it is .n,.,",
        ),
        (linear_model.LogisticRegression(), (X, NUMBERS > 0), (XV, NUMBERS_V > 0), "y has one class only, True"),
        (linear_model.LogisticRegression(), (X, NUMBERS), (XV, NUMBERS_V), "Unknown label type"),
        (
            linear_model.Ridge(),
            (X[:2], pd.Series(pd.Categorical(["x", "y"]), name="a")),
            (XV, NUMBERS_V),
            "data: column 'a' holds categories, whose codes are no numbers",
        ),
    ],
)
def test_what_a_search_can_not_train_is_refused_before_it_is_sent(model, rows, validation, told):
    with pytest.raises(ValueError, match=told):
        trial(model, rows, validation)


def test_labels_that_are_not_among_those_to_train_on_are_refused():
    with pytest.raises(ValueError, match="labels that the data to train on has not, such as 'z'"):
        trained(linear_model.LogisticRegression(), (X, LABELS), (XV, np.where(LABELS_V == "a", "z", LABELS_V)))
