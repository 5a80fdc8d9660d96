"""Rows that a user has passed, and what each of their columns is; nothing of them is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_train.collections.frames import FrameSource
from dask_train.collections.schema.category import CategoryColumn
from dask_train.collections.schema.frame_schema import FrameSchema, names_in
from dask_train.collections.source import Source
from dask_train.compat.dask import has_meta, meta_of
from dask_train.data.columns import Columns
from dask_train.shared_data.published import as_source
from dask_train.shared_data.segments import SharedSegments

# This many rows are tried before anything starts.
NUM_TRIED_ROWS = 8


@dataclass(frozen=True, kw_only=True)
class InputData:
    """Rows that a user has passed, and what each column is.

    Attributes
    ----------
    value
        The rows, as ``train`` takes ``data=``.
    columns
        What each column is, and what it means to a model; nothing is known of a frame that stays one.
    opened
        The same rows as partitions, where these were made to see what the columns are.
    schema
        What the columns of frames are; None if there are no frames, or only computing shows.
    """

    value: Any
    columns: Columns
    opened: Source | SharedSegments | None = None
    schema: FrameSchema | None = None

    def source(self, what: str, *, decodes: bool = False, sparse: bool = False) -> Source | SharedSegments:
        """Return the rows as a run takes them; batches are tuples.

        Parameters
        ----------
        what
            How errors call it.
        decodes
            Whether roles go through batches alone, which decode rows, and of sparse ones have all numbers.
        sparse
            Whether sparse rows may stay so.
        """
        opened = self.opened or as_source(what, self.value, decodes=decodes, sparse=decodes or sparse)
        if isinstance(opened, SharedSegments):
            return replace(opened, schema=replace(opened.schema, names=None, is_tuple=True))
        return opened

    @property
    def arrays(self) -> tuple[Any, ...]:
        """Return the arrays, one for each column; none of a frame."""
        return self.value if isinstance(self.value, tuple) else ()

    @property
    def frame(self) -> Any:
        """Return the Dask frame or column, whose index predictions have; None of anything else."""
        return self.value if has_meta(self.value) and hasattr(meta_of(self.value), "iloc") else None

    @property
    def reads(self) -> Sequence[Mapping[str, Any]] | None:
        """Return how a partition of :attr:`frame` becomes each array; None if the frame stays as it is.

        Each is a :class:`~dask_train.collections.partition.plan.Read`.
        """
        return self.opened.plan["reads"] if isinstance(self.opened, FrameSource) else None

    @property
    def codes(self) -> dict[int, list[tuple[int, Any]]]:
        """Return which features are codes of categories, by the number of their array: places in a row, and names."""
        if self.schema is None or self.schema.features is None:
            return {}
        coded = {each.name for each in self.schema.columns if isinstance(each, CategoryColumn)}
        arrays = dict(_named(self.columns.features, self.schema.features))
        by_array = {
            number: [(place, name) for place, name in enumerate(names) if name in coded]
            for number, names in arrays.items()
        }
        return {number: codes for number, codes in by_array.items() if codes}

    def sample_rows(self) -> list[np.ndarray] | None:
        """Return up to 8 rows, evenly spread, where all data are NumPy arrays; None for other data."""
        if not self.arrays or not all(isinstance(column, np.ndarray) for column in self.arrays):
            return None
        num_rows = min(len(column) for column in self.arrays)
        if num_rows < 2:
            return None
        places = np.unique(np.linspace(0, num_rows - 1, NUM_TRIED_ROWS).astype(int))
        return [column[places] for column in self.arrays]


def _named(places: Any, structure: Any) -> Iterator[tuple[int, list[Any]]]:
    """Go through the numbers of arrays with the names of their columns, which are put together alike."""
    if isinstance(structure, Mapping):
        for name, below in structure.items():
            yield from _named(places[name], below)
    else:
        yield places, list(names_in(structure))


def check_some_rows(what: str, source: Source | SharedSegments) -> None:
    """Check that there are rows, where their number is known.

    Raises
    ------
    ValueError
        There are no rows.
    """
    if source.lengths is not None and not sum(source.lengths):
        raise ValueError(f"{what} has no rows. Pass at least one.")
