"""Columns of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dask_train.collections.schema.column import FrameColumn


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
