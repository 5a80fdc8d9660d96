"""``evaluate`` of boosters, by functions of all rows' predictions; without a cluster."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.metrics import log_loss, roc_auc_score

import dask_train as dt

X = np.random.default_rng(2).normal(size=(100, 3))
Y = (X.sum(axis=1) > 0).astype("i8")
WEIGHTS = np.arange(100.0)
CHUNKS = ((30, 1, 69), 3)


@pytest.fixture(scope="module")
def booster() -> xgboost.Booster:
    return xgboost.train({"max_depth": 2, "objective": "binary:logistic"}, xgboost.DMatrix(X, Y), 4)


def on_dask(array: np.ndarray) -> da.Array:
    return da.from_array(array, chunks=CHUNKS[: array.ndim])


def test_metrics_are_of_all_rows_and_not_means_over_partitions(booster: xgboost.Booster) -> None:
    predicted = booster.predict(xgboost.DMatrix(X))
    found = dt.evaluate(booster, on_dask(X), on_dask(Y), metrics=[log_loss, roc_auc_score])
    wanted = {"log_loss": log_loss(Y, predicted), "roc_auc_score": roc_auc_score(Y, predicted)}
    assert found == pytest.approx(wanted, rel=1e-6)


def test_rows_have_weights_and_columns_names(booster: xgboost.Booster) -> None:
    predicted = booster.predict(xgboost.DMatrix(X))
    wanted = {"loss": pytest.approx(log_loss(Y, predicted, sample_weight=WEIGHTS), rel=1e-6)}
    metrics = {"loss": log_loss}
    arrays = on_dask(X), on_dask(Y)
    assert dt.evaluate(booster, *arrays, sample_weight=on_dask(WEIGHTS), metrics=metrics) == wanted
    named = xgboost.train(
        {"max_depth": 2, "objective": "binary:logistic"}, xgboost.DMatrix(pd.DataFrame(X, columns=list("abc")), Y), 4
    )
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abc")).assign(y=Y, w=WEIGHTS), npartitions=3)
    assert dt.evaluate(named, frame, label="y", sample_weight="w", metrics=metrics) == wanted


def test_rows_that_are_cut_apart_are_not_compared(booster: xgboost.Booster) -> None:
    def unknown(array: np.ndarray, *rows: int) -> da.Array:
        lazy = da.from_array(array, chunks=(rows, *array.shape[1:]))
        return lazy.map_blocks(np.asarray, dtype=array.dtype, chunks=((np.nan,) * len(rows), *array.shape[1:]))

    x, y, apart = unknown(X, 60, 40), unknown(Y, 60, 40), (40, 60)
    assert dt.evaluate(booster, x, y, metrics=[log_loss])
    for arrays, weights in (((x, unknown(Y, *apart)), None), ((x, y), unknown(WEIGHTS, *apart))):
        with pytest.raises(ValueError, match=r"The arrays of .* have .* rows; they have to be the same"):
            dt.evaluate(booster, *arrays, sample_weight=weights, metrics=[log_loss])


def test_rows_of_files_have_their_targets(booster: xgboost.Booster, tmp_path: Path) -> None:
    for number, (x, y) in enumerate(zip(X, Y, strict=True)):
        (tmp_path / f"{number:03}-{y}.bin").write_bytes(x.tobytes())
    files = dt.files(tmp_path / "*.bin", label=lambda path: int(path[-5]), decode=np.frombuffer)
    wanted = {"log_loss": pytest.approx(log_loss(Y, booster.predict(xgboost.DMatrix(X))), rel=1e-6)}
    assert dt.evaluate(booster, files, metrics=[log_loss]) == wanted
    with pytest.raises(ValueError, match="x is a FileRows, which has its labels"):
        dt.evaluate(booster, files, Y, metrics=[log_loss])


def test_without_targets_there_is_nothing_to_compare_with(booster: xgboost.Booster) -> None:
    with pytest.raises(ValueError, match="There are no targets"):
        dt.evaluate(booster, on_dask(X), metrics=[log_loss])
