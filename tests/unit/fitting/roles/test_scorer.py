"""A scorer reports what Keras' ``evaluate`` says of each weights that servers have, until the run stops."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers

from dask_train.data.columns import Column, Columns
from dask_train.fitting.roles import scorer as scorer_module
from dask_train.fitting.roles.scorer import score
from dask_train.fitting.spec import VALIDATION, FitTask
from dask_train.keras_models.serialization import model_to_parts

X, Y = np.arange(18, dtype="f4").reshape(9, 2), np.arange(9, dtype="f4").reshape(9, 1)

ROWS = Columns(columns=tuple(Column(dtype=each.dtype.str, row_shape=each.shape[1:]) for each in (X, Y)))


def made():
    model = keras.Sequential([layers.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"], jit_compile=False)
    return model


class Session:
    """Has validation data, and stops when ``stops`` says so."""

    role, rank, size = "scorer", 0, 1
    peers = {"ps": ["here:1"]}  # noqa: RUF012

    def __init__(self, stops):
        self.stops, self.reports, self.global_rows = stops, [], 0
        self.notices = []
        self.num_rows, self.schema = len(X), ROWS

    def should_stop(self):
        return self.stops(self)

    def notice(self, text):
        self.notices.append(text)

    def report(self, **scores):
        self.reports.append(scores)

    def dataset(self, name):
        assert name == VALIDATION
        return self

    def whole(self):
        return self

    def some_row(self):
        raise AssertionError("it has all rows")

    def batches(self, *, batch_size, shuffle):
        assert not shuffle
        for first in range(0, len(X), batch_size):
            self.global_rows = len(X[first : first + batch_size])
            yield tuple(keras.ops.convert_to_tensor(each[first : first + batch_size]) for each in (X, Y))


class Servers:
    """Weights after so many steps, one after the other; what it raises in place of them."""

    closed = False

    def __init__(self, *told):
        self.told = list(told)
        self.seen = []

    def pull(self, seen, wait_s):
        assert 0 < wait_s <= 1
        self.seen.append(seen)
        steps = self.told.pop(0)
        if isinstance(steps, Exception):
            raise steps
        for weight in self.model.weights:
            weight.assign(np.full(weight.shape, steps / 10))
        return {"steps": steps}

    def close(self):
        self.closed = True


@pytest.fixture
def scored(monkeypatch):
    def run(servers, stops, model=None):
        header, arrays = model_to_parts(model or made())
        places = Columns(features=0, labels=1)
        task = FitTask(header=header, arrays=arrays, columns=places, validation_columns=places, validation_batch_size=4)

        def lines(_, model, __):
            servers.model = model
            return servers

        monkeypatch.setattr(scorer_module, "servers_of", lines)
        session = Session(stops)
        try:
            score(task, session)
        finally:
            assert servers.closed
        run.notices = session.notices
        return session.reports

    return run


def test_each_weights_are_scored_once_as_keras_scores_them(scored):
    servers = Servers(3, 3, 8)
    found = scored(servers, lambda session: not servers.told and len(session.reports) == 2)
    assert servers.seen == [-1, 3, 3], "it waits for others than those it has seen"
    for report, steps in zip(found, (3, 8), strict=True):
        model = made()
        for weight in model.weights:
            weight.assign(np.full(weight.shape, steps / 10))
        told = model.evaluate(X, Y, batch_size=4, return_dict=True, verbose=0)
        assert report == {"updates": steps, **{f"val_{name}": pytest.approx(value) for name, value in told.items()}}


def test_a_run_that_stops_cuts_a_validation_short_and_reports_none_of_it(scored):
    looks = []

    def stops(_):
        looks.append(None)
        return len(looks) > 2  # after the first of three batches

    assert scored(Servers(3), stops) == []
    assert len(looks) < 6, "it did not go through the rest"


@pytest.mark.parametrize("stops", [True, False])
def test_servers_that_hang_up_end_it_where_the_run_stops(scored, monkeypatch, stops):
    monkeypatch.setattr(scorer_module, "time", SimpleNamespace(sleep=lambda _: None, monotonic=iter(range(9)).__next__))
    asked = []

    def stopping(_):
        asked.append(None)
        return stops and len(asked) > 2

    if stops:
        assert scored(Servers(EOFError()), stopping) == []
    else:
        with pytest.raises(EOFError):
            scored(Servers(EOFError()), stopping)


@keras.saving.register_keras_serializable("test_scorer")
class Unused(keras.Model):
    """Has a layer that is never called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.unused = layers.Dense(2), layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)
        super().build(shape)

    def call(self, x):
        return self.dense(x)

    def evaluate(self, x, **told):
        """As Keras with torch and JAX, which builds from a batch that has another form than the model's."""
        self._symbolic_build(data_batch=(np.zeros((1, 7)), None, None))
        return super().evaluate(x, **told)


class Twice(keras.metrics.MeanSquaredError):
    def result(self):
        return keras.ops.stack([super().result()] * 2)


def test_a_metric_of_several_numbers_is_left_out_with_a_notice(scored):
    model = made()
    model.compile("sgd", "mse", metrics=[Twice(name="twice"), "mae"])
    servers = Servers(3, 8)
    found = scored(servers, lambda session: len(session.reports) == 2, model)
    assert [sorted(report) for report in found] == [["updates", "val_loss", "val_mae"]] * 2
    assert scored.notices == ["The scorer reports single numbers, which val_twice is not: it is left out."]


def test_a_layer_that_is_never_called_is_not_built(scored):
    model = Unused()
    model.compile("sgd", "mse")
    model.build((None, 2))
    assert [sorted(report) for report in scored(Servers(3), lambda session: session.reports, model)] == [
        ["updates", "val_loss"]
    ]
