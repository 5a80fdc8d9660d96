"""Columns of categories as indicators."""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.linear_model.categories import categories_of, with_indicators

FRAME = pd.DataFrame({"n": [1.0, 2.0, 3.0], "c": pd.Categorical(["b", "a", "b"], ["b", "a", "z"]), "m": [4, 5, 6]})
TURNED = pd.DataFrame(
    {"n": [1.0, 2.0, 3.0], "c[b]": [1.0, 0.0, 1.0], "c[a]": [0.0, 1.0, 0.0], "c[z]": [0.0] * 3, "m": [4, 5, 6]}
)


@pytest.mark.parametrize("of_dask", [False, True])
def test_indicators_stand_where_the_column_was(of_dask):
    frame = dd.from_pandas(FRAME, npartitions=2) if of_dask else FRAME
    categories = categories_of(frame)
    assert {name: list(known) for name, known in categories.items()} == {"c": ["b", "a", "z"]}
    turned = with_indicators(frame, categories)
    assert list(turned.columns) == list(TURNED.columns)
    found = turned.compute() if of_dask else turned
    pd.testing.assert_frame_equal(found.reset_index(drop=True), TURNED)


def test_other_rows_get_the_indicators_of_those_that_were_fitted():
    """Whatever order their own categories have, and also as plain text."""
    categories = categories_of(FRAME)
    for others in (pd.Categorical(["a", "b"], ["a", "b"]), ["a", "b"]):
        turned = with_indicators(pd.DataFrame({"c": others}), categories)
        np.testing.assert_array_equal(turned.to_numpy(), [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("odd", ["new", None])
def test_what_is_none_of_them_is_named(odd):
    rows = pd.DataFrame({"c": ["a", odd]})
    with pytest.raises(
        ValueError, match=r"Column 'c' has (nan|None|<NA>|'new'), which is none of the categories .*'b', 'a', 'z'"
    ):
        with_indicators(rows, categories_of(FRAME))


def test_categories_that_dask_does_not_know():
    frame = dd.from_pandas(FRAME.astype({"c": "object"}), npartitions=1).astype({"c": "category"})
    with pytest.raises(ValueError, match=r"column 'c' are not known .* X.categorize\(columns=\['c'\]\) first"):
        categories_of(frame)


def test_arrays_have_none():
    assert categories_of(np.eye(2)) == {}
    assert categories_of(FRAME["n"]) == {}


@pytest.mark.parametrize(
    ("frame", "twice"),
    [
        (pd.DataFrame({"c": pd.Categorical(["x", "y"]), "c[x]": [1.0, 2.0]}), r"'c\[x\]'"),
        (pd.DataFrame({"c": pd.Categorical([1, "1"], [1, "1"])}), r"'c\[1\]'"),
        (pd.concat([FRAME, FRAME[["n"]]], axis=1), "'n'"),
    ],
    ids=["a column", "categories", "columns"],
)
def test_no_column_takes_the_place_of_another_of_its_name(frame, twice):
    with pytest.raises(ValueError, match=f"X would have {twice} more than once, .* Rename such"):
        with_indicators(frame, categories_of(frame))
