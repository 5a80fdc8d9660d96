"""Logs as all backends take them."""

from __future__ import annotations

from dask_train.fitting.backends.base import Derived, flat


def test_logs_within_logs_are_among_them():
    logs = {"loss": 1, "parts": {"a": 2, "deep": {"b": 3, "none": {}}}, "c": [4]}
    assert flat(logs) == {"loss": 1, "a": 2, "b": 3, "c": [4]}
    assert list(flat(logs)) == ["loss", "a", "b", "c"]
    assert flat({"a": {"b": 1}, "b": 2}) == {"b": 2}, "as in Keras, the last one of a name"
    assert flat(None) == flat(()) == {}, "of a step that tells nothing"


def test_of_logs_of_which_nothing_is_known_none_is_computed_again():
    assert (Derived().names, list(Derived().again()), Derived().raw) == ((), [], frozenset())
