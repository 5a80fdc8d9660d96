"""What Dask workers tell beside runs, and the tasks of predictions."""

from __future__ import annotations

from types import SimpleNamespace

from dask_train.dashboard import workers as shown
from dask_train.dashboard.workers import Rates, predictions_table, workers_table
from dask_train.worker import metrics as told


def a_worker(address="tcp://h:1", **numbers):
    numbers = {**dict.fromkeys((*told.GAUGES, *told.COUNTERS), 0.0), **numbers}
    return SimpleNamespace(address=address, metrics={shown.HEARTBEAT: numbers})


def test_the_name_is_that_under_which_dask_workers_tell():
    assert shown.HEARTBEAT == told.HEARTBEAT


def test_dask_workers_that_tell_of_this_library():
    rates = Rates()
    for now, rows in ((0.0, 0), (10.0, 5000)):
        workers = [a_worker(model_processes=1, predicted_blocks=3, predicted_rows=rows, segments_bytes=3 << 20)]
        rates.look(workers, now)
    table = workers_table([*workers, SimpleNamespace(address="tcp://h:2", metrics={})], rates)
    assert table == {
        "address": ["tcp://h:1"],
        "host": ["h"],
        "model processes": [1],
        "blocks": [3],
        "rows": ["5,000"],
        "rows/s": ["500"],
        "templates": [0],
        "shared memory": ["3.00 MiB"],
    }


def test_a_rate_is_of_the_last_seconds_and_of_those_that_are_there():
    rates = Rates()
    for second in range(100):
        rates.look([a_worker(predicted_rows=10.0 * min(second, 50))], float(second))
    assert rates.of("tcp://h:1") == 0.0
    rates.look([], 101.0)
    assert rates.of("tcp://h:1") == 0.0


def test_predictions_are_known_by_the_names_of_their_tasks():
    states = {"memory": 2, "forgotten": 2, "processing": 1, "waiting": 3}
    groups = {
        "predict-abc": SimpleNamespace(states=states, duration=2.0),
        "sum-abc": SimpleNamespace(states={"memory": 1}, duration=1.0),
        "frame_block-def": SimpleNamespace(states={"erred": 1, "queued": 1}, duration=0.0),
    }
    assert predictions_table(groups) == {
        "prediction": ["frame_block-def", "predict-abc"],
        "waiting": [1, 3],
        "running": [0, 1],
        "done": [0, 4],
        "failed": [1, 0],
        "seconds a block": ["", "0.5"],
    }
