"""Memory for batches comes back when nobody has it any more, and never before."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.data.alignment import ALIGNMENT_BYTES
from dask_train.data.buffers import Buffers, empty_bytes
from dask_train.data.columns import Column

NUMBERS = Column(dtype="<f8", row_shape=())


@given(
    st.sampled_from(["f4", ">f8", "u1", "?", "U3", "S2", "M8[ms]", "c16"]),
    st.lists(st.integers(0, 4), max_size=3),
    st.integers(0, 9),
)
def test_an_array_is_as_it_was_asked_for(dtype, shape, num_rows):
    column = Column(dtype=np.dtype(dtype).str, row_shape=tuple(shape))
    array = Buffers().array(column, num_rows)
    assert (array.dtype, array.shape) == (np.dtype(dtype), (num_rows, *shape))
    assert array.flags.c_contiguous
    assert array.flags.writeable
    assert not array.size or array.ctypes.data % ALIGNMENT_BYTES == 0
    expected = np.resize(np.array([1, 0, 1]).astype(dtype), array.shape)
    array[...] = expected
    np.testing.assert_array_equal(array, expected)


def test_memory_is_used_again_once_it_is_free():
    buffers = Buffers()
    array = buffers.array(NUMBERS, 10)
    address = array.ctypes.data
    held = {"view": array[2:], "reshaped": array.reshape(5, 2), "buffer": memoryview(array), "bytes": array.view("u1")}
    del array
    others = [buffers.array(NUMBERS, 10) for _ in range(2)]
    while held:
        assert address not in {other.ctypes.data for other in others}
        held.popitem()
        others.append(buffers.array(NUMBERS, 10))
    assert others[-1].ctypes.data == address
    assert len({other.ctypes.data for other in others}) == len(others)


def test_memory_is_used_for_all_that_has_its_size():
    buffers = Buffers()
    address = buffers.array(NUMBERS, 6).ctypes.data
    assert buffers.array(Column(dtype="<f4", row_shape=(3,)), 4).ctypes.data == address
    other = buffers.array(NUMBERS, 5)
    again = buffers.array(NUMBERS, 6)
    assert again.ctypes.data == address != other.ctypes.data


def test_what_a_thread_lets_go_another_gets():
    buffers = Buffers()
    held = [buffers.array(NUMBERS, 10) for _ in range(100)]
    addresses = {array.ctypes.data for array in held}
    del held[:50]
    letting_go = threading.Thread(target=held.clear)
    letting_go.start()
    letting_go.join()
    assert {array.ctypes.data for array in [buffers.array(NUMBERS, 10) for _ in range(100)]} == addresses


def test_a_framework_may_have_better_memory():
    made: list[np.ndarray] = []

    def pinned(size: int) -> np.ndarray | None:
        if size > 100:
            return None
        made.append(empty_bytes(size))
        return made[-1]

    buffers = Buffers(pinned)
    for _ in range(3):
        array = buffers.array(NUMBERS, 10)
        assert np.shares_memory(array, made[0])
        del array
    assert [len(each) for each in made] == [80]
    assert buffers.array(NUMBERS, 100).shape == (100,), "it has none for this"


@pytest.mark.parametrize("size", [1, 63, 64, 1000])
def test_empty_bytes_are_aligned(size):
    for made in [empty_bytes(size) for _ in range(5)]:
        assert (made.dtype, made.shape, made.ctypes.data % ALIGNMENT_BYTES) == (np.uint8, (size,), 0)
