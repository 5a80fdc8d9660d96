"""Files as a source: tasks of Dask read them, and they lie in shared memory as they are until batches need them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from dask import delayed
from dask.utils import parse_bytes

from dask_train.collections.pickled import carried
from dask_train.collections.source import Source
from dask_train.data.columns import TEXT, Column
from dask_train.data.file_decoder import FILE_SHAPE, FileDecoder
from dask_train.data.text import PAIR_BYTES
from dask_train.file_rows.reading import decoded_rows, file_rows, shown
from dask_train.file_rows.tokens import rows_token

# What a partition has at most, of rows as they lie in memory: enough for a task to be worth its while.
PART_BYTES, PART_ROWS = parse_bytes("32 MiB"), 2048
# Few files are cut into this many partitions, where there are that many files, so that several threads read them.
LEAST_PARTS = 16
# Paths go through the scheduler, in each task. They have much in common.
_SEPARATOR = "\0"


def bounds_of(sizes: np.ndarray) -> list[int]:
    """Return where partitions of rows of these sizes begin, and where the last one ends.

    Parameters
    ----------
    sizes
        int64 ``(n,)``: bytes of each row in memory.
    """
    most_rows = min(PART_ROWS, -(-len(sizes) // LEAST_PARTS))
    bounds, size = [0], 0
    for number, each in enumerate(sizes.tolist()):
        if number > bounds[-1] and (size + each > PART_BYTES or number - bounds[-1] >= most_rows):
            bounds.append(number)
            size = 0
        size += each
    return [*bounds, len(sizes)]


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """Files and their labels.

    Attributes
    ----------
    fs
        The fsspec file system; it travels to the readers.
    paths, sizes, stamps
        Of each file, as ``fs`` has them, their bytes, and what changes with each.
    labels
        ``(n, *shape)``, or None.
    """

    fs: Any = field(repr=False)
    paths: tuple[str, ...] = field(repr=False)
    sizes: np.ndarray = field(repr=False)
    stamps: tuple[str, ...] = field(repr=False)
    labels: np.ndarray | None = field(repr=False)

    def parts(self, task: Callable[..., Any], sizes: np.ndarray, token: str | None = None) -> list[tuple[int, Any]]:
        """Return the number of files of each partition, and what a task makes of it, delayed; never pure.

        Parameters
        ----------
        task
            Called with the file system, packed paths and labels; picklable.
        sizes
            Bytes of each row in memory.
        token
            Makes the keys of the partitions. Default: other keys at each call.
        """
        bounds = bounds_of(sizes)
        # The scheduler opens arguments of tasks, and may have no package for this file system.
        make = delayed(carried(task, self.fs), pure=False)
        parts = []
        for number, (start, stop) in enumerate(pairwise(bounds)):
            labels = None if self.labels is None else self.labels[start:stop]
            key = None if token is None else f"decoded-rows-{token}-{number}"
            parts.append((stop - start, make(packed_paths(self.paths[start:stop]), labels, dask_key_name=key)))
        return parts


def packed_paths(paths: Sequence[str]) -> bytes:
    """Return paths as they travel in a task: :func:`dask_train.file_rows.reading.unpacked_paths` undoes it."""
    # Names of local files may be no UTF-8: Python has lone surrogates for the bytes that are none.
    return zlib.compress(_SEPARATOR.join(paths).encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, kw_only=True)
class FilesSource(Source):
    """Files whose rows are paths and contents, with their labels.

    Attributes
    ----------
    files
        The files.
    skips
        Leaves out files that it can't decode. Default: all files are rows.
    """

    files: FileSet
    skips: FileDecoder | None

    @property
    def persisted_nbytes(self) -> int | None:
        return 0

    def delayed_parts(self, part: Callable[..., Any], finish: Callable[[list[Any]], Any]) -> list[Any]:
        _ = part  # rows are what the files are: there is nothing to be picked
        task = partial(file_rows, finish, self.skips)
        return [delayed_part for _, delayed_part in self.files.parts(task, stored_sizes(self.files))]


def files_source(files: FileSet, decoder: FileDecoder, *, skips: bool) -> FilesSource:
    """Return the source of files; nothing of them is read."""
    columns = [Column(dtype=TEXT, row_shape=FILE_SHAPE, decoder=decoder)]
    if files.labels is not None:
        columns.append(Column(dtype=files.labels.dtype.str, row_shape=files.labels.shape[1:]))
    sizes = stored_sizes(files)
    return FilesSource(
        names=None,
        is_tuple=files.labels is not None,
        num_rows=None if skips else len(files.paths),
        nbytes=int(sizes.sum()) + (0 if files.labels is None else files.labels.nbytes),
        lengths=None if skips else tuple(np.diff(bounds_of(sizes)).tolist()),
        columns=tuple(columns),
        num_listed=len(files.paths) if skips else None,
        files=files,
        skips=decoder if skips else None,
    )


def stored_sizes(files: FileSet) -> np.ndarray:
    """Return the bytes of each file's row in shared memory, int64 ``(n,)``."""
    of_paths = np.fromiter((len(shown(path).encode()) for path in files.paths), np.int64, len(files.paths))
    return files.sizes + of_paths + PAIR_BYTES * 2


def decoded_arrays(files: FileSet, decoder: FileDecoder) -> tuple[Any, Any]:
    """Return files as Dask arrays of decoded rows, and their labels or None; nothing is computed.

    Each row is decoded anew whenever its block is computed. Of the same files and functions they have the same names in
    each process: :func:`dask_train.predict_to` knows the rows again by them.
    """
    import dask.array as da

    like = Column(dtype=decoder.dtype, row_shape=decoder.row_shape)
    sizes = np.full(len(files.paths), max(1, like.row_bytes), np.int64)
    names, stamps = map(_SEPARATOR.join, (files.paths, files.stamps))
    token = rows_token(files.fs, decoder, names, stamps, bounds_of(sizes), files.labels)
    parts = files.parts(partial(decoded_rows, decoder), sizes, token)
    blocks = [da.from_delayed(block, (num_rows, *like.row_shape), like.dtype) for num_rows, block in parts]
    x = da.concatenate(blocks)
    return x, None if files.labels is None else da.from_array(
        files.labels, chunks=(x.chunks[0], *files.labels.shape[1:])
    )
