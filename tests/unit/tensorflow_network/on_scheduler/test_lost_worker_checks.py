"""When a Dask worker can restart without its cluster closing its nanny meanwhile."""

from __future__ import annotations

from types import SimpleNamespace

import dask
import pytest

from dask_train.tensorflow_network.on_scheduler import lost_worker_checks as checks
from dask_train.tensorflow_network.on_scheduler.lost_worker_checks import LATE_S, RESTART_S, LostWorkerChecks

PATIENCE_S = 15


class Clock:
    """The time, in seconds."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(checks, "time", clock)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": f"{PATIENCE_S}s"}):
        yield clock


def scheduler(**names):
    workers = {address: SimpleNamespace(address=address, name=name) for address, name in names.items()}
    return SimpleNamespace(workers=workers, plugins={"worker-status": None})


def leave_and_come_back(seen, old, new, name):
    seen.removed(old)
    seen._scheduler.workers[new] = SimpleNamespace(address=new, name=name)
    seen.added(new)


@pytest.mark.parametrize(
    ("after_s", "wait_s"),
    [
        (0, 0),
        (PATIENCE_S - RESTART_S - 0.1, 0),
        (PATIENCE_S - RESTART_S + 0.1, RESTART_S - 0.1 + LATE_S),
        (PATIENCE_S - 1, 1 + LATE_S),
        (PATIENCE_S, LATE_S),
        (PATIENCE_S + LATE_S + 0.1, 0),
    ],
)
def test_no_restart_just_before_a_look(clock, after_s, wait_s):
    seen = LostWorkerChecks(scheduler(a1="a", b1="b"))
    leave_and_come_back(seen, "a1", "a2", "a")
    clock.now += after_s
    assert seen.quiet_in_s(["a2", "b1"]) == pytest.approx(wait_s)
    assert seen.quiet_in_s(["b1"]) == 0


def test_looks_that_follow_each_other(clock):
    seen = LostWorkerChecks(scheduler(a1="a", b1="b"))
    leave_and_come_back(seen, "a1", "a2", "a")
    clock.now += 3
    leave_and_come_back(seen, "b1", "b2", "b")
    clock.now += PATIENCE_S - 3 - 1
    # the first look in 1 s, the second in 4: too near for a restart between them
    assert seen.quiet_in_s(["a2", "b2"]) == pytest.approx(4 + LATE_S)
    assert seen.quiet_in_s(["a2"]) == pytest.approx(1 + LATE_S)


def test_nobody_looks(clock):
    seen = LostWorkerChecks(scheduler(a1="a"))
    leave_and_come_back(seen, "a1", "a2", "a")
    clock.now += PATIENCE_S - 1
    seen._scheduler.plugins.clear()
    assert seen.quiet_in_s(["a2"]) == 0


def test_old_looks_are_forgotten(clock):
    seen = LostWorkerChecks(scheduler(a0="a"))
    for number in range(5):
        leave_and_come_back(seen, f"a{number}", f"a{number + 1}", "a")
        clock.now += 60
    assert [len(looks) for looks in seen._looks.values()] == [1]
