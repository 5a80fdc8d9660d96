"""Partitions mapped into a process that is no role: from Dask workers of this host, and as if from elsewhere."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import psutil
import pytest
from dask import delayed

from dask_train.data.pool import process_pool
from dask_train.errors import DataError
from dask_train.shared_data import opened
from dask_train.shared_data.opened import open_rows

Y = da.arange(10, chunks=4)
X = da.stack([Y, 2 * Y], axis=1)


def everything(rows, lengths):
    """All columns of all rows."""
    partition = np.repeat(np.arange(len(lengths)), lengths)
    row = np.concatenate([np.arange(length) for length in lengths])
    out = [column.empty(len(row)) for column in rows.schema.columns]
    rows.take(partition, row, out)
    return out


def test_rows_are_mapped_where_they_lie(shared, peer):
    segments = shared(X, Y)
    used = process_pool().used_bytes
    rows = peer.run(open_rows, peer, "it", segments, range(3), 10.0)
    assert process_pool().used_bytes == used, "nothing is copied"
    x, y = everything(rows, [4, 4, 2])
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_only_what_is_asked_for_is_opened(shared, peer):
    segments = shared(Y)
    rows = peer.run(open_rows, peer, "it", segments, [1], 10.0)
    assert rows.is_here(np.arange(3)).tolist() == [False, True, False]
    nothing = peer.run(open_rows, peer, "it", segments, [], 10.0)
    assert not nothing.is_here(np.arange(3)).any()


def test_partitions_without_rows_are_nowhere_and_not_missed(shared, peer):
    segments = shared([delayed(np.arange)(length) for length in (4, 0, 3)])
    rows = peer.run(open_rows, peer, "it", segments, range(3), 10.0)
    assert everything(rows, [4, 0, 3])[0].tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_what_lies_elsewhere_is_copied_once_and_stays_with_the_rows(shared, peer, monkeypatch):
    segments = shared(X, Y)
    used = process_pool().used_bytes
    monkeypatch.setattr(opened._AroundOpened, "is_near", lambda self, address: False)
    rows = peer.run(open_rows, peer, "it", segments, range(3), 10.0)
    np.testing.assert_array_equal(everything(rows, [4, 4, 2])[0], X)
    assert process_pool().used_bytes >= used


def test_whose_addresses_are_near(shared, peer):
    around = opened._AroundOpened(peer, shared(Y))
    own = next(
        each.address for found in psutil.net_if_addrs().values() for each in found if each.family.name == "AF_INET"
    )
    assert around.is_near(f"tcp://{own}:1234")
    assert around.is_near("inproc://10.0.0.1/17/1")
    assert not around.is_near("tcp://192.0.2.7:1234")


def test_a_partition_that_is_gone(shared, peer, client):
    segments = shared(Y)
    client.cancel(segments.futures[2], force=True)

    async def gone():
        await peer.ask("train_run_who_has", keys=[segments.keys[2]], some=False, timeout_s=20.0)

    peer.run(gone)
    with pytest.raises(DataError, match=r"Data set 'a' can't be opened: Partition 2 of 3 was released") as error:
        peer.run(open_rows, peer, "Data set 'a'", segments, range(3), 10.0)
    assert isinstance(error.value.__cause__, DataError)
    rows = peer.run(open_rows, peer, "it", segments, [0, 1], 10.0)
    assert everything(rows, [4, 4])[0].tolist() == list(range(8))


def test_a_partition_that_was_computed_again_with_other_rows(shared, peer):
    segments = shared(Y)
    other = replace(segments, lengths=np.array([4, 3, 2]))
    with pytest.raises(DataError, match="Data set 'a' can't be opened: Partition 1 of 3 had 3 rows and now has 4"):
        peer.run(open_rows, peer, "Data set 'a'", other, range(3), 10.0)
