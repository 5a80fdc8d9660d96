"""Columns of categories as indicators."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.linear_model.categories import schema_to_learn, with_indicators

FRAME = pd.DataFrame({"n": [1.0, 2.0, 3.0], "c": pd.Categorical(["b", "a", "b"], ["b", "a", "z"]), "m": [4, 5, 6]})
TURNED = pd.DataFrame(
    {"n": [1.0, 2.0, 3.0], "c[b]": [1.0, 0.0, 1.0], "c[a]": [0.0, 1.0, 0.0], "c[z]": [0.0] * 3, "m": [4, 5, 6]}
)


@pytest.mark.parametrize("of_dask", [False, True])
def test_indicators_stand_where_the_column_was(of_dask):
    frame = dd.from_pandas(FRAME, npartitions=2) if of_dask else FRAME
    schema = schema_to_learn(frame)
    assert schema.categories == {"c": ["b", "a", "z"]}
    turned = with_indicators(frame, schema)
    assert list(turned.columns) == list(TURNED.columns)
    found = turned.compute() if of_dask else turned
    pd.testing.assert_frame_equal(found.reset_index(drop=True), TURNED)


def test_other_rows_get_the_indicators_of_those_that_were_fitted():
    """Whatever order their own categories have, and also as plain text."""
    for others in (pd.Categorical(["a", "b"], ["a", "b"]), ["a", "b"]):
        turned = with_indicators(pd.DataFrame({"c": others}), schema_to_learn(FRAME))
        np.testing.assert_array_equal(turned.to_numpy(), [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            ["a", "new", "newer"],
            "'c' of X has 'new', 'newer', and the model is fitted with the categories 'b', 'a'",
        ),
        (["a", None], "1 values of column 'c' of X are missing, which is none of the categories of the model"),
    ],
)
def test_what_is_none_of_them_is_named(rows, told):
    with pytest.raises(ValueError, match=told):
        with_indicators(pd.DataFrame({"c": rows}), schema_to_learn(FRAME))


def test_a_value_is_no_other_that_looks_alike():
    known = schema_to_learn(pd.DataFrame({"c": pd.Categorical([0, 1])}))
    for values in ([True, False], ["0", "1"]):
        with pytest.raises(TypeError, match="the model was fitted with categories of numbers in column 'c'"):
            with_indicators(dd.from_pandas(pd.DataFrame({"c": values}), npartitions=1), known)


def test_categories_that_dask_does_not_know():
    frame = dd.from_pandas(FRAME.astype({"c": "object"}), npartitions=1).astype({"c": "category"})
    with pytest.raises(ValueError, match=r"column 'c' of X are not known .* frame.categorize\(columns=\['c'\]\)"):
        schema_to_learn(frame)
    turned = with_indicators(frame, schema_to_learn(FRAME))
    assert turned["c[b]"].compute(scheduler="sync").tolist() == [1.0, 0.0, 1.0], "values are found all the same"


def test_rows_that_are_no_frame_of_numbers_or_categories_have_none():
    assert schema_to_learn(np.eye(2)) is None
    assert schema_to_learn(FRAME["c"]) is None
    assert schema_to_learn(FRAME[["n", "m"]].assign(text="a")) is None
    assert schema_to_learn(FRAME[["n", "n"]]) is None
    assert [column.name for column in schema_to_learn(FRAME[["n", "m"]]).columns] == ["n", "m"]


@pytest.mark.parametrize(
    ("frame", "twice"),
    [
        (pd.DataFrame({"c": pd.Categorical(["x", "y"]), "c[x]": [1.0, 2.0]}), r"'c\[x\]'"),
        (pd.DataFrame({"c": pd.Categorical([1, "1"], [1, "1"])}), r"'c\[1\]'"),
    ],
    ids=["a column", "categories"],
)
def test_no_column_takes_the_place_of_another_of_its_name(frame, twice):
    with pytest.raises(ValueError, match=f"X would have {twice} more than once, .* Rename such"):
        with_indicators(frame, schema_to_learn(frame))
