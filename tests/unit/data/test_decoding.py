"""Files of a batch are decoded in threads, in order, with random numbers that depend on the row alone."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from dask_train.data.buffers import Buffers
from dask_train.data.columns import TEXT, Column, Columns
from dask_train.data.decoding import Decoding, Drawing
from dask_train.data.file_decoder import FILE_SHAPE, FileDecoder
from dask_train.errors import DataError

LENGTHS = np.array([3, 0, 4])


def columns_of(decode, augment=None, like=None) -> Columns:
    """A column of files, and one of labels."""
    decoder = FileDecoder.of(decode, augment, np.zeros(1, np.int64) if like is None else like)
    files = Column(dtype=TEXT, row_shape=FILE_SHAPE, decoder=decoder)
    return Columns(columns=(files, Column(dtype="<i8", row_shape=())))


def files_of(numbers: list[int]) -> list[np.ndarray]:
    files = np.array([[f"file {number}", bytes([number])] for number in numbers], object)
    return [files, np.array(numbers)]


def number_in(content: bytes) -> np.ndarray:
    return np.array([content[0]], np.int64)


def add_random(row: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    return row + generator.integers(1 << 40)


@pytest.mark.parametrize("num_threads", [1, 3])
def test_rows_are_decoded_in_their_order(num_threads):
    numbers = list(range(30))
    with Decoding(Drawing(lengths=np.array([30])), num_threads) as decoding:
        where = np.zeros(30, np.int64), np.arange(30)
        rows, labels = decoding.rows(columns_of(number_in), files_of(numbers), *where, Buffers())
    assert rows.tolist() == [[number] for number in numbers]
    assert labels.tolist() == numbers, "others are left as they are"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dask-train-decode")]


def augmented(partition: list[int], row: list[int], *, seed: int = 0, epoch: int = 0) -> list[int]:
    with Decoding(Drawing(lengths=LENGTHS, seed=seed, epoch=epoch), 2) as decoding:
        where = np.array(partition), np.array(row)
        columns = columns_of(number_in, add_random)
        return decoding.rows(columns, files_of([0] * len(row)), *where, Buffers())[0][:, 0].tolist()


def test_any_whole_number_is_a_seed():
    below_0 = augmented([0, 2], [1, 2], seed=-1)
    assert below_0 == augmented([0, 2], [1, 2], seed=2**64 - 1)
    assert below_0 != augmented([0, 2], [1, 2], seed=1)


def test_random_numbers_are_those_of_seed_epoch_and_row_whatever_the_batch():
    all_of_them = augmented([0, 0, 0, 2, 2, 2, 2], [0, 1, 2, 0, 1, 2, 3])
    assert len(set(all_of_them)) == 7
    assert augmented([2, 0], [1, 2]) == [all_of_them[4], all_of_them[2]]
    assert all_of_them[4] == np.random.default_rng([0, 0, 4]).integers(1 << 40)
    assert augmented([0], [0], epoch=1) != all_of_them[:1] != augmented([0], [0], seed=1)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_error_in_a_thread_is_raised(num_threads):
    def fails(content: bytes) -> np.ndarray:
        if content == b"\5":
            raise ValueError("no picture")
        return number_in(content)

    with (
        Decoding(Drawing(lengths=np.array([8])), num_threads) as decoding,
        pytest.raises(DataError, match="File 'file 5' can't be decoded: decode raised ValueError: no picture"),
    ):
        decoding.rows(columns_of(fails), files_of(list(range(8))), np.zeros(8, np.int64), np.arange(8), Buffers())


def test_rows_may_be_single_numbers():
    columns = columns_of(len, like=np.asarray(0))
    with Decoding(Drawing(lengths=np.array([2]))) as decoding:
        rows, _ = decoding.rows(columns, files_of([1, 2]), np.zeros(2, np.int64), np.arange(2), Buffers())
    assert rows.tolist() == [1, 1]
