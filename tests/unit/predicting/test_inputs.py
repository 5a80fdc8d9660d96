"""What users pass as ``x``: told apart, and described before anything of it is computed."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.data.columns import TEXT
from dask_train.inputs.data import InputData
from dask_train.predicting.inputs import rows_to_predict

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "t": ["x", "y", "z"]}, index=[7, 5, 6])


def never(block: np.ndarray) -> np.ndarray:
    if block.size:
        raise AssertionError("nothing is computed")
    return block


def inputs(x: Any, *, features: Any = None, as_frames: bool = False, takes_text: bool = False) -> InputData:
    return rows_to_predict("x", x, features=features, schema=None, as_frames=as_frames, takes_text=takes_text)


def kinds(found: InputData) -> list[tuple[str, tuple[int, ...]]]:
    return [(column.dtype, column.row_shape) for column in found.columns]


def test_arrays_keep_their_structure_and_rows_are_made_whole():
    one = da.ones((10, 4), chunks=(3, 2)).map_blocks(never, dtype="f4", meta=np.empty((0, 0), "f4"))
    found = inputs({"image": one, "more": [np.ones((10, 2)), np.arange(10)]})
    assert found.columns.features == {"image": 0, "more": [1, 2]}
    assert kinds(found) == [("<f4", (4,)), ("<f8", (2,)), ("<i8", ())]
    assert [array.chunks[0] for array in found.arrays] == [(3, 3, 3, 1)] * 3
    assert found.arrays[0].chunks[1] == (4,)
    assert (found.frame, found.reads) == (None, None)


def test_a_column_may_be_named_as_what_a_data_set_has():
    found = inputs(FRAME[["a"]].rename(columns={"a": "segments"}), features=["segments"])
    assert kinds(found) == [("<i8", (1,))]


@pytest.mark.parametrize(
    ("x", "features", "error", "says"),
    [
        (np.ones(3), ["a"], ValueError, r"features=\['a'\] names columns, and x is a ndarray, which has none"),
        ([], None, ValueError, "x is empty; pass arrays or a frame"),
        ({}, None, ValueError, "x is empty"),
        ((np.ones(3), np.ones(4)), None, ValueError, "have 3, 4 rows"),
        (np.array(["a"]), None, TypeError, "an array of <U1, text or objects, which Keras models take on TensorFlow"),
        (FRAME["a"], "a", ValueError, "features='a' names columns, and x is one column. Leave features out"),
        (FRAME, None, TypeError, "Column 't' of x holds text .*can't be in one matrix with"),
        (FRAME["t"], None, TypeError, "Column 't' of x is text, which Keras models take on TensorFlow alone"),
        (FRAME, ["missing"], ValueError, "missing"),
        (FRAME.assign(t=[[1], [2], [3]]), ["t"], TypeError, "'t' of x .*lists or objects|'t' of x is text"),
    ],
)
def test_what_can_not_be_is_refused_in_words(x, features, error, says):
    with pytest.raises(error, match=says):
        inputs(x, features=features)


def test_arrays_of_text_are_taken_where_the_model_takes_them():
    found = inputs([np.array(["a", "b"]), np.array(["a", None], object), np.ones(2)], takes_text=True)
    assert kinds(found) == [(TEXT, ()), (TEXT, ()), ("<f8", ())]
    assert kinds(inputs(np.array([b"a"]), as_frames=True)) == [("|S1", ())], "an estimator gets what there is"


def test_columns_of_a_frame_become_one_matrix_in_the_order_that_was_asked_for():
    found = inputs(FRAME, features=["b", "a"])
    assert kinds(found) == [("<f8", (2,))]
    assert [column["name"] for column in found.reads[0]["columns"]] == ["b", "a"]
    assert len(found.reads) == 1
    assert isinstance(found.frame, dd.DataFrame)
    assert found.frame.divisions[0] is None or found.frame.npartitions == 1
    assert found.frame.compute().index.tolist() == [7, 5, 6], "rows stay in their order"


@pytest.mark.parametrize("as_frames", [True, False])
@pytest.mark.parametrize("x", [FRAME[["a", "b"]], FRAME["a"]], ids=["frame", "column"])
def test_an_index_of_several_levels_is_refused(x, as_frames):
    x = x.set_axis(pd.MultiIndex.from_arrays([[1, 1, 2], [1, 2, 1]]), axis=0)
    with pytest.raises(ValueError, match=r"x has an index of 2 levels, which .* Pass x\.reset_index\(\)"):
        inputs(x, as_frames=as_frames)


def test_one_column_has_no_matrix():
    for x, features in ((FRAME["b"], None), (FRAME, "b")):
        assert kinds(inputs(x, features=features)) == [("<f8", ())]


def test_text_of_a_frame_is_an_array_of_text():
    assert kinds(inputs(FRAME["t"], takes_text=True)) == [(TEXT, ())]
    assert kinds(inputs(FRAME, features=["t"], takes_text=True)) == [(TEXT, (1,))]
    both = inputs(FRAME, features={"words": "t", "number": "b"}, takes_text=True)
    assert both.columns.features == {"words": 0, "number": 1}
    assert kinds(both) == [(TEXT, ()), ("<f8", ())]


def test_an_estimators_frame_stays_one_with_the_columns_that_it_needs():
    frame = dd.from_pandas(FRAME, npartitions=2, sort=False)
    whole, some, one = (inputs(frame, features=features, as_frames=True) for features in (None, ["t", "a"], "b"))
    assert (list(whole.frame.columns), list(some.frame.columns)) == (["a", "b", "t"], ["t", "a"])
    assert one.frame.name == "b"
    assert {(each.reads, each.columns.columns, each.arrays) for each in (whole, some, one)} == {(None, (), ())}
    with pytest.raises(TypeError, match="is for models of several inputs; name one column, or a list of them"):
        inputs(frame, features={"x": "a"}, as_frames=True)
