"""Models that answer in the process of whoever asks: estimators and functions, and what does not travel."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.data.columns import Column, Columns
from dask_train.predicting.server import in_process
from dask_train.predicting.server.in_process import LocalModel, ObjectModel
from dask_train.predicting.server.values import Call
from dask_train.settings.process import Settings

ROWS = np.arange(6.0).reshape(3, 2)
FRAME = pd.DataFrame(ROWS, columns=["a", "b"], index=[7, 5, 6])
ONE = Column(dtype="<f8", row_shape=())


def call(layout: Any = 0, output: Column = ONE, verb: str = "predict") -> Call:
    column = Column(dtype="<f4", row_shape=(2,))
    return Call(verb=verb, columns=Columns(features=layout).with_rows([column]), outputs=(output,), batch_size=2)


def of(made: Any, method: str | None = None) -> ObjectModel:
    return ObjectModel(made, method, "made", "token", Settings())


class Scaled:
    """Has an array, which is sent beside the pickle."""

    def __init__(self, size: int = 100_000) -> None:
        self.weights = np.ones(size)

    def twice(self, x: Any) -> Any:
        return 2 * x[:, 0] * self.weights[0]


# Estimators and functions


@pytest.mark.parametrize(
    ("layout", "function"),
    [(0, lambda x: x[:, 0]), ((0, 1), lambda x, y: x[:, 0]), ({"x": 0, "y": 1}, lambda *, y, x: x[:, 0])],
)
def test_inputs_are_given_as_they_were(layout, function):
    assert of(function).ask(call(layout), [ROWS, ROWS], "here")[0].tolist() == [0, 2, 4]


def test_a_block_without_rows_is_not_asked_of():
    def fails(_: Any) -> Any:
        raise AssertionError

    assert of(fails).ask(call(), [ROWS[:0]], "here")[0].shape == (0,)


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x[:1, 0], r"made, on block 7, made an array of shape \(1,\) of 3 rows"),
        (lambda x: (x[:, 0], x), "made, on block 7, made a tuple of 2 of 3 rows, and one array of sample rows"),
        (lambda x: x[:, 0].astype(complex), "made complex128, and float64 was told before"),
    ],
)
def test_what_is_not_as_planned_is_refused_by_its_block(function, says):
    with pytest.raises(ValueError, match=says):
        of(function).ask(call(), [ROWS], "block 7")


def test_rows_of_pandas_in_another_order_are_not_taken_by_their_place():
    assert of(lambda x: x["a"]).ask(call(), [FRAME], "here")[0].tolist() == [0, 2, 4]
    assert of(lambda x: x["a"].to_numpy()).ask(call(), [FRAME], "here")[0].tolist() == [0, 2, 4]
    assert of(lambda x: x["a"].reset_index(drop=True)).ask(call(), [FRAME], "here")[0].tolist() == [0, 2, 4]
    for function in (lambda x: x["a"].sort_index(), lambda x: x["a"].set_axis([1, 2, 3])):
        with pytest.raises(ValueError, match="returned rows of another index, or in another order"):
            of(function).ask(call(), [FRAME], "here")


def test_a_model_travels_whole_and_is_opened_once():
    sent = of(Scaled(), "twice")
    arrived = pickle.loads(pickle.dumps(sent))
    assert arrived.classes is None
    assert arrived.opened().__self__ is arrived.opened().__self__
    assert arrived.ask(call(), [ROWS], "here")[0].tolist() == [0, 4, 8]
    again = pickle.loads(pickle.dumps(arrived))
    assert again.ask(call(), [ROWS], "here")[0].tolist() == [0, 4, 8], "also from one Dask worker to the next"
    assert sent.__dask_tokenize__() == again.__dask_tokenize__()


def test_its_size_is_that_of_what_travels():
    sent = of(Scaled(), "twice")
    assert len(sent.pickled) < 10_000
    assert sent.__sizeof__() > 800_000


def test_several_tasks_open_it_once(in_threads):
    arrived = pickle.loads(pickle.dumps(of(Scaled(), "twice")))
    begin = threading.Barrier(4)

    def opened() -> Any:
        begin.wait(60)
        return arrived.opened().__self__

    assert len(set(map(id, in_threads(*[opened] * 4)))) == 1


# Models of this process


class Runner:
    """Counts how many ask it at a time."""

    def __init__(self) -> None:
        self.inside, self.most, self.seen = 0, 0, []

    def predict(self, asked: Call, columns: Any, out: Any, beat: Any) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        beat()
        self.seen.append((columns[0].dtype.str, columns[0].flags.c_contiguous))
        out[0][...] = columns[0][:, 0]
        self.inside -= 1

    def evaluate(self, asked: Call, columns: Any, beat: Any) -> Any:
        return ["counts"]

    def logs(self, asked: Call, columns: Any, beat: Any) -> Any:
        return {"loss": 1.0}


@pytest.fixture
def local(monkeypatch):
    runner = Runner()
    monkeypatch.setattr(in_process, "runner_of", lambda _: runner)
    return runner, LocalModel("a model", "mine", "token", Settings())


def test_a_model_of_this_process_answers_one_at_a_time_in_its_own_dtypes(local, in_threads):
    runner, model = local
    found = in_threads(*[lambda: model.ask(call(), [np.asfortranarray(ROWS)])] * 4)
    assert [each[0].tolist() for each in found] == [[0, 2, 4]] * 4
    assert runner.most == 1
    assert set(runner.seen) == {("<f4", True)}
    assert model.ask(call(verb="evaluate"), [ROWS]) == ["counts"]
    assert model.ask(call(verb="logs"), [ROWS]) == {"loss": 1.0}


def test_it_does_not_travel_and_says_so_where_it_is_asked(local):
    arrived = pickle.loads(pickle.dumps(local[1]))
    with pytest.raises(TypeError, match=r"Model 'mine' was given to dask_train\.predict when there was no Dask client"):
        arrived.ask(call(), [ROWS])
