"""Where an array lies in shared memory that this process has mapped: which file, and at which of its bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Spot(NamedTuple):
    """A byte of a file that this process has open."""

    descriptor: int
    inode: int
    offset: int


def spots(arrays: Sequence[np.ndarray]) -> list[Spot] | None:
    """Return where arrays begin, which are C-contiguous and all in one memfd; None if any is elsewhere.

    Read from ``/proc/self/maps``, see proc_pid_maps(5).
    """
    if not arrays or not all(array.flags.c_contiguous and array.nbytes for array in arrays):
        return None
    locations = []
    with open("/proc/self/maps") as lines:
        maps = [line.split(maxsplit=5) for line in lines if "/memfd:" in line]
    for array in arrays:
        address = array.__array_interface__["data"][0]
        for span, _, start, _, inode, _ in maps:
            first, end = (int(edge, 16) for edge in span.split("-"))
            if first <= address and address + array.nbytes <= end:
                locations.append((int(inode), int(start, 16) + address - first))
    if len(locations) != len(arrays) or len({inode for inode, _ in locations}) != 1:
        return None
    descriptor = _descriptor_of(locations[0][0])
    return None if descriptor is None else [Spot(descriptor, inode, offset) for inode, offset in locations]


def _descriptor_of(inode: int) -> int | None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_ino == inode and "/memfd:" in os.readlink(f"/proc/self/fd/{name}"):
                return int(name)
        except OSError:  # closed meanwhile, as the one that lists them is
            continue
    return None
