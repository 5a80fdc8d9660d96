"""Values are found among categories by value: never by code, never as another value that looks alike."""

from __future__ import annotations

from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_train.collections.schema.category import (
    CategoryColumn,
    check_none_missing,
    codes_by_value,
    family_of,
    listed,
    same_values,
    with_categories,
)

PAYMENT = pd.CategoricalDtype(["card", "cash", "dispute"])
COLUMN = CategoryColumn.of("data", "payment", PAYMENT)


def series(*values: Any, categories: Any = None, dtype: Any = None) -> pd.Series:
    return pd.Series(values, name="payment", dtype=dtype or pd.CategoricalDtype(categories))


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("kind", [lambda column: column, lambda column: dd.from_pandas(column, npartitions=2)])
@pytest.mark.parametrize(
    "given",
    [
        series("cash", "dispute", categories=["cash", "dispute"]),
        series("cash", "dispute", categories=["dispute", "cash", "never there"]),
        series("cash", "dispute", dtype=object),
        series("cash", "dispute", dtype="string"),
        series("cash", "dispute", dtype=PAYMENT),
    ],
)
def test_a_column_gets_the_codes_of_its_values(given: pd.Series, kind: Any, coded: bool) -> None:
    made = COLUMN.conformed("x", kind(given), coded=coded)
    assert made.dtype == PAYMENT
    found = made.compute(scheduler="sync") if hasattr(made, "compute") else made
    assert found.cat.codes.tolist() == [1, 2]
    assert found.name == "payment"


def test_categories_that_dask_does_not_know_are_found_all_the_same() -> None:
    given = dd.from_pandas(series("dispute", "cash", dtype=object), npartitions=2).astype("category")
    assert not given.cat.known
    assert COLUMN.conformed("x", given, coded=True).cat.codes.compute(scheduler="sync").tolist() == [2, 1]
    with pytest.raises(
        ValueError, match=r"column 'payment' of data are not known yet.*categorize\(columns=\['payment'\]\)"
    ):
        CategoryColumn.of("data", "payment", given.dtype)


def test_the_very_column_is_given_back_where_nothing_is_to_be_done() -> None:
    given = series("cash", None, dtype=PAYMENT)
    assert COLUMN.conformed("x", given, coded=False) is given


def test_values_that_are_not_known_are_listed() -> None:
    given = series("cash", "voucher", *map(str, range(11)), dtype=object)
    with pytest.raises(
        ValueError, match=r"Column 'payment' of x has 'voucher', '0', .*'8' and 2 more, .*'card', 'cash'"
    ):
        COLUMN.conformed("x", given, coded=False)
    lazy = COLUMN.conformed("x", dd.from_pandas(given, npartitions=1), coded=True)
    with pytest.raises(ValueError, match="Column 'payment' of x has 'voucher'"):
        lazy.compute(scheduler="sync")


def test_a_missing_one_has_no_code() -> None:
    given = series("cash", None, categories=["cash"])
    assert COLUMN.conformed("x", given, coded=False).isna().tolist() == [False, True]
    for each in (given, series("cash", None, dtype=PAYMENT), series("cash", None, dtype=object)):
        with pytest.raises(ValueError, match=r"1 values of column 'payment' of x are missing.*fillna\('missing'\)"):
            COLUMN.conformed("x", each, coded=True)
    with pytest.raises(ValueError, match="1 labels of y are missing: column 'payment'"):
        check_none_missing("y", given, is_label=True)
    assert check_none_missing("y", given[:1]).tolist() == ["cash"]


@pytest.mark.parametrize(
    ("categories", "values", "codes"),
    [
        ([2, "a", True], [1, True, 2.0, "a", None], [-1, 2, 0, 1, -1]),
        ([1, 2], [1.0, 1.5, np.nan], [0, -1, -1]),
        ([2**53 + 1, 1], [2.0**53, 1.0], [-1, 1]),
        ([True, False], [1, 0], [-1, -1]),
        ([1, 0], [True, False], [-1, -1]),
        (["1"], [1], [-1]),
        (pd.interval_range(0, 2), [0.5], [-1]),
        (pd.interval_range(0, 2), pd.interval_range(1, 3), [1, -1]),
        (pd.interval_range(0, 2), pd.interval_range(0, 2, closed="left"), [-1, -1]),
        (pd.date_range("2024", periods=2), [pd.Timestamp("2024-01-02")], [1]),
        (pd.date_range("2024", periods=2), pd.date_range("2024", periods=1, tz="UTC"), [-1]),
        (
            pd.date_range("2024", periods=2, tz="UTC"),
            pd.date_range("2024-01-01T01", periods=1, tz="Europe/Berlin"),
            [0],
        ),
    ],
)
def test_a_value_is_no_other_that_looks_alike(categories: Any, values: Any, codes: list[int]) -> None:
    known = pd.Index(categories)
    column = pd.Series(values)
    assert codes_by_value(known, column)[0].tolist() == codes
    as_categories = pd.Series(pd.Categorical(values)) if None not in list(values) else None
    if as_categories is not None:
        assert codes_by_value(known, as_categories)[0].tolist() == codes


@pytest.mark.parametrize("given", [pd.Series([1, 2]), pd.Series([1, 2]).astype("category"), pd.Series([True])])
def test_a_dtype_that_can_not_hold_the_same_is_refused(given: pd.Series) -> None:
    for each in (given, dd.from_pandas(given, npartitions=1)):
        with pytest.raises(TypeError, match="and the model was fitted with categories of text in column 'payment'"):
            COLUMN.conformed("x", each, coded=True)


def test_columns_are_the_same_by_values_and_order() -> None:
    assert CategoryColumn.of("x", "payment", pd.CategoricalDtype(pd.Index(PAYMENT.categories, dtype=object))) == COLUMN
    assert hash(COLUMN) == hash(CategoryColumn.of("x", "payment", PAYMENT))
    assert CategoryColumn.of("x", "other", PAYMENT) != COLUMN
    assert CategoryColumn.of("x", "payment", pd.CategoricalDtype(["cash", "card", "dispute"])) != COLUMN
    assert CategoryColumn.of("x", "payment", pd.CategoricalDtype(PAYMENT.categories, ordered=True)) != COLUMN
    assert not same_values(pd.Index([1, 0]), pd.Index([True, False]))
    assert COLUMN.told() == "categories of text"


def test_an_order_stays_that_of_the_fit() -> None:
    sizes = pd.CategoricalDtype(["small", "large"], ordered=True)
    made = CategoryColumn.of("x", "size", sizes).conformed("x", series("large", dtype=object), coded=True)
    assert made.cat.ordered
    assert made.cat.codes.tolist() == [1]


def test_words_for_kinds_of_values() -> None:
    assert family_of(pd.Index(["a"], dtype=object)) == "text"
    assert family_of(pd.to_timedelta([1])) == "spans of time"
    assert family_of(pd.Index([1, "a"], dtype=object)) == "objects"
    assert listed(list(range(12))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_a_partition_without_rows_has_the_categories_too() -> None:
    assert with_categories("x", PAYMENT, "codes", pd.Series([], dtype=object, name="payment")).dtype == PAYMENT


def test_what_json_has_no_place_for_names_the_column() -> None:
    with pytest.raises(TypeError, match="Categories of column 'when': Period"):
        CategoryColumn.of("x", "when", pd.CategoricalDtype(pd.period_range("2024", periods=1, freq="M"))).to_json()
