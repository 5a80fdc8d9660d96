"""What searches over estimators make of their arguments; where they would go on to the cluster they stop here."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import optuna
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import dask_train as dt
from dask_train.errors import CheckpointError
from dask_train.searching import with_optuna
from dask_train.searching.estimators import api
from dask_train.searching.going_on import SearchState
from dask_train.searching.kept import kept_search

X, Y = np.zeros((20, 3)), np.arange(20) % 2
FRAME = pd.DataFrame(X, columns=list("abc")).assign(y=Y, w=1.0)
NUMBERED = FRAME.set_axis(range(5), axis=1)


class OpenedError(Exception):
    """All is well so far."""


@pytest.fixture
def opened(monkeypatch):
    """The data that a search has asked a cluster for."""
    found = {}

    @contextmanager
    def there(data, *_):
        found.update(data)
        raise OpenedError
        yield

    for verb in (api, with_optuna):
        monkeypatch.setattr(verb, "opened", there)
    return found


def grid(estimator=None, x=X, y=Y, **more):
    return dt.search(estimator or LogisticRegression(), x, y, **{"params": {"C": [1.0, 2.0]}, **more})


def trials(build=lambda trial: LogisticRegression(), x=X, y=Y, **more):
    return dt.search(build, x, y, **{"scoring": "accuracy", **more})


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"estimator": LogisticRegression}, TypeError, "params= is of an estimator, .* Pass one that is made"),
        ({"estimator": 3}, TypeError, "build is 3"),
        ({"params": []}, ValueError, r"params=\[\] has no points"),
        ({"params": {"D": [1]}}, ValueError, "Invalid parameter 'D'"),
        ({"concurrency": 0}, ValueError, "concurrency is 0"),
        ({"scoring": ["accuracy", "f1"]}, ValueError, "refit=True: of several scores, name the one that counts"),
        ({"checkpoint": dt.Checkpoint("kept", every_steps=3)}, ValueError, "every_steps=3 is of trials that keep"),
        ({"checkpoint": dt.Checkpoint("kept", best="val_loss")}, ValueError, "known by 'val_loss', and each one of a"),
        ({"validation_data": (X, Y)}, ValueError, "^validation_data=.{1,99} is not of a search over a grid"),
        ({"epochs": 7}, ValueError, "epochs=7 is not of a search over a grid"),
        (
            {"estimator": KNeighborsClassifier(), "params": {"n_neighbors": [3]}, "sample_weight": FRAME["w"]},
            ValueError,
            "There are sample weights, and KNeighborsClassifier takes none",
        ),
    ],
)
def test_what_can_not_be_a_grid(opened, settings, error, told):
    with pytest.raises(error, match=told):
        grid(**settings)
    assert opened == {}


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"build": LogisticRegression()}, TypeError, "pass a function of an optuna trial, or params= for a grid"),
        ({"trials": 0}, ValueError, "trials is 0"),
        ({"scoring": ("accuracy", "f1")}, ValueError, "a search follows one score"),
        ({"validation_data": (X, Y), "cv": 3}, ValueError, "There are validation_data and cv; "),
        ({"validation_data": (X, Y), "groups": Y}, ValueError, "There are validation_data and groups, which"),
        ({"validation_data": ()}, ValueError, "validation_data is features, targets and perhaps weights"),
        ({"validation_data": (X, Y, Y, Y)}, ValueError, "validation_data is features, targets and perhaps weights"),
        ({"validation_data": (X,)}, ValueError, "validation_data has no targets, and the data has some"),
        ({"validation_data": (X, Y), "y": None}, ValueError, "validation_data has some targets, and the data has none"),
        ({"checkpoint": dt.Checkpoint("kept", every_steps=3)}, ValueError, "every_steps=3 is of trials that keep"),
        ({"refit": False}, ValueError, "refit=False is not of a search over estimators"),
        ({"study": optuna.create_study(), "direction": "maximize"}, ValueError, "is there to minimize, and direction"),
    ],
)
def test_what_can_not_be_trials(opened, settings, error, told):
    with pytest.raises(error, match=told):
        trials(**settings)
    assert opened == {}


@pytest.mark.parametrize(
    ("settings", "weighted"),
    [
        ({"x": X, "y": Y, "validation_data": [X[:5], Y[:5]]}, False),
        ({"x": X, "y": Y, "sample_weight": Y, "validation_data": (X, Y)}, False),
        ({"x": X, "y": Y, "validation_data": (X, Y, Y)}, True),
        ({"x": FRAME, "label": "y", "sample_weight": "w", "validation_data": FRAME[list("wycba")]}, True),
        ({"x": NUMBERED, "label": 3, "sample_weight": 4, "validation_data": NUMBERED[[4, 3, 2, 1, 0]]}, True),
        ({"x": FRAME[list("abc")], "y": FRAME["y"], "validation_data": (FRAME[list("cba")], FRAME["y"])}, False),
        ({"x": FRAME, "label": "y", "features": ["c", "a"], "validation_data": FRAME}, False),
        ({"x": FRAME[list("abc")], "y": FRAME["y"], "validation_data": (FRAME, FRAME["y"], FRAME["w"])}, True),
    ],
)
def test_validation_has_the_features_of_the_data_in_their_order_and_weights_of_its_own(opened, settings, weighted):
    with pytest.raises(OpenedError):
        trials(**{"y": None, **settings})
    layouts = [opened[name].columns for name in ("data", "validation_data")]
    assert layouts[0].features == layouts[1].features
    assert (layouts[1].weights is not None) == weighted
    if isinstance(layouts[0].features, dict):
        names = [[column.name for column in opened[name].value][: len(layouts[0].features)] for name in opened]
        assert names[0] == names[1] == list(layouts[0].features)


def test_estimators_without_targets_have_none_of_validation(opened):
    with pytest.raises(OpenedError):
        trials(lambda trial: KMeans(2), y=None, validation_data=X, scoring=lambda model, features: 0.0)
    assert [each.columns.labels for each in opened.values()] == [None, None]


def test_scores_of_folds_are_not_compared_with_those_of_validation_rows(tmp_path):
    def kept(*, resume, **scored_on):
        settings = api.TrialsSettings(scoring="accuracy", **scored_on)
        subject = api.OverEstimators(build=None, settings=settings, data={})
        return kept_search(dt.Checkpoint(tmp_path / "kept"), subject.fixed(), SearchState, resume=resume)

    nothing = {"trials": [], "places": {}, "unfinished": [], "num_begun": 0, "is_stopped": False, "ended": []}
    with kept(resume=False, cv=5) as first:
        first.save(SearchState(study_name="it", sampler=None, ending=None, warnings={}, best=None, **nothing), None)
    with kept(resume=True, cv=5):
        pass
    with (
        pytest.raises(CheckpointError, match="scored on was 'folds', and is 'validation_data'"),
        kept(resume=True, validation_data=(X, Y)),
    ):
        pass
