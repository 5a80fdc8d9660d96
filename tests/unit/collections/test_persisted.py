"""What of a collection lies in Dask's memory already."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask.delayed import Delayed

from dask_train.collections import check_data

TABLE = pd.DataFrame({"a": [1.0, 2.0], "y": [1, 2]})


class Future:
    """Stands in for that of a cluster, which is told by its name."""


Future.__module__ = "distributed.client"


def persisted(array):
    """As ``client.persist`` gives it: the same keys, with futures."""
    graph = {key: Future() for key in dask_keys(array)}
    return da.Array(graph, array.name, array.chunks, meta=array._meta)


def dask_keys(array):
    return [key for row in array.__dask_keys__() for key in (row if isinstance(row, list) else [row])]


def frame():
    """As ``frame.persist()`` gives it."""
    from dask.dataframe.dask_expr._collection import new_collection
    from dask.dataframe.dask_expr.io.io import FromGraph

    graph = {("x", 0): Future()}
    return new_collection(FromGraph(graph, TABLE.iloc[:0], (None, None), list(graph), "x"))


X = da.ones((6, 2), chunks=(3, 2))
LAZY = dd.from_pandas(TABLE, npartitions=1)


@pytest.mark.parametrize(
    ("data", "nbytes"),
    [
        (X, 0),
        (X + 1, 0),
        (np.ones(3), 0),
        (TABLE, 0),
        (persisted(X), 96),
        ((persisted(X), X.sum(axis=1)), 96),
        ((persisted(X), persisted(X)), 96),
        ((persisted(X), persisted(X + 1)), 192),
        (persisted(X) + 1, None),
        ((X, persisted(X).sum(axis=1)), None),
        (LAZY, 0),
        ((LAZY[["a"]], LAZY["y"]), 0),
        (frame(), None),
        ((frame()[["a"]], frame()["y"] + 1), None),
        (dd.from_delayed([Delayed("k", {"k": Future()})], meta=TABLE.iloc[:0]), None),
        ([delayed(np.ones)(3)], 0),
        ([delayed(np.ones)(3), Delayed("k", {"k": Future()})], None),
        ([delayed(np.add)(Delayed("k", {"k": Future()}), 1)], None),
    ],
)
def test_what_lies_in_memory(data, nbytes):
    assert check_data("data", data).persisted_nbytes == nbytes


def test_what_is_persisted_and_of_unknown_length():
    array = persisted(X)
    unknown = da.Array(array.dask, array.name, ((np.nan, np.nan), (2,)), meta=array._meta)
    assert check_data("data", unknown).persisted_nbytes is None
