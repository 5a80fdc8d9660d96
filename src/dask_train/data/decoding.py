"""Decodes rows of batches, such as files, in threads, with random numbers that depend on the row alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Self

import numpy as np

from dask_train.data.buffers import Buffers
from dask_train.data.columns import Columns
from dask_train.data.decoder import Decoder, OpenedDecoder

# Rows are handed to each thread in this many pieces, since some files take longer than others.
PIECES_PER_THREAD = 4


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What random numbers of a row depend on, besides its number in the data set.

    Attributes
    ----------
    lengths
        int64 ``(num_partitions,)``: rows of each partition, by which rows are numbered through.
    seed, epoch
        Those of the order of rows.
    """

    lengths: np.ndarray = field(repr=False)
    seed: int = 0
    epoch: int = 0

    def numbers(self, partition: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Return the numbers of rows in the data set, int64 ``(n,)``."""
        numbers: np.ndarray = (np.cumsum(self.lengths) - self.lengths)[partition] + row
        return numbers

    def generator(self, number: int) -> np.random.Generator:
        """Return the generator of a row: the same for any number of ranks, and each time that the row is decoded."""
        # As the order of rows takes it: NumPy takes no seeds below 0.
        return np.random.default_rng([self.seed % 2**64, self.epoch, number])


class Decoding:
    """Makes rows of batches of rows as they are stored. Its threads end with its ``with`` block.

    Parameters
    ----------
    drawing
        What random numbers depend on.
    num_threads
        Number of threads that decode. Default: the caller's alone.
    """

    def __init__(self, drawing: Drawing, num_threads: int = 1) -> None:
        self._drawing, self._num_threads = drawing, num_threads
        self._opened: dict[Decoder, OpenedDecoder] = {}
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None

    def rows(
        self,
        columns: Columns,
        arrays: Sequence[np.ndarray],
        partition: np.ndarray,
        row: np.ndarray,
        buffers: Buffers,
    ) -> list[np.ndarray]:
        """Return rows as batches have them: columns without a decoder as they are, others in memory of ``buffers``.

        Parameters
        ----------
        columns
            Those of the data set.
        arrays
            Of each column, as it is stored.
        partition, row
            int64 ``(n,)``: which rows they are.

        Raises
        ------
        DataError
            A row can't be decoded, or becomes one that is not like the others.
        """
        rows = list(arrays)
        for place, column in enumerate(columns):
            if column.decoder is not None:
                if column.decoder not in self._opened:
                    self._opened[column.decoder] = column.decoder.opened()
                rows[place] = buffers.array(column.in_batch, len(row))
                numbers = self._drawing.numbers(partition, row)
                decode = partial(self._decode, self._opened[column.decoder], arrays[place], numbers, rows[place])
                self._in_pieces(decode, len(row))
        return rows

    def _in_pieces(self, decode: Callable[[int, int], None], num_rows: int) -> None:
        if self._num_threads < 2 or num_rows < 2:
            decode(0, num_rows)
            return
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._num_threads, thread_name_prefix="dask-train-decode")
        pieces = min(num_rows, PIECES_PER_THREAD * self._num_threads)
        bounds = np.linspace(0, num_rows, pieces + 1).astype(int).tolist()
        for done in [self._threads.submit(decode, start, stop) for start, stop in pairwise(bounds)]:
            done.result()

    def _decode(
        self, decoder: OpenedDecoder, stored: np.ndarray, numbers: np.ndarray, out: np.ndarray, start: int, stop: int
    ) -> None:
        def generator(at: int) -> np.random.Generator:
            return self._drawing.generator(int(numbers[start + at]))

        decoder.write(out[start:stop], stored[start:stop], generator)
