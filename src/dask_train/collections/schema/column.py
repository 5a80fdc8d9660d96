"""What every kind of column of a schema has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from dask_train.collections.schema.values import value_to_json


@dataclass(frozen=True, kw_only=True)
class FrameColumn(ABC):
    """A column of a frame as a model knows it.

    Attributes
    ----------
    name
        Its name in the frame that the model was fitted with.
    """

    kind: ClassVar[str]
    name: Any

    @classmethod
    @abstractmethod
    def has(cls, dtype: Any) -> bool:
        """Return whether columns of that dtype are of this kind."""

    @classmethod
    @abstractmethod
    def of(cls, what: str, name: Any, dtype: Any) -> Self:
        """Describe a column of that dtype, of data that errors call ``what``."""

    @classmethod
    @abstractmethod
    def from_settings(cls, name: Any, settings: dict[str, Any]) -> Self:
        """Return the column that :meth:`settings` describes."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return all but the name and the kind, as JSON holds it."""

    @abstractmethod
    def conformed(self, what: str, column: Any, *, coded: bool) -> Any:
        """Return a column of Dask or pandas with the values as the model knows them, or the very column.

        Parameters
        ----------
        what
            How errors call the data.
        column
            It may have another name.
        coded
            Whether the model takes codes in place of categories, among which there is none for a missing one.

        Raises
        ------
        TypeError
            Columns of its dtype can't hold the same values.
        ValueError
            A value is not known, or missing; of Dask, in the task.
        """

    def without_rows(self, column: Any) -> Any:
        """Return a column of pandas without rows as one that the model takes."""
        return column.astype(object)

    def to_json(self) -> dict[str, Any]:
        """Return the column as JSON holds it."""
        return {"name": value_to_json(self.name), "kind": self.kind, **self.settings()}

    def _other(self, what: str, column: Any, change: str) -> TypeError:
        return TypeError(
            f"Column {column.name!r} of {what} is {column.dtype}, and the model was fitted with {self.told()} in "
            f"column {self.name!r}, so it can't hold the same values. {change}"
        )

    @abstractmethod
    def told(self) -> str:
        """Describe the kind in words, as errors do."""


@dataclass(frozen=True, kw_only=True)
class DtypeColumn(FrameColumn):
    """A column of which the dtype is all that there is to know.

    Attributes
    ----------
    dtype
        As pandas names it, for example ``"int64"`` or ``"Float64"``.
    """

    dtype: str

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
