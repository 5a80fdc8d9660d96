"""A range of a file in memory, mapped copy-on-write."""

from __future__ import annotations

import mmap
import os

from dask_train.data.mapping import private_view


def test_a_range_is_the_files_until_it_is_changed_and_then_this_processs_own():
    descriptor = os.memfd_create("test")
    start = mmap.PAGESIZE + 100  # no mapping begins there
    os.pwrite(descriptor, b"before", start - 6)
    os.pwrite(descriptor, b"within", start)
    one, other = (private_view(descriptor, start, 6) for _ in range(2))
    one[:] = b"change"
    assert (bytes(one), bytes(other), os.pread(descriptor, 6, start)) == (b"change", b"within", b"within")
    os.close(descriptor)
    assert bytes(other) == b"within", "the mapping needs no descriptor"
