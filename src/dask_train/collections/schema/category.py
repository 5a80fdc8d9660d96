"""Columns of categories: models learn their codes, so values of later frames are mapped to the same codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dask_train.collections.partition.kinds import ways_to_categories
from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.plain import is_number, is_text
from dask_train.collections.schema.values import index_from_json, index_to_json
from dask_train.compat.dask import has_meta

# How many values an error names.
_NAMED = 10
# Of Dask, in place of categories that it does not know: dask.dataframe.utils.UNKNOWN_CATEGORIES.
_UNKNOWN = "__UNKNOWN_CATEGORIES__"
# What pandas infers of objects, as errors call it.
_FAMILIES = {"string": "text", "boolean": "truth values", "integer": "numbers", "floating": "numbers"}


@dataclass(frozen=True, kw_only=True, eq=False)
class CategoryColumn(FrameColumn):
    """A column of categories.

    Attributes
    ----------
    categories
        A ``pandas.Index`` of the values, in the order of their codes.
    ordered
        Whether the order means something, as of small, medium, large.
    """

    kind: ClassVar[str] = "category"
    categories: Any
    ordered: bool

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Return whether it is a dtype of categories."""
        return hasattr(dtype, "categories")

    @classmethod
    def of(cls, what: str, name: Any, dtype: Any) -> Self:
        """Describe it by the categories of its dtype."""
        if _UNKNOWN in dtype.categories.tolist():
            raise ValueError(
                f"The categories of column {name!r} of {what} are not known yet, so each partition would have codes of "
                f"its own. Make them known, with {ways_to_categories(name)}."
            )
        return cls(name=name, categories=dtype.categories, ordered=bool(dtype.ordered))

    @classmethod
    def of_names(cls, name: Any, names: Sequence[str]) -> Self:
        """Describe a column of numbers of names."""
        import pandas as pd

        return cls(name=name, categories=pd.Index(list(names), dtype=object), ordered=False)

    @classmethod
    def from_settings(cls, name: Any, settings: dict[str, Any]) -> Self:
        """Return the column."""
        return cls(name=name, categories=index_from_json(settings["categories"]), ordered=settings["ordered"])

    def settings(self) -> dict[str, Any]:
        """Return the categories with their values."""
        try:
            return {"ordered": self.ordered, "categories": index_to_json(self.categories)}
        except TypeError as error:
            raise TypeError(f"Categories of column {self.name!r}: {error}") from error

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CategoryColumn)
            and (self.name, self.ordered) == (other.name, other.ordered)
            and same_values(self.categories, other.categories)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.ordered, len(self.categories)))

    @property
    def dtype(self) -> Any:
        """The dtype of pandas."""
        import pandas as pd

        return pd.CategoricalDtype(self.categories, ordered=self.ordered)

    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return a column with these categories, whose values are those of the column."""
        import pandas as pd

        categories = getattr(column.dtype, "categories", None)
        is_same = (
            categories is not None and same_values(categories, self.categories) and column.dtype.ordered == self.ordered
        )
        if is_same and not coded:
            return column
        known = categories is not None and _UNKNOWN not in categories.tolist()
        if known or categories is None:
            of_values = family_of(categories if known else pd.Index([], dtype=column.dtype))
            own = family_of(self.categories)
            if (categories is None or len(categories)) and of_values not in (own, "objects"):
                raise self._other(what, column, f"Make values of it that are {own}.")
        task = partial(with_categories, what, self.dtype, None if not coded else "codes")
        if not has_meta(column):
            return task(column)
        return column.map_partitions(task, meta=pd.Series([], dtype=self.dtype, name=column.name))

    def without_rows(self, column: Any) -> Any:
        """Return an empty column with these categories."""
        return super().without_rows(column).astype(self.dtype)

    def told(self) -> str:
        """Return the categories in words."""
        return f"categories of {family_of(self.categories)}"


def with_categories(what: str, dtype: Any, coded: str | None, column: Any) -> Any:
    """Return a column of pandas with the categories of a dtype; values are matched by value, never by code.

    Parameters
    ----------
    what
        How errors call the data.
    dtype
        A ``pandas.CategoricalDtype``.
    coded
        Not None if a missing category is an error, as its code would be -1.
    column
        Of categories, or of values.

    Raises
    ------
    ValueError
        A value is not one of the categories; or one is missing.
    """
    import pandas as pd

    codes, unknown = codes_by_value(dtype.categories, column)
    if unknown:
        raise ValueError(
            f"Column {column.name!r} of {what} has {listed(unknown)}, and the model is fitted with the categories "
            f"{listed(dtype.categories.tolist())}. Leave such rows out, or give them a category that is known; or fit "
            "a model with all of the categories."
        )
    if coded is not None:
        check_none_missing(what, column)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype), index=column.index, name=column.name)


def check_none_missing(what: str, column: Any, *, is_label: bool = False) -> Any:
    """Return a column of pandas, of which no category is missing.

    Raises
    ------
    ValueError
        One is.
    """
    missing = int(column.isna().sum())
    if not missing:
        return column
    name = column.name
    if is_label:
        raise ValueError(
            f"{missing:,} labels of {what} are missing: column {name!r} has no category there, and its code would be "
            f"-1, a class of its own. Leave such rows out, with frame.dropna(subset=[{name!r}]); for a loss that "
            f"ignores -1 pass the codes themselves, frame[{name!r}].cat.codes."
        )
    raise ValueError(missing_values(what, name, missing, "; other partitions may have more"))


def missing_values(what: str, name: Any, missing: int, more: str = "") -> str:
    """Return the text of an error about missing values of a column, for a model that takes codes."""
    return (
        f"{missing:,} values of column {name!r} of {what} are missing, which is none of the categories of the "
        f"model{more}. As a code it would be -1, which an embedding takes for its last row. Leave such rows out, with "
        f"frame.dropna(subset=[{name!r}]); or give missing values a category of their own where the model is fitted "
        f"and later: {{{name!r}: frame[{name!r}].fillna('missing')}} in frame.assign of text, and "
        f"frame[{name!r}].cat.add_categories('missing').fillna('missing') of categories."
    )


def codes_by_value(categories: Any, column: Any) -> tuple[np.ndarray, list[Any]]:
    """Find the values of a column among categories.

    Parameters
    ----------
    categories
        A ``pandas.Index`` without duplicates.
    column
        A Series of pandas: categories of its own, or values.

    Returns
    -------
    codes
        The place of each value, -1 for one that is missing or unknown.
    unknown
        Values that are there and none of the categories, each once.
    """
    import pandas as pd

    if hasattr(column.dtype, "categories"):
        own = column.cat.categories
        if same_values(own, categories):
            return column.cat.codes.to_numpy(), []
        places = _places(categories, own)
        codes = column.cat.codes.to_numpy()
        used = np.unique(codes[codes >= 0])
        mapped = np.append(places, -1)[codes]  # code -1 takes the last one
        return mapped, own.take(used[places[used] < 0]).tolist()
    values = pd.Index(column)
    codes = _places(categories, values)
    odd = (codes < 0) & ~column.isna().to_numpy(bool)
    return codes, values[odd].unique().tolist()


def _places(categories: Any, values: Any) -> np.ndarray:
    """Return the place of each value among categories, -1 if it is none of them."""
    own, theirs = family_of(categories), family_of(values)
    if own != theirs and "objects" not in (own, theirs):
        return np.full(len(values), -1)
    # An index of intervals would find the one around a number, and one of floats would round large integers.
    rounds = own == "numbers" and categories.dtype.kind != values.dtype.kind
    if rounds or own != theirs or own in ("intervals", "objects"):
        categories, values = categories.astype(object), values.astype(object)
    places: np.ndarray = categories.get_indexer(values)
    if categories.dtype == object and own != "text":  # True, 1 and 1.0 are one key
        mixed = [place for place, code in enumerate(places) if code >= 0]
        for place in mixed:
            if isinstance(categories[places[place]], bool | np.bool_) != isinstance(values[place], bool | np.bool_):
                places[place] = -1
    return places


def same_values(some: Any, others: Any) -> bool:
    """Return whether two indexes have the same values of the same family in the same order, whatever their dtypes."""
    if len(some) != len(others) or family_of(some) != family_of(others):
        return False
    return some is others or bool((_places(others, some) == np.arange(len(some))).all())


def family_of(index: Any) -> str:
    """Name what values of an index are, in a word for errors: those of two families are never the same."""
    import pandas as pd

    dtype = index.dtype
    if is_text(dtype):
        return "text"
    if isinstance(dtype, pd.IntervalDtype):
        return "intervals"
    if is_number(dtype):
        return "truth values" if dtype.kind == "b" else "numbers"
    if dtype.kind == "M":
        return "dates" if getattr(dtype, "tz", None) is None else "dates with a time zone"
    kind = "spans of time" if dtype.kind == "m" else pd.api.types.infer_dtype(index, skipna=True)
    return _FAMILIES.get(kind, kind if dtype.kind == "m" else "objects")


def listed(values: Sequence[Any]) -> str:
    """Name some of several values."""
    more = f" and {len(values) - _NAMED:,} more" if len(values) > _NAMED else ""
    return ", ".join(map(repr, values[:_NAMED])) + more
