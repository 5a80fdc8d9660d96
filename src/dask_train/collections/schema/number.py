"""Columns of numbers and truth values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dask_train.collections.schema.column import DtypeColumn


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

    def told(self) -> str:
        """Return the dtype in words."""
        return f"numbers ({self.dtype})"


def is_number(dtype: Any) -> bool:
    """Return whether values of that dtype are numbers or truth values, perhaps with missing ones."""
    if isinstance(dtype, np.dtype):
        return dtype.kind in "biufc"
    return getattr(dtype, "kind", "O") in "biuf" and not hasattr(dtype, "categories")
