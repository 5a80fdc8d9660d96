"""No framework: batches are NumPy arrays, and roles meet nobody."""

from __future__ import annotations

from typing import ClassVar

from dask_train.frameworks.base import Framework
from dask_train.testing import FrameworkTests


class TestNumpy(FrameworkTests):
    counts: ClassVar = {"worker": 2, "ps": 1, "scorer": 1}
    loads = ("tensorflow", "torch")

    def framework(self) -> Framework:
        return Framework()


def test_batches_are_the_very_arrays():
    arrays = (object(), object())
    assert Framework().to_batch(arrays) is arrays
