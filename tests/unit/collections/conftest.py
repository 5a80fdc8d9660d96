"""What these tests share."""

from __future__ import annotations

import dask
import pytest

from dask_train.collections import check_data, partition


def _computed(data, what="data['worker']", finish=list, **picked):
    source = check_data(what, data, **picked)
    return list(dask.compute(*source.delayed_parts(partition.part, finish), scheduler="synchronous"))


@pytest.fixture
def computed():
    """The columns of each partition, by the synchronous scheduler."""
    return _computed
