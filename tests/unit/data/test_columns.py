"""What a data set's columns are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dask_train.data.columns import Column, Columns, SourceColumn, column_of, same_columns
from dask_train.data.file_decoder import FileDecoder
from dask_train.data.structure import leaves


def test_sizes():
    columns = (
        Column(dtype="<f4", row_shape=(2, 3)),
        Column(dtype="<i8", row_shape=()),
        Column(dtype="<i8", row_shape=(0,)),
    )
    assert [column.row_bytes for column in columns] == [24, 8, 0]
    assert Columns(columns=columns, names=None, is_tuple=True).row_bytes == 32
    found = columns[0].empty(5)
    assert (found.dtype.str, found.shape) == ("<f4", (5, 2, 3))


@pytest.mark.parametrize(
    ("x", "y", "weight", "flat"),
    [
        ("x", None, None, ("x",)),
        ("x", "y", None, ("x", "y")),
        ("x", "y", "w", ("x", "y", "w")),
        (["a", "b"], {"one": "c", "two": ("d", None)}, {"one": "w"}, ("a", "b", "c", "d", "w")),
        ({"a": "x1", "b": {"c": "x2"}}, "y", None, ("x1", "x2", "y")),
    ],
)
def test_there_and_back(x, y, weight, flat):
    columns, arrays = Columns.of(x, y, weight)
    assert arrays == flat
    assert columns.pack(arrays) == (x, y, weight)
    assert [place for part in columns.places().values() for place in leaves(part)] == list(range(len(flat)))


def test_a_tuple_of_columns():
    assert Columns.of_batch(1).places() == {"x": 0, "y": None, "sample_weight": None}
    assert not Columns.of_batch(1).are_known
    assert Columns.of_batch(3).pack("abc") == ("a", "b", "c")


def test_what_rows_are_is_told_by_a_partition():
    columns, row = Columns.of_batch(1), Column(dtype="<f4", row_shape=(2,))
    assert columns, "it says what the column is for"
    assert not columns.are_known
    origin = SourceColumn(name="kind", dtype=pd.CategoricalDtype(["u", "v"], ordered=True))
    columns = columns.with_origins({0: (origin,)})
    known = columns.with_rows([row])
    assert known.are_known
    assert [(each.dtype, each.row_shape) for each in known] == [("<f4", (2,))]
    assert (len(known), known.features, known.matrix) == (1, 0, known[0])
    assert known[0].origins == (origin,), "what a frame had told stays"


def test_what_lies_side_by_side_has_names_and_perhaps_categories():
    kind, number = (
        SourceColumn(name=1, dtype=pd.CategoricalDtype(["u", "v"])),
        SourceColumn(name="a", dtype=np.dtype("f4")),
    )
    column = Column(dtype="<f8", row_shape=(2,), origins=(kind, number))
    assert column.names == ("1", "a")
    assert [None if each is None else list(each) for each in column.categories] == [["u", "v"], None]
    assert (kind.is_ordered, SourceColumn(name="k", dtype=pd.CategoricalDtype(ordered=True)).is_ordered) == (
        False,
        True,
    )
    none = Column(dtype="<f8", row_shape=(2,))
    assert (none.names, none.categories) == (None, None)
    assert Column(dtype="<f8", row_shape=(1,), origins=(number,)).categories is None


def test_what_an_array_says_of_its_column():
    assert column_of(np.zeros((4, 2, 3), "f4")) == Column(dtype="<f4", row_shape=(2, 3))
    assert column_of(np.zeros(4, ">i2")) == Column(dtype=">i2", row_shape=())
    assert column_of(np.zeros(4, "S5")) == Column(dtype="|S5", row_shape=())
    assert column_of(np.zeros(4, "M8[ms]")) == Column(dtype="<M8[ms]", row_shape=())


def test_what_can_not_be_a_column():
    for array in (np.array(["a", None], dtype=object), np.zeros(2, dtype=[("x", object)])):
        with pytest.raises(TypeError, match="holds Python objects; make it numbers or text, with astype"):
            column_of(array)
    with pytest.raises(
        TypeError, match=r"an array of \[\('x', '<f4'\)\] would lose its type; make it arrays of numbers"
    ):
        column_of(np.zeros(2, dtype=[("x", "f4")]))
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(TypeError, match="an array of bfloat16 would lose its type"):
        column_of(np.zeros(2, ml_dtypes.bfloat16))


def test_partitions_have_the_same_columns():
    one, other = ((Column(dtype=dtype, row_shape=(2,)), Column(dtype="<i8", row_shape=())) for dtype in ("<f4", "<f8"))
    assert same_columns([(3, one), (1, one)]) == one
    text = (
        r"partition 0 has rows of float32 \(2,\) and rows of int64 numbers and partition 2 has rows of float64 \(2,\) "
        "and rows of int64 numbers; make them the same"
    )
    with pytest.raises(ValueError, match=text):
        same_columns([(3, one), (1, one), (2, other)])
    assert same_columns([]) == ()


def test_partitions_without_rows_say_nothing():
    one, other = ((Column(dtype=dtype, row_shape=()),) for dtype in ("<f4", "|O"))
    assert same_columns([(0, other), (3, one), (0, other), (1, one)]) == one
    assert same_columns([(3, one), (0, other)]) == one
    assert same_columns([(0, one), (0, other)]) == one


def test_columns_of_files_are_decoded_in_batches_alone():
    decoder = FileDecoder.of(len, None, np.zeros((2, 3), "f4"))
    files, plain = Column(dtype="|O", row_shape=(2,), decoder=decoder), Column(dtype="<i8", row_shape=())
    columns = Columns(columns=(files, plain))
    assert columns.are_decoded
    assert columns.in_batch.columns == (Column(dtype="<f4", row_shape=(2, 3)), plain)
    assert not columns.in_batch.are_decoded
    assert files.stored.row_shape == (2, 2)
    told = columns.with_rows([Column(dtype="|O", row_shape=(2,)), plain])
    assert told == columns, "a partition does not know how they are decoded"
