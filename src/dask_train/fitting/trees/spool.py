"""Rows that are streamed, on local disk for as long as a library goes through them, some times over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np

from dask_train.data.columns import Columns
from dask_train.fitting.trees.parts import TreeRows, as_parts, parts_of
from dask_train.fitting.trees.task import TreesTask
from dask_train.role.session import Session

# Bytes of features that are given to a library at a time. XGBoost keeps a page of bins of each, a byte or two a cell,
# and has some pages in memory while it goes through all in every round: few large ones are faster than many small ones.
PAGE_BYTES = 256 << 20


def rows_to_train_on(task: TreesTask, session: Session) -> list[TreeRows]:
    """Return this rank's rows to train on: views of shared memory, or of a file where they are streamed.

    Raises
    ------
    ValueError
        Rows are not as they have to be.
    OSError
        The disk is full.
    """
    if task.streamed:
        return as_parts(spooled(session, session.partitions(), task.columns), task.columns)
    return parts_of(session, session, task.columns)


def spooled(
    session: Session, partitions: Iterable[Sequence[np.ndarray]], columns: Columns, page_bytes: int = PAGE_BYTES
) -> list[tuple[np.ndarray, ...]]:
    """Return this rank's rows in pages, whose features lie in a file; other columns are in memory.

    Parameters
    ----------
    session
        Its scratch folder is where the file is. It has no name there: it goes with the last page, or the process.
    partitions
        Gone through once.
    columns
        Which column has the features.
    page_bytes
        Of the features of a page, about.

    Raises
    ------
    ValueError
        A rank has no rows.
    OSError
        The disk is full.
    """
    matrix, places = columns.features, (columns.labels, columns.weights, columns.margins, columns.groups)
    others = sorted(place for place in places if place is not None)
    arrays_by_place: dict[int, list[np.ndarray]] = {place: [] for place in others}
    dtype, num_rows = np.dtype("f4"), 0
    with tempfile.TemporaryFile(buffering=0, dir=session.scratch) as file:
        for arrays in partitions:
            _write(file, np.ascontiguousarray(arrays[matrix]), session.scratch)
            dtype, num_rows = arrays[matrix].dtype, num_rows + len(arrays[matrix])
            for place in others:
                arrays_by_place[place].append(arrays[place])
        counts = session.all_gather(np.array([num_rows]))
        if not counts.all():
            raise ValueError(
                f"{int((counts == 0).sum())} of {len(counts)} workers have no rows, and data that is streamed is to "
                "have some for each. Cut it into more partitions, or pass workers= with a smaller number."
            )
        x = np.memmap(file, dtype, mode="r", shape=(num_rows, *columns.matrix.row_shape))
    whole = {matrix: x, **{place: np.concatenate(values) for place, values in arrays_by_place.items()}}
    num_pages = max(1, -(-x.nbytes // page_bytes))
    cuts = np.linspace(0, num_rows, min(num_pages, num_rows) + 1).astype(int)
    all_places = range(max(whole) + 1)
    return [
        tuple(whole[place][start:stop] if place in whole else x[:0] for place in all_places)
        for start, stop in pairwise(cuts)
    ]


def _write(file: FileIO, x: np.ndarray, folder: Path) -> None:
    left = x.data.cast("B")
    try:
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(
            error.errno,
            f"{len(left):,} bytes of rows can't be written behind {file.tell():,} in {folder}: {error.strerror}. Data "
            "that is streamed lies there once while its bins are made, and as its bins later: let the Dask workers' "
            "local_directory be on a disk with room for that, or use more hosts",
        ) from error
