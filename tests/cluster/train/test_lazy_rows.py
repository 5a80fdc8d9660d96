"""Rows that Dask computes are computed once a verb, whatever the verb and however they are given."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import keras
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
import xgboost
from keras import layers
from sklearn.linear_model import LinearRegression, SGDClassifier

import dask_train as dt
from dask_train import linear_model
from dask_train.sklearn import Incremental, KerasClassifier, KerasRegressor

pytestmark = pytest.mark.slow

PARTITIONS = 3
NAMES = ["a", "b"]


class Counted:
    """Partitions whose making is counted, on whatever process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> pd.DataFrame:
        (self.folder / uuid.uuid4().hex).touch()
        rows = np.random.default_rng(number).normal(size=(40, 2)).astype("f4")
        return pd.DataFrame({"a": rows[:, 0], "b": rows[:, 1], "y": (rows[:, 0] > 0).astype("i4")})

    def times(self) -> int:
        """How often, since this was asked last."""
        files = list(self.folder.iterdir())
        for file in files:
            file.unlink()
        return len(files)


def frames(made: Counted) -> tuple[Any, Any]:
    """Frames of which Dask knows no lengths."""
    frame = dd.from_map(made, range(PARTITIONS), meta=pd.DataFrame({"a": [0.0], "b": [0.0], "y": [0]}).astype(DTYPES))
    return frame[NAMES], frame["y"]


DTYPES = {"a": "f4", "b": "f4", "y": "i4"}


def known_chunks(made: Counted, length: float = 40) -> tuple[Any, Any]:
    """Arrays of the same delayed frames, whose chunks are known."""
    parts = [dask.delayed(made, pure=False)(number) for number in range(PARTITIONS)]
    x = [da.from_delayed(part[NAMES].to_numpy(), (length, 2), "f4") for part in parts]
    y = [da.from_delayed(part["y"].to_numpy(), (length,), "i4") for part in parts]
    return da.concatenate(x, allow_unknown_chunksizes=True), da.concatenate(y, allow_unknown_chunksizes=True)


def unknown_chunks(made: Counted) -> tuple[Any, Any]:
    """The same, of which nobody knows how many rows they have."""
    return known_chunks(made, np.nan)


def network(units: int = 1, loss: str = "mse") -> Any:
    """A small Keras model."""
    model = keras.Sequential([layers.Input((2,)), layers.Dense(units, "softmax" if units > 1 else None)])
    model.compile("sgd", loss)
    return model


def classifier() -> KerasClassifier:
    """An estimator that looks at all labels before it trains."""
    return KerasClassifier(network(2, "categorical_crossentropy"))


def seen(session: Any) -> int:
    """A role that looks at its rows."""
    return int(session.num_rows)


SQUARES = torch.nn.MSELoss()


def squares(outputs: Any, targets: Any) -> Any:
    """A loss of a single output."""
    return SQUARES(outputs[:, 0], targets.to(outputs.dtype))


def fit_module(x: Any, y: Any) -> None:
    dt.fit(torch.nn.Linear(2, 1), x, y, loss=squares, optimizer=torch.optim.SGD, epochs=2, workers=2, verbose=0)


def fit_network(x: Any, y: Any) -> None:
    dt.fit(network(), x, y, epochs=2, workers=2, verbose=0)


def fit_trees(x: Any, y: Any) -> None:
    dt.fit(xgboost.XGBClassifier(n_estimators=2), x, y, workers=2, verbose=0)


def search_grid(x: Any, y: Any) -> None:
    dt.search(SGDClassifier(), x, y, params={"alpha": [1e-3, 1e-2]}, cv=2, progress=False)


def descent(trial: Any) -> Any:
    """An estimator of a trial."""
    return SGDClassifier(alpha=trial.suggest_float("alpha", 1e-4, 1))


def search_trials(x: Any, y: Any) -> None:
    dt.search(descent, x, y, trials=2, cv=2, progress=False)


def evaluate_estimator(x: Any, y: Any) -> None:
    plain = LinearRegression().fit(np.eye(2), [0.0, 1.0])
    dt.evaluate(plain, x, y, verbose=0)


def predict(x: Any, _: Any) -> None:
    dt.predict(network(), x).compute()


VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "train": lambda x, y: dt.train(seen, roles={"worker": 2}, data=(x, y), progress=False),
    "fit, Keras": fit_network,
    "fit, torch": fit_module,
    "fit, trees": fit_trees,
    "evaluate, Keras": lambda x, y: dt.evaluate(network(), x, y, verbose=0),
    "evaluate, estimator": evaluate_estimator,
    "predict": predict,
    "search, grid": search_grid,
    "search, trials": search_trials,
    "LogisticRegression": lambda x, y: linear_model.LogisticRegression(workers=2).fit(x, y),
    "LogisticRegression, here": lambda x, y: linear_model.LogisticRegression(workers=0).fit(x, y),
    "Ridge": lambda x, y: linear_model.Ridge(workers=2).fit(x, y),
    "Incremental": lambda x, y: Incremental(SGDClassifier()).fit(x, y),
    "KerasRegressor": lambda x, y: KerasRegressor(network()).fit(x, y, verbose=0),
    "KerasClassifier": lambda x, y: classifier().fit(x, y, sample_weight=y + 1, workers=2, verbose=0),
    "KerasRegressor, here": lambda x, y: KerasRegressor(network()).fit(x, y, workers=0, verbose=0),
    "KerasClassifier, here": lambda x, y: classifier().fit(x, y, workers=0, verbose=0),
}


KINDS = [
    pytest.param(frames, id="frames"),
    pytest.param(unknown_chunks, id="unknown_chunks", marks=pytest.mark.nightly),
    pytest.param(known_chunks, id="known_chunks", marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verb", VERBS)
def test_each_partition_is_computed_once(client, tmp_path, verb, kind):
    made = Counted(tmp_path)
    with dask.config.set({"train.predict.idle": "100ms"}):
        VERBS[verb](*kind(made))
    gc.collect()  # a Keras model lies in a cycle, with the rows that this process has mapped
    assert made.times() == PARTITIONS


SCORES: dict[str, Callable[[Any, Any], Any]] = {
    "LogisticRegression": lambda x, y: linear_model.LogisticRegression(workers=2).fit(x, y),
    "LogisticRegression, here": lambda x, y: linear_model.LogisticRegression(workers=0).fit(x, y),
    "Ridge": lambda x, y: linear_model.Ridge(workers=2).fit(x, y),
    "KerasClassifier": lambda x, y: classifier().fit(x, y, verbose=0),
    "Incremental": lambda x, y: Incremental(SGDClassifier()).fit(x, y),
    "KerasRegressor": lambda x, y: KerasRegressor(network()).fit(x, y, verbose=0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", SCORES)
def test_a_score_computes_each_partition_once(client, tmp_path, model, kind):
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype("f4")
    with dask.config.set({"train.predict.idle": "100ms"}):
        x, y = pd.DataFrame(rows, columns=NAMES), pd.Series((rows[:, 0] > 0).astype("i4"))
        x, y = (dd.from_pandas(each, npartitions=1) for each in (x, y))
        fitted = SCORES[model](*((x, y) if kind is frames else (x.to_dask_array(), y.to_dask_array())))
        made = Counted(tmp_path)
        fitted.score(*kind(made))
    assert made.times() == PARTITIONS


def sparse_rows(made: Counted) -> tuple[Any, Any]:
    """Sparse rows and dense targets of the same delayed frames."""
    parts = [dask.delayed(made, pure=False)(number) for number in range(PARTITIONS)]
    meta = scipy.sparse.csr_array((0, 2), dtype="f4")
    matrices = [dask.delayed(scipy.sparse.csr_array)(part[NAMES].to_numpy()) for part in parts]
    x = [da.from_delayed(each, (40, 2), meta=meta) for each in matrices]
    return da.concatenate(x), da.concatenate([da.from_delayed(part["y"].to_numpy(), (40,), "i4") for part in parts])


@pytest.mark.parametrize("workers", [2, 0])
def test_sparse_partitions_are_computed_once(client, tmp_path, workers):
    made = Counted(tmp_path)
    fitted = linear_model.LogisticRegression(workers=workers).fit(*sparse_rows(made))
    assert made.times() == PARTITIONS
    fitted.score(*sparse_rows(made))
    assert made.times() == PARTITIONS
    dt.fit(linear_model.LogisticRegression(), *sparse_rows(made), workers=workers, verbose=0)
    assert made.times() == PARTITIONS
