"""What users pass as data, told apart, and what is refused before anything starts."""

from __future__ import annotations

import subprocess
import sys

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import torch
from dask import delayed
from scipy.sparse import csr_matrix
from torch.utils.data import TensorDataset

from dask_train.collections import check_data
from dask_train.collections.arrays import ArraySource
from dask_train.collections.delayed import DelayedSource
from dask_train.collections.frames import FrameSource

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
FRAME = dd.from_pandas(TABLE, npartitions=3)


def never():
    raise AssertionError("it was computed")


@pytest.mark.parametrize(
    ("data", "picked", "kind", "names", "is_tuple"),
    [
        (X, {}, ArraySource, None, False),
        ((X,), {}, ArraySource, None, True),
        ([X, da.from_array(Y)], {}, ArraySource, None, True),
        ({"image": X, "label": Y}, {}, ArraySource, ("image", "label"), False),
        ({"image": X, "label": Y}, {"features": "image"}, ArraySource, None, False),
        ({"image": X, "label": Y}, {"label": "label"}, ArraySource, None, True),
        (TABLE, {}, ArraySource, None, False),
        (TABLE["y"], {}, ArraySource, None, False),
        (TABLE, {"label": "y"}, ArraySource, None, True),
        ((TABLE[["a"]], TABLE["y"], Y), {}, ArraySource, None, True),
        (FRAME, {}, FrameSource, None, False),
        (FRAME["y"], {}, FrameSource, None, False),
        (FRAME, {"features": "a"}, FrameSource, None, False),
        (FRAME, {"label": "y"}, FrameSource, None, True),
        ((FRAME,), {}, FrameSource, None, True),
        ({"x": FRAME[["a"]], "y": FRAME["y"]}, {}, FrameSource, ("x", "y"), False),
        ({"x": FRAME[["a"]], "y": FRAME["y"]}, {"label": "y"}, FrameSource, None, True),
        ({"x": FRAME[["a"]], "y": FRAME["y"]}, {"features": "x"}, FrameSource, None, False),
        ([delayed(never)()], {}, DelayedSource, None, False),
        ([delayed(never)()], {"features": "x", "label": "y"}, DelayedSource, None, True),
    ],
)
def test_what_was_passed_is_told_apart(data, picked, kind, names, is_tuple):
    source = check_data("data", data, **picked)
    assert (type(source), source.names, source.is_tuple) == (kind, names, is_tuple)


class Frame:
    """Of a library that nobody knows."""


@pytest.mark.parametrize(
    ("data", "error", "text"),
    [
        ((), ValueError, r"data\['worker'\] is empty; pass arrays"),
        ([], ValueError, "is empty"),
        ({}, ValueError, "is empty"),
        ((X, Y[:7]), ValueError, "have 10, 7 rows; they have to be the same"),
        ((TABLE[:4], TABLE["y"]), ValueError, "have 4, 10 rows; they have to be the same"),
        (X[:0], ValueError, r"data\['worker'\] has no rows"),
        (TABLE[:0], ValueError, "has no rows"),
        ((X, Frame()), TypeError, "has a Frame; pass Dask or NumPy arrays, Dask or pandas frames"),
        ((X, [1, 2]), TypeError, "has a list; pass Dask or NumPy arrays"),
        ("x.csv", TypeError, "has a str; pass Dask or NumPy arrays"),
        (None, TypeError, "has a NoneType; pass"),
        (TABLE.index, TypeError, "has a RangeIndex; pass"),
        (FRAME.index, TypeError, "has a Index; pass"),
        (FRAME["a"].sum(), TypeError, "has a Scalar; pass"),
        (delayed(never)(), TypeError, r"has a Delayed.*, which does not tell its rows. Pass a list, \[part, part"),
        ((delayed(never)(), delayed(never)()), TypeError, "does not tell its rows"),
        ({"x": delayed(never)()}, TypeError, "does not tell its rows"),
        ([delayed(never)(), X], TypeError, "is a list of delayed results and a ndarray. Each element"),
        (np.array(3.0), ValueError, "an array without an axis; rows lie along the first one"),
        (da.ones(()), ValueError, "an array without an axis"),
        (np.array(["a", None], dtype=object), TypeError, r"Row 1 of an array of object of data\['worker'\] is missing"),
        (np.ma.masked_equal(Y, 3), TypeError, "has a masked array, whose mask would be lost; fill it first"),
        (da.ma.masked_equal(da.from_array(Y), 3), TypeError, "has a masked array"),
        (csr_matrix(X), TypeError, "has a csr_matrix, a sparse matrix, and rows are dense arrays here"),
        (
            da.from_array(X).map_blocks(csr_matrix),
            TypeError,
            "has chunks of csr_matrix, sparse matrices, and",
        ),
        (iter([X]), TypeError, "has a list_iterator; .* Datasets of other libraries have no partitions: pass the"),
        (tf.data.Dataset.range(3), TypeError, "has a _RangeDataset; .* Datasets of other libraries"),
        (TensorDataset(torch.tensor(X)), TypeError, "has a TensorDataset; .* Datasets of other libraries"),
    ],
)
def test_what_is_refused(data, error, text):
    with pytest.raises(error, match=text):
        check_data("data['worker']", data)


@pytest.mark.parametrize("data", [TABLE, FRAME], ids=["pandas", "dask"])
@pytest.mark.parametrize(
    ("picked", "error", "text"),
    [
        ({"label": "z"}, ValueError, "data has no column 'z'. It has 'a', 'b', 'y'"),
        ({"features": ["a", "labels"], "label": "y"}, ValueError, "no column 'labels'"),
        ({"features": "bb"}, ValueError, "no column 'bb'. The nearest: 'b'. It has"),
        ({"features": ["a", "a"]}, ValueError, "names 'a' more than once"),
        ({"features": ["a", "y"], "label": "y"}, ValueError, "'y' of data is the label and one of the features too"),
        ({"features": "y", "label": "y"}, ValueError, "the label and one of the features"),
        ({"features": []}, ValueError, "has no column left for the features"),
        ({"label": ["y"]}, TypeError, r"label=\['y'\] of data is no name"),
    ],
)
def test_names_that_do_not_fit(data, picked, error, text):
    with pytest.raises(error, match=text):
        check_data("data", data, **picked)


def test_columns_of_one_name():
    twice = pd.DataFrame(X, columns=["a", "a"])
    for picked in ({}, {"features": "a"}, {"features": ["a"]}):
        with pytest.raises(ValueError, match="names 'a' more than once"):
            check_data("data", twice, **picked)


@pytest.mark.parametrize("data", [X, (X, Y), da.from_array(X), TABLE["a"], FRAME["a"], (FRAME[["a"]], FRAME["y"])])
def test_names_need_something_with_names(data):
    with pytest.raises(ValueError, match=r"'a', 'y' name columns, and data is a \w+, which has none"):
        check_data("data", data, features="a", label="y")


def test_entries_of_a_dict(computed):
    data = {"x": X, "y": Y, "w": Y * 2}
    assert [array.shape for array in computed(data, features="x", label="y")[0]] == [(10, 2), (10,)]
    assert [array.shape for array in computed(data, features=["x"], label="y")[0]] == [(10, 2), (10,)]
    assert [array.shape for array in computed({"x": X, "y": Y}, label="y")[0]] == [(10, 2), (10,)]
    with pytest.raises(ValueError, match=r"features of data are \['x', 'w'\], and one entry of a dict makes the"):
        check_data("data", data, label="y")
    with pytest.raises(ValueError, match="no column 'z'"):
        check_data("data", data, features="z")


def test_many_columns_are_not_all_told():
    with pytest.raises(ValueError, match="'c19' and 80 more") as caught:
        check_data("data", pd.DataFrame(np.zeros((2, 100)), columns=[f"c{i}" for i in range(100)]), label="c101")
    assert "'c10'" in str(caught.value)


def test_arrays_need_no_pandas():
    code = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None\n"
        "import numpy as np, dask.array as da\n"
        "from dask_train.collections import check_data, partition\n"
        "source = check_data('data', (np.ones((4, 2)), da.ones(4, chunks=2)))\n"
        "parts = source.delayed_parts(partition.part, len)\n"
        "assert [part.compute(scheduler='synchronous') for part in parts] == [2], parts\n"
        "assert source.persisted_nbytes == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
