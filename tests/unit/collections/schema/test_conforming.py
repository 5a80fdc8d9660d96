"""Frames are made like the one that a model was fitted with."""

from __future__ import annotations

from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.conforming import (
    conformed,
    matched,
    without_missing_codes,
    without_missing_labels,
)
from dask_train.collections.schema.frame_schema import FrameSchema

WHOLE = pd.DataFrame({"a": np.arange(6.0), "kind": pd.Categorical(["u", "v", "u"] * 2), 7: pd.Categorical(["x"] * 6)})
TORN = WHOLE.assign(kind=pd.Categorical(["u", None, "u", None, None, "v"]))
TORN[7] = pd.Categorical(["x", "x", None, "x", "x", "x"])
SCHEMA = FrameSchema.of(WHOLE, ["kind", "a"])


def lazily(frame: Any) -> Any:
    return dd.from_pandas(frame, npartitions=2)


def computed(given: Any) -> Any:
    return dask.compute(given, scheduler="sync")[0]


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
@pytest.mark.parametrize(("name", "missing"), [("kind", "[123]"), (7, "1")])
@pytest.mark.parametrize("is_label", [True, False], ids=["label", "feature"])
def test_a_missing_label_or_code_is_an_error(kind: Any, name: Any, missing: str, is_label: bool) -> None:
    check = without_missing_labels if is_label else without_missing_codes
    pd.testing.assert_frame_equal(computed(check("data", kind(WHOLE), [name])), WHOLE)
    told = "labels of data are missing: column" if is_label else "values of column"
    with pytest.raises(ValueError, match=rf"{missing} {told} {name!r} .*dropna\(subset=\[{name!r}\]\)"):
        computed(check("data", kind(TORN), [name]))


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
def test_so_it_is_of_a_column_and_of_a_frame_of_labels(kind: Any) -> None:
    for label in (kind(WHOLE)["kind"], kind(WHOLE)[["kind"]]):
        assert computed(without_missing_labels("data", label)).shape[0] == 6
    for label in (kind(TORN)["kind"], kind(TORN)[["kind"]]):
        with pytest.raises(ValueError, match="labels of data are missing: column 'kind'"):
            computed(without_missing_labels("data", label))


def test_what_is_no_category_and_no_label_may_be_missing() -> None:
    holes = TORN.assign(a=np.nan)
    assert without_missing_labels("data", holes, ["a", "none"]) is holes
    assert without_missing_labels("data", holes["a"]) is not None
    for other in (np.ones(3), None, [1, 2], "kind", []):
        assert without_missing_labels("data", other, ["kind"]) is other


@pytest.mark.parametrize("kind", [lambda frame: frame, lazily], ids=["pandas", "dask"])
@pytest.mark.parametrize("name", ["kind", 7])
def test_categories_are_mapped_by_value_and_other_columns_stay(kind: Any, name: Any) -> None:
    given = WHOLE.assign(kind=pd.Categorical(WHOLE["kind"], categories=["z", "v", "u"]))
    given[7] = pd.Categorical(given[7], categories=["y", "x"])
    column = next(each for each in FrameSchema.of(WHOLE).columns if each.name == name)
    found = computed(conformed("x", kind(given), [(name, column)], coded=True))
    pd.testing.assert_series_equal(found[name], WHOLE[name])
    others = [each for each in WHOLE if each != name]
    pd.testing.assert_frame_equal(found[others], given[others])
    alone = computed(conformed("x", kind(given)[name], [(name, column)], coded=True))
    pd.testing.assert_series_equal(alone, WHOLE[name])


KINDS = pd.DataFrame(
    {"u": pd.Categorical(["x"]), "n": [1], "t": pd.array(["t"], "string"), "d": pd.to_datetime(["2024"]), 7: [[1]]}
)


@pytest.mark.parametrize("dtype", ["float64", "object", "Int8", "datetime64[s]", "category", "complex128", "string"])
@pytest.mark.parametrize("coded", [True, False])
def test_a_column_without_rows_is_taken_whatever_its_dtype(dtype: str, coded: bool) -> None:
    """Nothing tells what a partition without rows would hold: a bag's has float64."""
    schema = FrameSchema.of(KINDS)
    pairs = [(column.name, column) for column in schema.columns]
    empty = pd.DataFrame({name: pd.Series([], dtype=dtype) for name in KINDS})
    found = conformed("data", empty, pairs, coded=coded)
    pd.testing.assert_frame_equal(conformed("data", found, pairs, coded=coded), found)
    assert (len(found), list(found), found["u"].dtype) == (0, list(KINDS), KINDS["u"].dtype)
    with pytest.raises(TypeError, match="so it can't hold the same values"):
        conformed("data", lazily(empty.astype({"n": "category"})), pairs, coded=coded)


@pytest.mark.parametrize("features", [None, ["a", "kind"], ["kind", "a"], ("a", "kind")])
def test_features_come_in_the_order_of_the_model(features: Any) -> None:
    found, pairs = matched("x", SCHEMA, features, ["z", "a", "kind"])
    assert found == ["kind", "a"]
    assert [(name, column.name) for name, column in pairs] == [("kind", "kind"), ("a", "a")]


def test_a_single_name_says_which_column_it_stands_for() -> None:
    schema = FrameSchema.of(WHOLE, {"one": "kind", "two": ["a", 7]})
    found, pairs = matched("x", schema, {"two": [7, "a"], "one": "sort"}, ["sort", "a", 7])
    assert found == {"one": "sort", "two": ["a", 7]}
    assert [(name, column.name) for name, column in pairs] == [("sort", "kind"), ("a", "a"), (7, 7)]
    assert matched("x", FrameSchema.of(WHOLE, "kind"), "sort", ["sort"])[0] == "sort"


def test_columns_that_have_changed_places_go_where_they_are_named() -> None:
    schema, known = FrameSchema.of(WHOLE, {"one": "kind", "two": 7}), ["kind", 7]
    found, pairs = matched("x", schema, {"one": 7, "two": "kind"}, known)
    assert found == {"one": 7, "two": "kind"}
    assert [(name, column.name) for name, column in pairs] == [(7, "kind"), ("kind", 7)]
    for features in (None, {"two": 7, "one": "kind"}):
        found, pairs = matched("x", schema, features, known)
        assert (found, [name for name, _ in pairs]) == ({"one": "kind", "two": 7}, known)
        with pytest.raises(ValueError, match="x has no column 'kind', which the model was fitted with"):
            matched("x", schema, features, [7])
    with pytest.raises(ValueError, match="so which column means what is not known"):
        matched("x", schema, {"other": "kind", "two": 7}, known)


@pytest.mark.parametrize("features", [["a", "b"], ["a"], "kind", {"one": "kind"}])
def test_other_features_are_refused(features: Any) -> None:
    with pytest.raises(ValueError, match=r"features=.* of x, and the model was fitted with \['kind', 'a'\].*rename"):
        matched("x", SCHEMA, features, ["a", "b", "kind"])


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"x has no column 'kind', which the model was fitted with. It has 'a', 'sort'"
    ):
        matched("x", SCHEMA, None, ["a", "sort"])


def test_a_model_of_several_frames_knows_its_columns_by_name_alone() -> None:
    schema = FrameSchema(columns=SCHEMA.columns)
    assert matched("x", schema, ["a", "b"], ["a", "b"]) == (["a", "b"], [("a", SCHEMA.columns[1])])
    assert matched("x", schema, None, ["b", "kind"]) == (None, [("kind", SCHEMA.columns[0])])


def test_a_name_stands_for_a_list_of_it_alone() -> None:
    schema = FrameSchema.of(WHOLE, {"m": ["a"], "k": "kind"})
    for features in ({"m": "a", "k": "kind"}, {"m": "a", "k": ["kind"]}):
        assert matched("x", schema, features, ["a", "kind"])[0] == schema.features
    renamed, pairs = matched("x", schema, {"m": "a", "k": "other"}, ["a", "other"])
    assert (renamed, [name for name, _ in pairs]) == ({"m": ["a"], "k": "other"}, ["a", "other"])
    with pytest.raises(ValueError, match="so which column means what"):
        matched("x", schema, {"m": "b", "k": "kind"}, ["b", "kind"])
