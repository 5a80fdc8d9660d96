"""Which columns ``features=`` and ``label=`` name, and how they come."""

from __future__ import annotations

import pytest

from dask_train.data.columns import Column, Columns
from dask_train.data.selection import column_names, select

NUMBER, FLOAT, PICTURE = (Column(dtype=d, row_shape=s) for d, s in (("<i2", ()), ("<f4", ()), ("|u1", (28, 28))))
TEXT = Column(dtype="<U3", row_shape=())


def schema(*columns, names=None, is_tuple=False):
    return Columns(columns=columns, names=names, is_tuple=is_tuple)


BARE = schema(PICTURE)
PAIR = schema(PICTURE, NUMBER, is_tuple=True)
TRIPLE = schema(PICTURE, NUMBER, FLOAT, is_tuple=True)
NAMED = schema(PICTURE, NUMBER, FLOAT, TEXT, names=("image", "a", "b", "text"))


def test_names():
    assert column_names(BARE) == ("x",)
    assert column_names(TRIPLE) == ("x", "y", "2")
    assert column_names(NAMED) == ("image", "a", "b", "text")


@pytest.mark.parametrize(
    ("of", "features", "label", "given"),
    [
        (BARE, None, None, 0),
        (PAIR, None, None, (0, 1)),
        (schema(PICTURE, is_tuple=True), None, None, (0,)),
        (NAMED, None, None, {"image": 0, "a": 1, "b": 2, "text": 3}),
        (PAIR, "x", None, 0),
        (PAIR, "x", "y", (0, 1)),
        (PAIR, "y", "y", (1, 1)),
        (PAIR, None, "y", (0, 1)),
        (TRIPLE, None, "2", ((0, 1), 2)),
        (NAMED, "image", "a", (0, 1)),
        (NAMED, None, "a", ({"image": 0, "b": 2, "text": 3}, 1)),
        (NAMED, ["b", "a"], None, [2, 1]),
        (NAMED, ["b"], "a", ([2], 1)),
    ],
)
def test_what_is_given(of, features, label, given):
    selection = select(of, features, label)
    values = [list(field.columns) if field.is_matrix else field.columns[0] for field in selection.fields]
    assert selection.shaped(values) == given


def test_a_matrix_has_the_common_dtype():
    (field,) = select(NAMED, ["a", "b"], None).fields
    assert field.dtype == "<f4"
    (field,) = select(schema(NUMBER, Column(dtype="<f2", row_shape=()), names=("a", "b")), ["a", "b"], None).fields
    assert field.dtype == "<f4"  # int16 does not fit float16


@pytest.mark.parametrize(
    ("of", "features", "label", "message"),
    [
        (PAIR, "z", None, "There is no column 'z'; there are x, y."),
        (PAIR, None, "z", "There is no column 'z'"),
        (PAIR, ["y", "z"], None, "There is no column 'z'"),
        (BARE, None, "x", "label='x' is the only column, so no features are left"),
        (PAIR, "x", ["y"], "label is .'y'.; it is the name of one column, out of x, y"),
        (NAMED, [], None, "features is empty"),
        (NAMED, ["a", "image"], None, r"a row of column 'image' is uint8 \(28, 28\). Ask for it alone"),
        (NAMED, ["text"], None, "a row of column 'text' is <U3. Ask for it alone: features='text'"),
    ],
)
def test_what_is_refused(of, features, label, message):
    with pytest.raises(ValueError, match=message):
        select(of, features, label)
