"""Structures of arrays, and of the numbers of their columns."""

from __future__ import annotations

from dask_train.data.structure import filled, leaves, numbered


def test_arrays_are_numbered_in_order_and_put_back():
    structure, flat = {"a": "x1", "b": {"c": ("x2", None)}, "d": ["x3"]}, []
    places = numbered(structure, flat)
    assert (places, flat) == ({"a": 0, "b": {"c": (1, None)}, "d": [2]}, ["x1", "x2", "x3"])
    assert filled(places, flat.__getitem__) == structure


def test_leaves_are_what_is_there():
    assert leaves(None) == []
    assert leaves("x") == ["x"]
    assert leaves(({"one": "c", "two": ("d", None)}, "e")) == ["c", "d", "e"]
