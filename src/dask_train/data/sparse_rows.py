"""Sparse rows in shared memory: for each row where its entries lie and how many they are, then those of all rows.

They lie as in a CSR matrix: the columns' numbers of all rows, then the values. A row has a head of three int64: where
its numbers and its values begin, both in bytes from the head on, and how many entries it has. So rows of all segments
can be numbered through and mapped as one, as :mod:`dask_train.data.text` has it.

Whole partitions are read as CSR matrices, without a copy. Rows of batches are dense. A row that travels alone is
``bytes``: its columns' numbers, and then its values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Bytes of a head.
HEAD_BYTES = 24
_ALIGNED = 8


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix, or rows of one; SciPy is not imported."""
    return hasattr(value, "tocsr")


def check_entries(dtype: Any) -> None:
    """Check that entries of a sparse matrix can lie in shared memory.

    Raises
    ------
    TypeError
        They are no real numbers of up to 64 bits.
    """
    dtype = np.dtype(dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > _ALIGNED:
        raise TypeError(f"a sparse matrix of {dtype}; make its entries real numbers of 64 bits, with astype(float)")


def set_read_only(rows: Any) -> None:
    """Let nobody write into an array, or into the entries of a sparse matrix."""
    for array in (rows.data, rows.indices, rows.indptr) if is_sparse(rows) else (rows,):
        array.flags.writeable = False


def packed(rows: Any) -> np.ndarray:
    """Return the image of a sparse matrix, ``(size,)`` uint8; entries keep their order in a row."""
    csr = rows.tocsr()
    starts, num_entries = csr.indptr[:-1].astype(np.int64), int(csr.indptr[-1])
    number_dtype = _number_dtype(csr.shape[1])
    heads_end = HEAD_BYTES * len(starts)
    numbers_end = heads_end + number_dtype.itemsize * num_entries
    values_start = -(-numbers_end // _ALIGNED) * _ALIGNED
    image = np.zeros(values_start + csr.dtype.itemsize * num_entries, np.uint8)
    heads = image[:heads_end].view(np.int64).reshape(-1, 3)
    places = HEAD_BYTES * np.arange(len(starts))
    heads[:, 0] = heads_end + number_dtype.itemsize * starts - places
    heads[:, 1] = values_start + csr.dtype.itemsize * starts - places
    heads[:, 2] = np.diff(csr.indptr)
    image[heads_end:numbers_end].view(number_dtype)[...] = csr.indices[:num_entries]
    image[values_start:].view(csr.dtype)[...] = csr.data[:num_entries]
    return image


def unpacked(memory: np.ndarray, numbers: np.ndarray, dtype: Any, row_shape: tuple[int, ...]) -> Any:
    """Return rows of images that lie one after the other, as a CSR matrix.

    Parameters
    ----------
    memory
        uint8 ``(size,)``; begins where the head of row 0 would.
    numbers
        int64 ``(n,)``: of the rows, counted in heads from the beginning of the memory.
    dtype
        Of the values.
    row_shape
        How many columns there are, ``(p,)``.

    Returns
    -------
    scipy.sparse.csr_array
        ``(n, p)``. Of rows that follow each other in one image it is a view of the memory, which is not to be written
        to; else a copy.
    """
    (num_columns,) = row_shape
    number_dtype = _number_dtype(num_columns)
    numbers_start, values_start, counts = _places(memory, numbers)
    return _matrix(
        _entries(memory, values_start, counts, np.dtype(dtype)),
        _entries(memory, numbers_start, counts, number_dtype),
        counts,
        num_columns,
    )


def loose(memory: np.ndarray, numbers: np.ndarray, dtype: Any, row_shape: tuple[int, ...]) -> np.ndarray:
    """Return rows of images one by one, ``(n,)`` objects, each ``bytes``; parameters are those of :func:`unpacked`."""
    number_bytes, value_bytes = _number_dtype(row_shape[0]).itemsize, np.dtype(dtype).itemsize
    rows, whole = np.empty(len(numbers), object), memory.data
    heads = zip(*(each.tolist() for each in _places(memory, numbers)), strict=True)
    for place, (first, value, count) in enumerate(heads):
        rows[place] = b"".join(
            [whole[first : first + number_bytes * count], whole[value : value + value_bytes * count]]
        )
    return rows


def gathered(rows: np.ndarray, dtype: Any, row_shape: tuple[int, ...]) -> Any:
    """Return what :func:`loose` has made as a CSR matrix, ``(n, p)``, in memory of its own."""
    number_dtype, value_dtype = _number_dtype(row_shape[0]), np.dtype(dtype)
    counts = np.fromiter(map(len, rows), np.int64, len(rows)) // (number_dtype.itemsize + value_dtype.itemsize)
    ends = (counts * number_dtype.itemsize).tolist()
    numbers = b"".join(row[:end] for row, end in zip(rows, ends, strict=True))
    values = b"".join(row[end:] for row, end in zip(rows, ends, strict=True))
    return _matrix(np.frombuffer(values, value_dtype), np.frombuffer(numbers, number_dtype), counts, row_shape[0])


def _places(memory: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the columns' numbers and the values of rows begin in the memory, and how many they are."""
    heads = memory[: memory.size // HEAD_BYTES * HEAD_BYTES].view(np.int64).reshape(-1, 3)[numbers]
    at = HEAD_BYTES * numbers
    return at + heads[:, 0], at + heads[:, 1], heads[:, 2]


def _entries(memory: np.ndarray, starts: np.ndarray, counts: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return what lies at the places of rows, one after the other: a view, where it lies so."""
    total, ends = int(counts.sum()), np.cumsum(counts)
    if not total:
        return np.empty(0, dtype)
    first = int(starts[0])
    if (starts == first + dtype.itemsize * (ends - counts)).all():
        return memory[first : first + dtype.itemsize * total].view(dtype)
    whole = memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)
    entries: np.ndarray = whole[np.repeat(starts // dtype.itemsize - (ends - counts), counts) + np.arange(total)]
    return entries


def _matrix(values: np.ndarray, numbers: np.ndarray, counts: np.ndarray, num_columns: int) -> Any:
    from scipy.sparse import csr_array

    pointers = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    # Later SciPy copies numbers of another dtype than the pointers'.
    if pointers[-1] <= np.iinfo(numbers.dtype).max:
        pointers = pointers.astype(numbers.dtype)
    matrix = csr_array((len(counts), num_columns), dtype=values.dtype)
    # The constructor would copy what is a small part of a larger array, as views of shared memory are.
    matrix.indptr, matrix.indices, matrix.data = pointers, numbers, values
    return matrix


def _number_dtype(num_columns: int) -> np.dtype[Any]:
    return np.dtype(np.int32 if num_columns <= np.iinfo(np.int32).max else np.int64)


class SparseLayout:
    """Sparse rows; see :class:`~dask_train.data.layout.Layout`."""

    packed, unpacked, gathered = staticmethod(packed), staticmethod(unpacked), staticmethod(gathered)

    def head_shape(self, _: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a head."""
        return (HEAD_BYTES // 8,)

    def write(
        self, out: np.ndarray, memory: np.ndarray, numbers: np.ndarray, dtype: str, row_shape: tuple[int, ...]
    ) -> None:
        """Write rows one by one into an array of objects, or dense ones into one of numbers."""
        out[...] = (
            loose(memory, numbers, dtype, row_shape)
            if out.dtype == object
            else unpacked(memory, numbers, dtype, row_shape).toarray()
        )


SPARSE_LAYOUT = SparseLayout()
