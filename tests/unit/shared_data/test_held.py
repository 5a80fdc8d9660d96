"""Data sets that several runs use: computed once, released by whom they were made for."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

from dask_train.collections import check_data
from dask_train.errors import DataError, RoleLostError
from dask_train.shared_data.budget import RoleMemory
from dask_train.shared_data.held import HeldDataSets

Y = da.arange(10, chunks=4)
NO_ROLES = RoleMemory(num_roles=0, role_bytes=0)


def scheduled(client, segments):
    """How many of the segments the scheduler knows."""
    return sum(key in client.cluster.scheduler.tasks for key in segments.keys)


def test_what_is_new_is_computed_and_forgotten_and_what_was_there_stays(peer, client, shared):
    there = shared(Y + 1)
    held = HeldDataSets(peer, {"data": check_data("data", Y), "validation": there})
    held.compute(NO_ROLES)
    assert list(held.segments) == ["data", "validation"]
    assert held.segments["validation"] is there
    np.testing.assert_array_equal(held.segments["data"].arrays().compute(), Y)
    held.release()
    assert (scheduled(client, held.segments["data"]), scheduled(client, there)) == (0, 3)


def test_nothing_is_computed_of_what_does_not_fit(peer, client):
    held, before = HeldDataSets(peer, {"data": check_data("data", Y)}), set(client.cluster.scheduler.tasks)
    with (
        dask.config.set({"train.memory.limit": "30 B"}),
        pytest.raises(DataError, match=r"takes 80 B \(data: 80 B\), and 2 Dask workers can take \d+ B"),
    ):
        held.compute(NO_ROLES)
    assert held.segments == {}
    assert set(client.cluster.scheduler.tasks) <= before, "others may just be forgotten"
    held.release()


def test_one_that_can_not_be_computed_is_named_and_the_others_are_released(peer, client):
    bad = Y.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=np.arange(0))
    held = HeldDataSets(peer, {"data": check_data("data", Y), "validation": check_data("validation", bad)})
    with pytest.raises(DataError, match="A partition of validation can't be computed: ZeroDivisionError"):
        held.compute(NO_ROLES)
    assert scheduled(client, held.segments["data"]) == 3
    held.release()
    assert scheduled(client, held.segments["data"]) == 0


def test_what_will_lie_in_memory_twice_is_told(peer, client, capsys):
    persisted = client.persist(Y)
    held = HeldDataSets(peer, {"data": check_data("data", persisted)})
    held.compute(NO_ROLES)
    held.release()
    assert "data['data'] is persisted (80 B), and its rows are copied into shared memory" in capsys.readouterr().err


def test_a_scheduler_that_is_gone_hides_no_other_error(peer, client):
    held = HeldDataSets(peer, {"data": check_data("data", Y)})
    held.compute(NO_ROLES)

    async def gone(*_, **__):
        raise RoleLostError("The scheduler is gone.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peer, "ask", gone)
        held.release()


def test_one_that_was_there_and_is_lost(peer, client, shared):
    there = shared(Y)
    client.cancel(there.futures, force=True)
    peer.run(peer.ask, "train_run_who_has", keys=there.keys, some=False, timeout_s=20.0)
    with pytest.raises(DataError, match="Partition 0 of 3 of data is lost"):
        HeldDataSets(peer, {"data": there}).compute(NO_ROLES)
