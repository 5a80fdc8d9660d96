"""Predictions stand beside the paths of their files, in columns that are named after classes."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from dask_train.file_rows.paired import with_paths

PATHS = [f"/{number}.jpg" for number in range(5)]
PREDICTED = np.eye(5, 3, dtype=np.float32)


@pytest.mark.parametrize("array", [PREDICTED, da.from_array(PREDICTED, chunks=(2, 2))])
def test_rows_are_named_by_paths_and_columns_by_classes(array):
    frame = with_paths(PATHS, array, ["a", "b", "c"], are_named=False)
    found = frame.compute(scheduler="synchronous")
    assert (found.index.name, found.index.tolist(), list(found.columns)) == ("path", PATHS, ["a", "b", "c"])
    assert found.to_numpy().tolist() == PREDICTED.tolist()
    assert frame.dtypes.equals(found.dtypes)
    assert frame.to_dask_array().compute(scheduler="synchronous").tolist() == PREDICTED.tolist()
    assert frame.idxmax(axis=1).compute(scheduler="synchronous").tolist() == ["a", "b", "c", "a", "a"]


def test_one_number_is_a_prediction_and_others_are_numbered():
    alone = with_paths(PATHS, PREDICTED[:, 0], ["a", "b"], are_named=False).compute(scheduler="synchronous")
    assert alone["prediction"].tolist() == PREDICTED[:, 0].tolist()
    assert list(with_paths(PATHS, PREDICTED, None, are_named=False).columns) == [0, 1, 2]


@pytest.mark.parametrize(
    ("array", "classes", "message"),
    [
        (PREDICTED.tolist(), None, "predicted is a list; pass the array"),
        (PREDICTED[:4], None, r"has the shape \(4, 3\), and there are 5 files"),
        (PREDICTED[:, :, None], None, r"has the shape \(5, 3, 1\)"),
        (PREDICTED, ["a"], "classes has 1 names, and predictions have 3 columns"),
    ],
)
def test_what_does_not_fit_is_refused(array, classes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        with_paths(PATHS, array, classes, are_named=classes is not None)
