"""How much memory a process has for itself."""

from __future__ import annotations

import mmap
import os

import numpy as np

from dask_train.role.link import own_memory_bytes

SIZE = 64 << 20


def test_what_is_shared_does_not_count():
    descriptor = os.memfd_create("rows")
    os.ftruncate(descriptor, SIZE)
    before = own_memory_bytes()
    with mmap.mmap(descriptor, SIZE) as shared:
        os.close(descriptor)
        shared[:: mmap.PAGESIZE] = bytes(SIZE // mmap.PAGESIZE)
        assert own_memory_bytes() - before < SIZE / 4
        own = np.ones(SIZE, np.uint8)
        assert SIZE / 2 < own_memory_bytes() - before < 2 * SIZE
        assert own[-1] == 1
