"""Rows as a torch ``Dataset``: what their numbers may be, and what a ``collate_fn`` of one's own is given."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from dask_train.errors import DataError
from dask_train.frameworks.torch.rows_dataset import RowsDataset


class Rows:
    def __init__(self, array):
        self._array = array

    def __len__(self):
        return len(self._array)

    def take(self, numbers):
        return [self._array[numbers]]

    def shaped(self, each):
        return each[0]


THREE = RowsDataset(Rows(np.array([10.0, 20.0, 30.0])))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (-1, 30.0),
        (np.uint8(1), 20.0),
        (torch.tensor([2, -3]), [30.0, 10.0]),
        ([True, False, True], [10.0, 30.0]),
        ([], []),
        (slice(None, None, -2), [30.0, 10.0]),
    ],
)
def test_rows_by_number(wanted, found):
    assert THREE[wanted].tolist() == found


@pytest.mark.parametrize("wanted", [3, -4, [0, 3], [True], True, 1.0, [[0]], None, "a"])
def test_what_is_no_row(wanted):
    with pytest.raises(IndexError, match=r"is none of 3 rows|does not fit a data set of 3|Rows go by whole numbers"):
        THREE[wanted]


def test_numbers_of_the_other_byte_order_are_the_same_numbers():
    rows = RowsDataset(Rows(np.array([1, 2, 3], np.dtype("i4").newbyteorder())))
    assert (rows[:].dtype, rows[:].tolist()) == (torch.int32, [1, 2, 3])


@pytest.mark.parametrize("dtype", ["U3", "M8[s]", "O"])
def test_what_torch_has_not_is_told_at_once(dtype):
    with pytest.raises(DataError, match="can't all become torch tensors"):
        RowsDataset(Rows(np.zeros(3, dtype)))


def test_what_is_made_of_rows_are_plain_tensors():
    (batch, last) = DataLoader(THREE, 2, collate_fn=lambda rows: torch.stack([row * 2 for row in rows]))
    assert [type(batch), type(last)] == [torch.Tensor] * 2
    assert [batch.tolist(), last.tolist()] == [[20.0, 40.0], [60.0]]
