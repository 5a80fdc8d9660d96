"""A partition becomes a segment, or is refused before the Dask worker or its container runs out of memory."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_train.worker import segments
from dask_train.worker.metrics import WorkerMetrics
from dask_train.worker.segments import SPARE_BYTES, make_segment

ROWS = np.arange(50_000)  # 400,000 bytes


@pytest.fixture
def dask_worker(monkeypatch, pool):
    """One that writes results to disk beyond half a megabyte; ``left`` is what its container says, in turn."""
    memory = SimpleNamespace(memory_limit=1_000_000, memory_target_fraction=0.5)
    loop = SimpleNamespace(add_callback=lambda _: None)
    worker = SimpleNamespace(
        address="tcp://1.2.3.4:5", memory_manager=memory, plugins={}, metrics={}, loop=loop, left=[]
    )
    monkeypatch.setattr(segments, "get_worker", lambda: worker)
    monkeypatch.setattr(segments, "bytes_left", lambda: worker.left.pop(0) if worker.left else None)
    return worker


def refused(limit: int | None, error: str, pool) -> None:
    before = pool.used_bytes
    with pytest.raises(MemoryError, match=error):
        make_segment([ROWS], limit)
    assert pool.used_bytes == before, "nothing is kept of it"


def test_its_rows_are_those_of_the_partition(dask_worker, pool):
    segment = make_segment([ROWS, ROWS.astype("f4")], 1_000_000)
    assert [column.dtype for column in segment.columns] == [ROWS.dtype.str, "<f4"]
    np.testing.assert_array_equal(segment.rows(np.array([7, 3]))[0], [7, 3])
    assert WorkerMetrics.name in dask_worker.train_plugins, "what they take is told"
    assert pool.used_bytes >= segment.nbytes


def test_what_dask_would_write_to_disk_is_refused(dask_worker, pool):
    kept = make_segment([ROWS], None)
    refused(None, r"tcp://1.2.3.4:5 would take [\d,]+ bytes, and Dask writes results to disk beyond 500,000", pool)
    del kept
    make_segment([ROWS], None)


@pytest.mark.parametrize(("limit", "fraction"), [(0, 0.5), (None, 0.5), (500_000, False)])
def test_dask_may_have_no_limit_or_write_nothing_to_disk(dask_worker, limit, fraction):
    memory = dask_worker.memory_manager
    memory.memory_limit, memory.memory_target_fraction = limit, fraction
    make_segment([ROWS], None)


def test_a_limit_of_the_users_counts_in_place_of_dasks_and_the_containers(dask_worker, pool):
    dask_worker.left = [0]
    kept = make_segment([ROWS], 900_000)
    twice = make_segment([ROWS], 900_000)
    refused(900_000, r"bytes, and train\.memory\.limit is 900,000; pass streaming=True", pool)
    assert dask_worker.left == [0], "nobody has asked the container"
    del kept, twice


def test_what_the_container_has_no_room_for_is_refused(dask_worker, pool):
    dask_worker.left = [SPARE_BYTES + ROWS.nbytes - 1, SPARE_BYTES + ROWS.nbytes - 1]
    refused(None, rf"the container of Dask worker tcp://1.2.3.4:5 has [\d,]+ bytes left, .* {ROWS.nbytes:,}", pool)
    dask_worker.left = [SPARE_BYTES + ROWS.nbytes]
    make_segment([ROWS], None)


def test_memory_that_is_kept_warm_is_given_back_before_one_is_refused(dask_worker, pool, monkeypatch):
    trimmed = []
    monkeypatch.setattr(pool, "trim", lambda: trimmed.append(len(dask_worker.left)))
    dask_worker.left = [0, SPARE_BYTES + ROWS.nbytes]
    make_segment([ROWS], None)
    assert trimmed == [1], "and then the container is asked again"
    monkeypatch.undo()
