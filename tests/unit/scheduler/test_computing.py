"""When Dask computes what somebody waits for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.scheduler.computing import HEARD_S, computes

NOW = 1000.0


class Task:
    """As the scheduler knows it."""

    def __init__(self, key, state="waiting", needs=(), worker=None):
        self.key, self.state, self.dependencies, self.processing_on = key, state, set(needs), worker


def worker(*, silent_s=0.0):
    return SimpleNamespace(last_seen=NOW - silent_s, executing={}, long_running=set())


def found(keys, *tasks):
    return computes(SimpleNamespace(tasks={task.key: task for task in tasks}), keys, NOW)


@pytest.mark.parametrize("silent_s", [0.0, HEARD_S + 1])
def test_what_is_needed_is_executed(silent_s):
    at = worker(silent_s=silent_s)
    read = Task("read", "processing", worker=at)
    at.executing[read] = 500.0
    partition = Task("partition", needs=[Task("done", "memory"), read])
    assert found(["gone", "partition"], partition, read) == (not silent_s)
    assert not found(["another"], partition, read)


def test_it_is_next_where_others_are_executed():
    at = worker()
    partition = Task("partition", "processing", worker=at)
    assert not found(["partition"], partition), "nothing is executed there"
    agent = Task("agent", "processing", worker=at)
    at.executing[agent] = 900.0
    assert found(["partition"], partition)
    at.long_running.add(agent)
    assert not found(["partition"], partition), "an agent, which goes on for as long as its run"


@pytest.mark.parametrize("state", ["memory", "erred", "released"])
def test_what_is_over_is_not_computed(state):
    at = worker()
    busy = Task("busy", "processing", worker=at)
    at.executing[busy] = 1.0
    assert not found(["partition"], Task("partition", state, needs=[busy], worker=at), busy)


def test_tasks_that_many_need_are_seen_once():
    layer = [Task("leaf")]
    for depth in range(40):
        layer = [Task(f"{side}{depth}", needs=layer) for side in "ab"]
    assert not found(["a39"], layer[0])
