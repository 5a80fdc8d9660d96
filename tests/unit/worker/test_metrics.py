"""What a Dask worker tells of this library."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.worker.metrics import COUNTERS, GAUGES, HEARTBEAT, WorkerMetrics

prometheus_client = pytest.importorskip("prometheus_client")


class Models(OwnPlugin):
    """A plug-in that tells something."""

    def numbers(self):
        return {"model_processes": 2, "predicted_rows": 64}


@pytest.fixture
def dask_worker():
    worker = SimpleNamespace(plugins={}, metrics={}, loop=SimpleNamespace(add_callback=lambda function: function()))
    found = WorkerMetrics.of(worker)
    yield worker
    found.teardown(worker)
    assert "dask_train_" not in prometheus_client.generate_latest().decode()


def test_the_numbers_of_all_plug_ins_go_to_prometheus_and_with_heartbeats(dask_worker, pool):
    dask_worker.plugins["models"] = Models(dask_worker)
    dask_worker.plugins["of others"] = object()
    start = pool.allocate(1)
    told = dask_worker.metrics[HEARTBEAT](dask_worker)
    assert told == {
        "segments_bytes": pool.used_bytes,
        "model_processes": 2,
        "template_processes": 0.0,
        "predicted_blocks": 0.0,
        "predicted_rows": 64,
    }
    assert pool.used_bytes > 0
    text = prometheus_client.generate_latest().decode()
    for name in GAUGES:
        assert f"\ndask_train_{name} {float(told[name])}\n" in text
    for name in COUNTERS:
        assert f"\ndask_train_{name}_total {float(told[name])}\n" in text
    pool.free(start, 1)


def test_of_several_dask_workers_in_a_process_the_first_answers(dask_worker):
    other = SimpleNamespace(plugins={}, metrics={}, loop=dask_worker.loop)
    second = WorkerMetrics.of(other)
    assert HEARTBEAT in other.metrics
    second.teardown(other)
    assert prometheus_client.generate_latest().decode().count("\ndask_train_model_processes ") == 1
