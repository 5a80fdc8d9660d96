"""Blocks in, blocks out: what goes to a model, and what comes of it."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dask_train.config import PredictLimits
from dask_train.data.columns import Column, Columns
from dask_train.predicting import tasks
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.values import Call, ModelParts
from dask_train.predicting.tasks import (
    answered,
    array_block,
    chosen,
    frame_block,
    logs,
    predicted_block,
    scored_block,
    series_or_frame,
)
from dask_train.settings.process import Settings

LIMITS = PredictLimits.from_dask_config()
ROWS = np.arange(6.0).reshape(3, 2)
ONE, PAIR = Column(dtype="<f8", row_shape=()), Column(dtype="<f8", row_shape=(2,))


def call(*outputs: Column, columns: tuple[Column, ...] = (PAIR,), verb: str = "predict") -> Call:
    return Call(verb=verb, columns=Columns.of_batch(1).with_rows(columns), outputs=outputs or (ONE,), batch_size=2)


def function(made: Any) -> ObjectModel:
    return ObjectModel(made, None, "made", "token", Settings())


class Model:
    """One that travels as it is; sums rows."""

    def __init__(self) -> None:
        self.asked: list[tuple[Call, list[np.ndarray]]] = []
        self.settings = Settings()

    def ask(self, call: Call, arrays: list[np.ndarray]) -> Any:
        self.asked.append((call, arrays))
        return [arrays[0].sum(axis=1), arrays[0]] if call.verb == "predict" else {"loss": 0.5}


def test_a_block_of_arrays_becomes_one_or_a_tuple():
    assert array_block(call(), LIMITS, "token", Model(), (0,), [[ROWS]]).tolist() == [1.0, 5.0, 9.0], (
        "Dask gives blocks in lists"
    )
    both = array_block(call(ONE, PAIR), LIMITS, "token", Model(), (0,), ROWS)
    assert isinstance(both, tuple)
    assert (chosen(0, both).tolist(), chosen(1, both).tolist()) == ([1.0, 5.0, 9.0], ROWS.tolist())


def test_masks_are_refused_and_not_lost():
    with pytest.raises(TypeError, match=r"A block has a masked array, whose mask would be lost; fill it first"):
        array_block(call(), LIMITS, "token", Model(), (0,), np.ma.masked_array(ROWS, ROWS > 3))


def test_a_block_without_rows_asks_no_model():
    model = Model()
    found = answered(call(ONE, PAIR), LIMITS, model, [np.empty((0, 2))])
    assert [each.shape for each in found] == [(0,), (0, 2)]
    assert model.asked == []


def test_rows_of_another_shape_than_was_told_are_refused():
    with pytest.raises(ValueError, match=r"Array 0 of a block has rows of shape \(3,\)"):
        answered(call(), LIMITS, Model(), [np.zeros((2, 3))])


@pytest.fixture
def dask_worker(monkeypatch):
    """A Dask worker with a model process, in which a task runs."""
    asked: list[Any] = []
    keys = ["block-7"]
    worker = SimpleNamespace(
        keys=keys, get_current_task=lambda: keys[-1], address="tcp://1.2.3.4:5", state=SimpleNamespace(nthreads=2)
    )
    processes = SimpleNamespace(ask=lambda *given: asked.append(given) or ["an answer"])
    monkeypatch.setattr(tasks, "get_worker", lambda: worker)
    monkeypatch.setattr(tasks.ModelProcesses, "of", lambda found: processes if found is worker else None)
    asked.append(worker)
    return asked


def test_what_is_random_in_a_model_depends_on_the_block_alone(dask_worker):
    parts = ModelParts(kind="keras", name="m", token="t", header=b"", arrays=[], opened_bytes=0)  # noqa: S106
    for _ in range(2):
        assert answered(call(), LIMITS, parts, [ROWS]) == ["an answer"]
    _, (model, limits, first, arrays, where), second = dask_worker
    assert (model, limits, where) == (parts, LIMITS, "block block-7")
    assert arrays[0] is ROWS
    assert first.block_seed == second[2].block_seed is not None


def test_what_is_random_does_not_depend_on_how_tasks_are_put_together(dask_worker):
    parts = ModelParts(kind="keras", name="m", token="t", header=b"", arrays=[], opened_bytes=0)  # noqa: S106
    worker, reads = dask_worker.pop(), [{"piece": 0, "columns": [{"how": "text", "name": "t"}], "matrix": None}]
    text = call(columns=(Column(dtype="|O", row_shape=()),))
    for key in (("predict", 3), ("mean_chunk-predict", 3)):
        worker.keys.append(key)
        for token, place in (("one", 3), ("one", 4), ("other", 3)):
            array_block(call(), LIMITS, token, parts, (place,), ROWS)
        with suppress(AttributeError):  # of what this model answers
            frame_block(text, LIMITS, "one", reads, None, FRAME, parts)
    seeds = [given[2].block_seed for given in dask_worker]
    assert seeds[:4] == seeds[4:]
    assert len(set(seeds)) == 3, "arrays and frames alike"


def test_an_estimator_is_told_of_by_its_block(dask_worker):
    def fails(x: Any) -> Any:
        return x[:1]

    with pytest.raises(ValueError, match=r"made, on block block-7, made an array of shape \(1, 2\) of 3 rows"):
        answered(call(PAIR), LIMITS, function(fails), [ROWS])


# Frames

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "t": ["x", None, "z"]}, index=[7, 5, 6])


def test_a_frame_keeps_its_index():
    whole = frame_block(call(), LIMITS, "token", None, "sum", FRAME[["a", "b"]], function(lambda x: x.sum(axis=1)))
    pd.testing.assert_series_equal(whole, pd.Series([5.0, 7.0, 9.0], index=[7, 5, 6], name="sum"))


def test_columns_of_text_are_taken_as_they_are():
    seen = []

    def length(x: Any) -> Any:
        seen.append(x.tolist())
        return np.ones(len(x))

    text = call(columns=(Column(dtype="|O", row_shape=()),))
    column = {"name": "t", "how": "text", "dtype": "|O", "categories": None}
    reads = [{"piece": 0, "columns": [column], "matrix": None}]
    frame_block(text, LIMITS, "token", reads, None, FRAME, function(length))
    frame_block(text, LIMITS, "token", reads, None, FRAME["t"], function(length))
    assert [[str(value) if isinstance(value, str) else None for value in each] for each in seen] == [
        ["x", None, "z"]
    ] * 2


def test_outputs_become_columns():
    frame = series_or_frame([np.arange(2), np.arange(4.0).reshape(2, 2)], pd.Index([3, 1]), ["n", "x", "y"])
    assert frame.to_dict("list") == {"n": [0, 1], "x": [0.0, 2.0], "y": [1.0, 3.0]}
    assert frame.index.tolist() == [3, 1]
    objects = series_or_frame([np.array([1, "a"], object)], pd.Index([0, 1]), "o")
    assert (objects.name, objects.dtype) == ("o", object), "as it was made, not what pandas would infer"


# Scores


def test_targets_and_weights_of_a_frame_are_no_features():
    seen = []

    def model(x: Any) -> Any:
        seen.append(list(x.columns))
        return x["a"].to_numpy()

    rows = predicted_block(call(), None, "b", "w", function(model), FRAME[["a", "b"]].assign(w=[1.0, 0.0, 2.0]))
    assert seen == [["a"]]
    assert (rows.truth.tolist(), rows.predicted.tolist(), rows.weights.tolist()) == ([4, 5, 6], [1, 2, 3], [1, 0, 2])
    assert predicted_block(call(), None, "b", None, function(model), FRAME[["a", "b"]]).weights is None


def test_targets_and_weights_of_arrays():
    rows = predicted_block(call(), None, None, None, function(lambda x: x[:, 0]), [ROWS, ROWS[:, 1], np.ones(3)])
    assert (rows.truth.tolist(), rows.predicted.tolist(), rows.weights.tolist()) == ([1, 3, 5], [0, 2, 4], [1, 1, 1])


@pytest.mark.parametrize("counts", [(2, 3), (0, 3), (3, 0), (3, 3, 2)])
def test_features_targets_and_weights_of_a_block_are_as_many(counts):
    piece = [ROWS[:2], ROWS[:2, 1], np.ones(2)]
    piece = [np.ones((count, *part.shape[1:])) for count, part in zip(counts, piece, strict=False)]
    with pytest.raises(ValueError, match=rf"The arrays of a block have {', '.join(map(str, counts))} rows; they have"):
        predicted_block(call(), None, None, None, function(lambda x: x[:, 0]), piece)


@pytest.mark.parametrize("made", [np.zeros(2), np.zeros((4, 1)), 0.0])
def test_a_model_predicts_a_row_of_each(made):
    with pytest.raises(ValueError, match=r"made, on a block, made an array of shape .* of 3 rows"):
        predicted_block(call(), None, None, None, function(lambda _: made), [ROWS, ROWS[:, 1]])


def test_a_partition_without_rows_adds_nothing():
    def fails(_: Any) -> Any:
        raise AssertionError("it is not asked")

    empty = [ROWS[:0], ROWS[:0, 1]]
    assert predicted_block(call(), None, None, None, function(fails), empty) is None
    assert scored_block(call(), "r2", None, None, None, function(fails), empty) is None
    assert logs(call(), LIMITS, Model(), None) is None
