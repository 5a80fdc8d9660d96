"""Columns of any other kind: objects, dates, arrays in rows. What they hold is seen when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dask_train.collections.schema.column import DtypeColumn
from dask_train.collections.schema.number import is_number


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
