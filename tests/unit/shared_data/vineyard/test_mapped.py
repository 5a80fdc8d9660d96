"""Where arrays lie that are views of a file in memory."""

from __future__ import annotations

import mmap
import os

import numpy as np

from dask_train.shared_data.vineyard.opening import spots


def test_arrays_in_one_file_are_found_by_their_bytes():
    file = os.memfd_create("daemon", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, 3 * mmap.PAGESIZE)
        with mmap.mmap(file, 2 * mmap.PAGESIZE, offset=mmap.PAGESIZE) as page:
            first, second = np.frombuffer(page, "f4", 5, 64), np.frombuffer(page, "u1", 3, mmap.PAGESIZE + 7)
            found = spots([first, second])
            assert found is not None
            assert [spot.offset for spot in found] == [mmap.PAGESIZE + 64, 2 * mmap.PAGESIZE + 7]
            assert {spot.inode for spot in found} == {os.fstat(file).st_ino}
            assert os.fstat(found[0].descriptor).st_ino == os.fstat(file).st_ino
            assert spots([first, np.arange(3)]) is None, "one is elsewhere"
            assert spots([np.frombuffer(page, "f4", 6, 64).reshape(2, 3).T]) is None, "not in order"
            del first, second, found
    finally:
        os.close(file)


def test_arrays_of_this_process_alone_are_in_no_file():
    assert spots([np.arange(3)]) is None
    assert spots([]) is None
    assert spots([np.empty(0)]) is None
