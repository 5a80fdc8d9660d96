"""Arrays in a stretch of memory, where frameworks take them without a copy."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from dask_train.data.alignment import is_aligned
from dask_train.transport.array_layout import ArraySlot, bytes_of

COLUMNS = [((3, 5), "f4"), ((), "i8"), ((0, 7), "f8"), ((1,), "u1"), ((2, 2), "c16")]


def test_arrays_of_all_slots_are_aligned_and_apart():
    slot = ArraySlot(COLUMNS)
    assert slot.size_bytes % mmap.PAGESIZE == 0
    with mmap.mmap(-1, 3 * slot.size_bytes) as memory:
        slots = [slot.arrays(memory, number) for number in range(3)]
        for number, arrays in enumerate(slots):
            assert [(array.shape, array.dtype) for array in arrays] == [(s, np.dtype(d)) for s, d in COLUMNS]
            for place, array in enumerate(arrays):
                assert array.size == 0 or is_aligned(array.ctypes.data)
                array[...] = 10 * number + place
        for number, arrays in enumerate(slots):
            assert all((array == 10 * number + place).all() for place, array in enumerate(arrays))
        again = slot.arrays(memory, 1)
        assert again[0].ctypes.data == slots[1][0].ctypes.data, "no copy"
        del slots, arrays, array, again


@pytest.mark.parametrize("columns", [[], [((0,), "f8")], [((1,), "u1")]])
def test_a_slot_has_a_page_at_least(columns):
    assert ArraySlot(columns).size_bytes == mmap.PAGESIZE


def test_the_bytes_of_an_array_are_its_own():
    array = np.arange(6, dtype="<u2").reshape(2, 3)
    view = bytes_of(array)
    assert bytes(view) == array.tobytes()
    view[0] = 9
    assert array[0, 0] == 9
    assert bytes_of(np.zeros((0, 4))).nbytes == 0
