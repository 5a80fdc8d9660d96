"""Structures of arrays, and of the numbers of their columns."""

from __future__ import annotations

from typing import NamedTuple

from dask_train.data.structure import filled, leaves, numbered


def test_arrays_are_numbered_in_order_and_put_back():
    structure, flat = {"a": "x1", "b": {"c": ("x2", None)}, "d": ["x3"]}, []
    places = numbered(structure, flat)
    assert (places, flat) == ({"a": 0, "b": {"c": (1, None)}, "d": [2]}, ["x1", "x2", "x3"])
    assert filled(places, flat.__getitem__) == structure


class Pair(NamedTuple):
    first: str
    second: list[str]


def test_places_in_named_tuples_are_in_plain_ones():
    flat = []
    places = numbered(Pair("x1", ["x2"]), flat)
    assert (type(places), places, flat) == (tuple, (0, [1]), ["x1", "x2"])


def test_named_tuples_are_filled_as_such():
    assert filled(Pair(0, [1]), "ab".__getitem__) == Pair("a", ["b"])
    assert type(filled(Pair(0, [1]), "ab".__getitem__)) is Pair


def test_leaves_are_what_is_there():
    assert leaves(None) == []
    assert leaves("x") == ["x"]
    assert leaves(({"one": "c", "two": ("d", None)}, "e")) == ["c", "d", "e"]
