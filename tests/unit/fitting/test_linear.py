"""``fit`` of linear models, in this process: settings, steps, checkpoints and results."""

from __future__ import annotations

import math
from types import SimpleNamespace

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import dask_train as dt
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.data.segment import Segment
from dask_train.errors import CheckpointError
from dask_train.linear_model import ElasticNet, LogisticRegression, PoissonRegressor, Ridge
from dask_train.shared_data.segments import SharedSegments

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(200, 3))
Y = (X[:, 0] + RANDOM.logistic(size=200) > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abc")).assign(y=Y, w=RANDOM.integers(1, 3, 200))
# A published data set of one column.
FEATURES_ALONE = SimpleNamespace(
    segments=SharedSegments(
        schema=Columns(columns=(Column(dtype="<f8", row_shape=(3,)),), is_tuple=False),
        lengths=np.array([10]),
        futures=(),
    )
)


def model(**settings):
    return LogisticRegression(**{"solver": "gradient_descent", "tol": 1e-9, "max_iter": 500, **settings})


def fitted(estimator, **settings):
    return dt.fit(estimator, X, Y, workers=0, **settings)


def after(steps):
    """A rule to stop by that is met with so many steps."""
    return lambda scores: len(scores) >= steps


def test_the_estimator_is_fitted_as_by_its_own_fit():
    result = fitted(found := model())
    wanted = model().fit(X, Y)
    np.testing.assert_array_equal(found.coef_, wanted.coef_)
    assert result.model is found
    assert result.epoch == list(range(found.n_iter_[0]))
    assert len(result.history["loss"]) == len(result.epoch)
    assert result.history["loss"] == sorted(result.history["loss"], reverse=True)
    assert [(score["step"], score["loss"]) for score in result.scores] == list(enumerate(result.history["loss"], 1))
    assert (result.ledger.trained, result.ledger.repeated, math.isnan(result.waiting_s)) == (200, 0, True)
    assert "steps" in repr(result)


@pytest.mark.parametrize("estimator", [model(), model(solver="lbfgs"), ElasticNet(0.05, tol=1e-9)], ids=str)
def test_what_was_stopped_resumes_to_the_same_bits(tmp_path, estimator):
    whole = fitted(estimator.set_params(warm_start=False))
    wanted = estimator.coef_.tobytes(), estimator.n_iter_
    steps = 1 if isinstance(estimator, ElasticNet) else 3
    cut = fitted(estimator, stop=after(steps), checkpoint=tmp_path)
    if not isinstance(estimator, ElasticNet):  # of squares one step is all
        assert len(cut.epoch) == 3 < len(whole.epoch)
        assert cut.stop_reason
        assert estimator.coef_.tobytes() != wanted[0], "as it was when it stopped, without a warning"
    result = fitted(estimator.set_params(max_iter=501), checkpoint=tmp_path, resume=True)
    assert (estimator.coef_.tobytes(), estimator.n_iter_) == wanted
    assert (result.history, result.epoch) == (whole.history, whole.epoch)


class Held(Segment):
    """One that stands in for its future."""

    key = "part"


def test_the_columns_of_a_published_frame_are_the_schema(pool):
    columns = (Column(dtype="<f8", row_shape=(3,)), Column(dtype="<i8", row_shape=()))
    frames = (FrameSchema.of(FRAME[["a", "b", "c"]]), None)
    held = SharedSegments(
        schema=Columns.of_batch(2, columns), lengths=np.array([200]), futures=[Held([X, Y])], frames=frames
    )
    result = dt.fit(model(max_iter=5, tol=1.0), SimpleNamespace(segments=held), workers=0)
    assert result.schema == frames[0]


def test_what_resumes_where_its_rule_was_met_takes_no_step_and_misses_no_score(tmp_path):
    rule = {"stop": "loss < 0.65", "checkpoint": tmp_path}
    cut = fitted(model(), **rule)
    again = fitted(model(), **rule, resume=True)
    assert (again.history, again.notices) == (cut.history, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"estimator": model(C=2.0)}, r"C was '1.0', and is '2.0'"),
        ({"estimator": PoissonRegressor()}, "model was 'LogisticRegression', and is 'PoissonRegressor'"),
        ({"Y": 1 - Y}, r"data\.y was"),
        ({"X": X[:, :2]}, "num_features was 3, and is 2"),
        ({"X": X[:100], "Y": Y[:100]}, r"data\.rows was 200, and is 100"),
    ],
    ids=["a parameter", "another model", "other labels", "other features", "fewer rows"],
)
def test_a_checkpoint_of_something_else_is_refused(tmp_path, change, told):
    fitted(model(), checkpoint=tmp_path)
    changed = {"estimator": model(), "X": X, "Y": Y, **change}
    with pytest.raises(CheckpointError, match=told):
        dt.fit(changed["estimator"], changed["X"], changed["Y"], workers=0, checkpoint=tmp_path, resume=True)


def test_columns_of_a_frame_are_named(tmp_path):
    wanted = model().fit(FRAME[["a", "b", "c"]], Y, FRAME["w"])
    by_name = {"label": "y", "sample_weight": "w"}
    for columns, width in (({}, 3), ({"features": ["a", "b", "c"]}, 3), ({"features": "b"}, 1)):
        result = dt.fit(found := model(), FRAME, workers=0, **by_name, **columns)
        assert found.coef_.shape == (1, width)
        assert [column.name for column in result.schema.columns] == (["b"] if width == 1 else ["a", "b", "c"])
        assert [column.name for column in result.schema.targets] == ["y"]
        result.save(tmp_path / "model")
        saved = dt.predict(tmp_path / "model", FRAME).compute(scheduler="threads")  # other columns are left out
        assert saved.tolist() == found.predict(FRAME[list(found.feature_names_in_)]).tolist()
        score = found.score(FRAME[list(found.feature_names_in_)], Y)
        assert dt.evaluate(tmp_path / "model", FRAME)["accuracy"] == pytest.approx(score)
    found = dt.fit(model(), FRAME, workers=0, **by_name).model
    np.testing.assert_allclose(found.coef_, wanted.coef_)
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("spread", [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=2)])
def test_names_of_columns_may_be_whole_numbers(spread):
    rows = pd.DataFrame(np.column_stack([Y, X, FRAME["w"]]))  # the label is 0, and the weights 4
    frame, wanted = spread(rows), Ridge().fit(X, Y, FRAME["w"])
    for columns in ({}, {"features": [1, 2, 3]}):
        found = dt.fit(Ridge(), frame, label=0, sample_weight=4, workers=0, **columns).model
        np.testing.assert_allclose(found.coef_, wanted.coef_)
        np.testing.assert_allclose(dt.predict(found, frame).compute(scheduler="sync"), wanted.predict(X))
        r2 = dt.evaluate(found, frame, label=0, sample_weight=4)["r2"]
        assert r2 == pytest.approx(wanted.score(X, Y, FRAME["w"]))
    beside = dt.fit(Ridge(), frame[[1, 2, 3, 4]], frame[0], sample_weight=4, workers=0).model
    np.testing.assert_allclose(beside.coef_, wanted.coef_)
    assert dt.fit(Ridge(), frame, features=1, label=0, workers=0).model.coef_.shape == (1,)
    assert dt.fit(Ridge(), frame, features=1, label=[0, 2], workers=0).model.coef_.shape == (2, 1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": Ridge(), "checkpoint": "there"}, "Ridge is fitted in one pass over the rows"),
        ({"model": Ridge(), "stop": "loss < 1"}, "there is no step at which stop could act"),
        ({"model": Ridge(), "recovery": "in_place"}, "there is no step at which recovery='in_place' could act"),
        ({"checkpoint": dt.Checkpoint("there", best="loss", mode="min")}, "Leave best out"),
        ({"stop": "los < 1"}, r"scores are loss. Did you mean 'loss'\?"),
        ({"stop": "val_loss < 1"}, "val_loss, which nothing computes"),
        ({"y": None}, "needs targets"),
        ({"x": FEATURES_ALONE, "y": None}, "takes a matrix of numbers and a column of targets"),
        ({"x": FEATURES_ALONE}, "has inputs, targets and weights together"),
        ({"label": "y"}, "x is a ndarray, not a frame"),
        ({"x": FRAME, "label": "y"}, "Targets are given twice"),
        ({"x": FRAME, "y": None, "label": "z"}, "has no column 'z'"),
        ({"x": FRAME, "y": None, "label": "y", "features": ["a", "y"]}, "is the label and one of the features"),
        ({"x": FRAME, "y": None, "label": {"out": "y"}}, "not dicts"),
        ({"workers": -1}, "workers is -1"),
    ],
)
def test_what_can_not_be_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        dt.fit(**{"model": model(), "x": X, "y": Y, "workers": 0, **given})


@pytest.mark.parametrize("stop", ["loss < 0.3", dt.Patience("loss", 3), ["seconds > 9", "loss < 1"]], ids=str)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_rule_that_looks_at_the_loss_of_several_targets_is_refused(stop, lazy):
    x, y = (da.from_array(each, chunks=50) if lazy else each for each in (X, np.column_stack([X[:, 0], X[:, 1]])))
    with pytest.raises(ValueError, match="stop looks at loss, and y has 2 columns"):
        dt.fit(ElasticNet(0.1), x, y, workers=0, stop=stop)
    assert dt.fit(ElasticNet(0.1), x, y[:, :1], workers=0, stop=stop).model.coef_.shape == (3,)


def test_targets_that_were_not_begun_when_a_fit_was_stopped_are_named():
    y = np.column_stack([X[:, 0], X[:, 1], X[:, 2]])
    with pytest.warns(ConvergenceWarning, match=r"stopped before the targets 1, 2 of 3 were begun"):
        result = dt.fit(ElasticNet(0.1), X, y, workers=0, stop=after(1))
    assert result.model.coef_[0].any()
    assert not result.model.coef_[1:].any()


def test_how_long_to_train_is_the_estimators():
    with pytest.raises(TypeError, match="The number of steps is at most the estimator's max_iter"):
        dt.fit(model(), X, Y, epochs=3)


def test_a_model_of_one_pass_has_no_steps(tmp_path):
    rows = da.from_array(X, chunks=50)
    result = dt.fit(found := Ridge(), rows, X @ [1.0, 2.0, 3.0], workers=0)
    np.testing.assert_allclose(found.coef_, Ridge().fit(X, X @ [1.0, 2.0, 3.0]).coef_)
    assert (result.history, result.epoch) == ({}, [])


def test_wrong_rows_are_refused_and_leave_no_model():
    with pytest.raises(ValueError, match="NaN or infinite"):
        dt.fit(found := model(), da.from_array(np.where(X > 2, np.nan, X), chunks=50), Y, workers=0)
    with pytest.raises(NotFittedError):
        found.predict(X)
