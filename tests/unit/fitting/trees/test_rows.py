"""What may be passed for rows of boosted trees, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from dask_train.collections import partition, shared
from dask_train.collections.schema.frame_schema import FrameSchema
from dask_train.data.columns import Column, Columns
from dask_train.data.segment import Segment
from dask_train.fitting.trees.rows import num_parts, tree_data
from dask_train.shared_data.segments import SharedSegments

X, Y = np.arange(12.0).reshape(6, 2), np.arange(6)
FRAME = pd.DataFrame({"a": [1.0, 2, 3], "kind": pd.Categorical(["x", None, "y"]), "y": [0, 1, 0], "w": 1.0})


def test_arrays_of_numpy_are_cut_for_all_workers():
    data = tree_data("data", X, Y, {"sample_weight": np.ones(6), "qid": None}, workers=3)
    assert data.columns.places() == {"x": 0, "y": 1, "sample_weight": 2}
    assert (data.columns.matrix.row_shape, data.columns.matrix.names, data.columns.matrix.categories) == (
        (2,),
        None,
        None,
    )
    assert data.source("data").lengths == (2, 2, 2)
    assert num_parts(data.source("data")) == 3
    for workers, lengths in ((4, (2, 2, 1, 1)), (9, (1,) * 6)):  # two rows each would leave nothing for the fourth
        assert tree_data("data", X, Y, {}, workers=workers).source("data").lengths == lengths
    chunked = tree_data("data", da.from_array(X, chunks=(4, 2)), da.from_array(Y, chunks=2), {}, workers=5)
    assert num_parts(chunked.source("data")) == 2


@pytest.mark.parametrize("npartitions", [None, 2])
def test_columns_of_frames_have_names_and_categories(npartitions):
    frame = FRAME if npartitions is None else dd.from_pandas(FRAME, npartitions=npartitions)
    data = tree_data("data", frame, None, {"sample_weight": "w"}, features=["kind", "a"], label="y")
    assert data.columns.matrix.names == ("kind", "a")
    assert [None if known is None else list(known) for known in data.columns.matrix.categories] == [["x", "y"], None]
    assert data.columns.places() == {"x": 0, "y": 1, "sample_weight": 2}
    apart = tree_data("data", frame[["a", "kind"]], frame["y"], {})
    assert apart.columns.matrix.names == ("a", "kind")
    several = tree_data("data", frame, None, {}, features=["a"], label=["y", "w"])
    assert [[column.name for column in each.schema.targets] for each in (data, apart, several)] == [
        ["y"],
        ["y"],
        ["y", "w"],
    ], "a later frame is scored by the same columns"
    assert tree_data("data", X[:3], FRAME["y"], {}).schema is None
    assert tree_data("data", frame[["a"]], frame["y"].rename(None), {}).schema.targets == ()
    assert several.columns[several.columns.labels].row_shape == (2,)
    assert tree_data("data", frame, None, {"qid": "y"}, features="a", label="w").columns.matrix.row_shape == (1,)


def test_what_can_not_be_rows_is_refused():
    with pytest.raises(ValueError, match=r"there are no targets\. Pass y"):
        tree_data("data", X, None, {})
    with pytest.raises(ValueError, match=r"rows of features have the shape \(\)"):
        tree_data("data", X[:, 0], Y, {})
    with pytest.raises(ValueError, match="sample_weight is one of a frame's columns here; name it"):
        tree_data("data", FRAME, None, {"sample_weight": np.ones(3)}, label="y")
    with pytest.raises(ValueError, match="qid is one of a frame's columns here; name it"):
        tree_data("data", FRAME, None, {"qid": da.ones(3)}, label="y")
    with pytest.raises(ValueError, match="choose columns of a frame, which has the targets, too"):
        tree_data("data", FRAME, FRAME["y"], {}, label="y")
    unknown = dd.from_pandas(FRAME, npartitions=2).assign(kind=lambda frame: frame["kind"].cat.as_unknown())
    with pytest.raises(ValueError, match=r"categories of column 'kind' of data are not known yet"):
        tree_data("data", unknown, None, {}, label="y")


def test_names_are_of_columns_of_a_frame():
    for given, told in (
        ({"y": "y"}, "data: y is 'y', a name"),
        ({"w": "w"}, "data: w is 'w', a name. Pass the values"),
    ):
        with pytest.raises(ValueError, match=told):
            tree_data("data", X, given.get("y", Y), {"w": given["w"]} if "w" in given else {})


def test_labels_are_no_categories_of_which_codes_would_be_learnt():
    frame = pd.DataFrame({"a": np.arange(3.0), "kind": pd.Categorical(["u", "w", "v"])})
    for given in (frame, dd.from_pandas(frame, npartitions=2)):
        for x, y, names in ((given, None, {"features": ["a"], "label": "kind"}), (given[["a"]], given["kind"], {})):
            with pytest.raises(TypeError, match=r"The labels of data are categories, .*frame\['kind'\]\.cat\.codes"):
                tree_data("data", x, y, {}, **names)


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]"])
@pytest.mark.parametrize("spread", [lambda frame: frame, lambda frame: dd.from_pandas(frame, npartitions=2)])
def test_numbers_of_queries_keep_all_digits(spread, dtype):
    queries = 2**60 + np.arange(6)
    frame = spread(pd.DataFrame({"a": np.arange(6.0), "y": np.arange(6), "q": pd.Series(queries).astype(dtype)}))
    for data in (
        tree_data("data", frame, None, {"qid": "q"}, features=["a"], label="y"),
        tree_data("data", frame[["a"]], frame["y"], {"qid": frame["q"]}),
    ):
        (column,) = [data.columns[data.columns.groups]]
        assert np.dtype(column.dtype) == np.dtype("int64")
        parts = dask.compute(*data.source("data").delayed_parts(partition.part, list), scheduler="sync")
        assert np.concatenate([part[data.columns.groups] for part in parts]).tolist() == queries.tolist()


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (scipy.sparse.csr_matrix(np.eye(3)), "data has a csr_matrix, a sparse matrix.*X.toarray"),
        (np.ma.masked_array(np.eye(3), np.eye(3) > 0), "data has a masked array"),
    ],
    ids=["sparse", "masked"],
)
def test_what_would_be_lost_is_refused_at_the_call(odd, told):
    with pytest.raises(TypeError, match=told):
        tree_data("data", odd, np.arange(3), {})


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[s]"])
def test_arrays_of_dates_are_refused(dtype):
    for x, y in ((X.astype(dtype), Y), (da.from_array(X.astype(dtype)), Y), (X, Y.astype(dtype))):
        with pytest.raises(TypeError, match=r"data has an array of dates or spans of time\. Make numbers"):
            tree_data("data", x, y, {})


@pytest.mark.parametrize(("name", "what"), [("sample_weight", "weights"), ("qid", "numbers of queries")])
def test_rows_have_one_weight_and_one_query_each(name, what):
    with pytest.raises(
        ValueError, match=rf"data has {what} of the shape \(2,\) a row.* Pass {what} of the shape \(n,\)"
    ):
        tree_data("data", X, Y, {name: da.from_array(np.ones((6, 2), int), chunks=3)})
    assert tree_data("data", X, Y, {name: np.ones((6, 1), int)}).columns.places()["y"] == 1
    frame = FRAME.assign(v=1)
    with pytest.raises(ValueError, match=rf"data has {what} of the shape \(2,\) a row"):
        tree_data("data", frame, None, {name: ["v", "w"]}, features="a", label="y")


def test_published_columns_have_to_be_those_that_are_known():
    columns = Columns.of_batch(2, [Column(dtype="<f8", row_shape=(2,)), Column(dtype="<i8", row_shape=())])
    frames = (FrameSchema.of(FRAME[["w", "a"]]), None)
    held = SharedSegments(schema=columns, lengths=np.array([3]), futures=(), frames=frames)
    given = SimpleNamespace(segments=held)
    for known in (None, frames[0]):
        assert tree_data("eval_set", given, None, {}, known=known).columns.places()["y"] == 1
    assert tree_data("data", given, None, {}).schema == frames[0], "which sets to score have to be like"
    with pytest.raises(ValueError, match=r"eval_set lies in .* the columns 'w', 'a', in this order, .* with 'a', 'w'"):
        tree_data("eval_set", given, None, {}, known=FrameSchema.of(FRAME[["a", "w"]]))


def test_a_persisted_array_goes_beside_targets_as_any_array(pool):
    rows = {"part": Segment([np.ones((3, 2), "f4")])}
    (x,) = shared.arrays_of(rows, [Column(dtype="<f4", row_shape=(2,))], (3,))
    assert tree_data("data", x, np.arange(3), {"qid": np.zeros(3, int)}).columns.places()["y"] == 1
    with pytest.raises(TypeError, match="The labels of data are categories"):
        tree_data("data", x, FRAME["kind"], {})
