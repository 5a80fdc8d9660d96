"""Numbers that travel as bfloat16: bits of every kind, and what both ends have."""

from __future__ import annotations

import socket

import numpy as np
import pytest

from dask_train.collectives.wire import Rounded, round_to_bfloat16


def rounded(array: np.ndarray) -> np.ndarray:
    """What is left of numbers, by the dtype of another library."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    return array.astype(bfloat16).astype(np.float32)


def test_numbers_go_to_the_nearest_bfloat16_and_ties_to_the_even_one() -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    ties = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    special = np.array([0x0, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x1, 0x7F800001, 0xFFFFFFFF], np.uint32)
    numbers = np.concatenate([bits, ties, special]).view(np.float32)
    found = np.empty(len(numbers), np.uint16)
    round_to_bfloat16(numbers, found, np.empty(len(numbers), np.uint32))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = rounded(numbers)
    got = (found.astype(np.uint32) << 16).view(np.float32)
    is_nan = np.isnan(numbers)
    assert is_nan.any()
    assert np.isnan(got[is_nan]).all()
    np.testing.assert_array_equal(got[~is_nan].view(np.uint32), wanted[~is_nan].view(np.uint32))


def test_both_ends_have_the_same_bits_and_half_of_the_bytes_travel() -> None:
    array = np.random.default_rng(1).normal(size=3000).astype("f4")
    array[:3] = np.nan, np.inf, -np.inf
    wanted, come = rounded(array), np.empty_like(array)
    ends = socket.socketpair()
    with ends[0], ends[1]:
        Rounded().send(ends[0], array)
        ends[0].shutdown(socket.SHUT_WR)
        Rounded().receive(ends[1], come)
        assert ends[1].recv(1) == b"", "2 bytes of each number were all"
    np.testing.assert_array_equal(come, wanted)
    assert array.tobytes() == come.tobytes()
