"""How data is taken apart, and which columns are picked: each once, by its name."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_train.collections.partition.form import chosen, open_form, picks_of, resolved

FRAME = pd.DataFrame({"a": [1], "b": [2], 3: [4]})


@pytest.mark.parametrize(
    ("data", "names", "is_tuple", "values"),
    [
        ({"x": 1, 2: 5}, ("x", "2"), False, [1, 5]),
        ((1, 2), None, True, [1, 2]),
        ([1], None, True, [1]),
        (7, None, False, [7]),
    ],
)
def test_values_keep_their_order_and_how_they_were_put(data, names, is_tuple, values):
    form = open_form("data", data)
    assert (form["names"], form["is_tuple"], form["values"]) == (names, is_tuple, values)


@pytest.mark.parametrize("data", [{}, (), []])
def test_no_values_are_refused(data):
    with pytest.raises(ValueError, match="data is empty"):
        open_form("data", data)


def test_keys_that_are_the_same_as_text_are_refused():
    """Batches are dicts by text: one of the two would stand for both."""
    with pytest.raises(ValueError, match="names '1' more than once"):
        open_form("data", {1: "x", "1": "y"})


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "", "ab", 0, 1, 7]), unique=True, min_size=2), st.data())
def test_each_column_is_a_label_or_a_feature_once(known, data):
    label = data.draw(st.sampled_from(known))
    (features, is_matrix), (labels, _) = resolved("data", known, picks_of("data", None, label)["arrays"])
    assert (features, is_matrix) == ([name for name in known if name != label], True)
    assert labels == [label]


def test_names_are_taken_in_the_order_given():
    assert resolved("data", list("abc"), [["c", "a"], "b"]) == [(["c", "a"], True), (["b"], False)]
    assert chosen("data", list("abc"), ("c", "a"), "b") == (None, ["c", "a"], "b")
    assert chosen("data", list("abc"), "c", None) == ("c", None, None)
    form = open_form("data", {"b": "of b", "a": "of a"}, picks_of("data", "a", "b"))
    assert (form["values"], form["is_tuple"]) == (["of a", "of b"], True)
    assert open_form("data", FRAME, picks_of("data", "a", 3))["values"][0] is FRAME


@pytest.mark.parametrize(
    ("known", "arrays", "told"),
    [
        (["price", "b"], ["prise"], "no column 'prise'. The nearest: 'price'"),
        (["a", "b"], [["a", "a"]], "'a' more than once"),
        (["a", "a"], ["a"], "'a' more than once"),
        (["a", "a", "b"], [None, "b"], "'a' more than once"),
        (["a"], [None, "a"], "no column left for the features"),
        (["a"], [[]], "no column left for the features"),
    ],
)
def test_what_can_not_be_picked(known, arrays, told):
    with pytest.raises(ValueError, match=told):
        resolved("data", known, arrays)


def test_a_label_among_the_features_is_refused():
    for features in ("y", ["x", "y"]):
        with pytest.raises(ValueError, match="is the label and one of the features too"):
            picks_of("data", features, "y")
    with pytest.raises(TypeError, match="is no name"):
        picks_of("data", "x", ["y"])


def test_columns_of_what_has_none_are_refused():
    with pytest.raises(ValueError, match="name columns, and data is a list"):
        open_form("data", [1, 2], picks_of("data", "a", None))
    with pytest.raises(ValueError, match="one entry of a dict makes the features"):
        open_form("data", {"a": 1, "b": 2}, picks_of("data", ["a", "b"], None))
