"""Columns of any other kind: objects, dates, arrays in rows. What they hold is seen when they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dask_train.collections.schema.column import FrameColumn
from dask_train.collections.schema.number import is_number


@dataclass(frozen=True, kw_only=True)
class OtherColumn(FrameColumn):
    """A column of which the dtype does not tell the values.

    Attributes
    ----------
    dtype
        As pandas names it, for example ``"object"``.
    """

    kind: ClassVar[str] = "other"
    dtype: str

    @classmethod
    def has(cls, dtype: Any) -> bool:
        """Whether no other kind has it."""
        _ = dtype
        return True

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
        """Return the very column, where it may hold the same."""
        _ = coded
        if is_number(column.dtype) or hasattr(column.dtype, "categories"):
            raise self._other(what, column, f"Make it {self.dtype} as before.")
        return column

    def told(self) -> str:
        """Return the dtype."""
        return self.dtype
