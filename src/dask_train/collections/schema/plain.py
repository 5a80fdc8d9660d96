"""Columns that are known by their dtype: numbers and truth values, text, and any other kind.

What others hold, such as objects, dates and arrays in rows, is seen when they are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dask_train.collections.schema.column import DtypeColumn, FrameColumn


@dataclass(frozen=True, kw_only=True)
class NumberColumn(DtypeColumn):
    """A column of numbers or truth values."""

    kind: ClassVar[str] = "number"

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Return whether it is a dtype of numbers."""
        return is_number(dtype)

    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return the very column, whose numbers may be wider or narrower; a model takes them in its own type."""
        _ = coded
        if not is_number(column.dtype) or (column.dtype.kind == "c" and "complex" not in self.dtype):
            raise self._other(what, column, f"Make numbers of it, for example with .astype({self.dtype!r}).")
        return column

    def without_rows(self, column: Any) -> Any:
        """Return an empty column of numbers."""
        return super().without_rows(column).astype(self.dtype)

    def told(self) -> str:
        """Return the dtype in words."""
        return f"numbers ({self.dtype})"


def is_number(dtype: Any) -> bool:
    """Return whether values of that dtype are numbers or truth values, perhaps with missing ones."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biufc"
    return getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories")


@dataclass(frozen=True, kw_only=True)
class OtherColumn(DtypeColumn):
    """A column of which the dtype does not tell the values."""

    kind: ClassVar[str] = "other"

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Return whether no other kind has it."""
        _ = dtype
        return True

    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return the very column, where it may hold the same."""
        _ = coded
        if is_number(column.dtype) or hasattr(column.dtype, "categories"):
            raise self._other(what, column, f"Make it {self.dtype} as before.")
        return column

    def told(self) -> str:
        """Return the dtype."""
        return self.dtype


@dataclass(frozen=True, kw_only=True)
class TextColumn(FrameColumn):
    """A column of text that the model takes as it is."""

    kind: ClassVar[str] = "text"

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Return whether it is a dtype of text."""
        return is_text(dtype)

    @classmethod
    def of(cls, what: str, name: Any, dtype: Any) -> Self:
        """Describe it."""
        _ = what, dtype
        return cls(name=name)

    @classmethod
    def from_settings(cls, name: Any, settings: dict[str, Any]) -> Self:
        """Return the column."""
        _ = settings
        return cls(name=name)

    def settings(self) -> dict[str, Any]:
        """Return nothing besides the kind."""
        return {}

    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return the very column; objects may be text, too."""
        _ = coded
        if not (is_text(column.dtype) or column.dtype == np.dtype(object)):
            raise self._other(what, column, "Make text of it, with .astype(str).")
        return column

    def told(self) -> str:
        """Return the word."""
        return "text"


def is_text(dtype: Any) -> bool:
    """Return whether it is a dtype of text of pandas or Arrow."""
    import pandas as pd

    return isinstance(dtype, pd.StringDtype) or str(dtype).removeprefix("large_").startswith("string[")
