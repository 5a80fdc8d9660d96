"""Columns of numbers and truth values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dask_train.collections.schema.column import FrameColumn


@dataclass(frozen=True, kw_only=True)
class NumberColumn(FrameColumn):
    """A column of numbers or truth values.

    Attributes
    ----------
    dtype
        As pandas names it, for example ``"int64"`` or ``"Float64"``.
    """

    kind: ClassVar[str] = "number"
    dtype: str

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Whether it is a dtype of numbers."""
        return is_number(dtype)

    @classmethod
    def of(cls, what: str, name: Any, dtype: Any) -> Self:
        """Describe it by its dtype."""
        _ = what
        return cls(name=name, dtype=str(dtype))

    @classmethod
    def from_settings(cls, name: Any, settings: dict[str, Any]) -> Self:
        """Return the column."""
        return cls(name=name, dtype=settings["dtype"])

    def settings(self) -> dict[str, Any]:
        """Return the dtype."""
        return {"dtype": self.dtype}

    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return the very column, whose numbers may be wider or narrower; a model takes them in its own type."""
        _ = coded
        if not is_number(column.dtype) or (column.dtype.kind == "c" and "complex" not in self.dtype):
            raise self._other(what, column, f"Make numbers of it, for example with .astype({self.dtype!r}).")
        return column

    def told(self) -> str:
        """Return the dtype in words."""
        return f"numbers ({self.dtype})"


def is_number(dtype: Any) -> bool:
    """Whether values of that dtype are numbers or truth values, perhaps with missing ones."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biufc"
    return getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories")
