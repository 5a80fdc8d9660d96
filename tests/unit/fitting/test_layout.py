"""Structures of inputs and targets as flat columns, and back."""

from __future__ import annotations

import pytest

from dask_train.fitting.layout import Layout, leaves


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
    layout, columns = Layout.of(x, y, weight)
    assert columns == flat
    assert layout.pack(columns) == (x, y, weight)
    assert [place for part in (layout.x, layout.y, layout.sample_weight) for place in leaves(part)] == list(
        range(len(flat))
    )


def test_a_tuple_of_columns():
    assert Layout.of_batch(1) == Layout(x=0)
    assert Layout.of_batch(3).pack("abc") == ("a", "b", "c")
