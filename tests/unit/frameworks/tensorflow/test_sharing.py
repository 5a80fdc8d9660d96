"""Which arrays TensorFlow is given as they lie; TensorFlow is a stand-in."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.frameworks.tensorflow.sharing import shared_tensor


@pytest.fixture(autouse=True)
def given(monkeypatch):
    dlpack = SimpleNamespace(from_dlpack=lambda capsule: "shared")
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(experimental=SimpleNamespace(dlpack=dlpack)))


def array_at(offset, dtype="f4"):
    """Eight zeros so many bytes behind a boundary of 64."""
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 8 * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"])
def test_numbers_are_shared_where_they_are_aligned(dtype):
    assert shared_tensor(array_at(0, dtype)) == "shared"
    assert shared_tensor(array_at(16, dtype)) is None


@pytest.mark.parametrize("dtype", [">f4", ">i8", "U2", "S3", "M8[s]"])
def test_other_dtypes_are_not(dtype):
    assert shared_tensor(array_at(0, dtype)) is None


def test_what_is_read_only_or_not_in_order_is_not():
    array = array_at(0)
    assert shared_tensor(array[::2]) is None
    assert shared_tensor(array.reshape(2, 4).T) is None
    array.flags.writeable = False
    assert shared_tensor(array) is None
