"""How many Dask workers an adaptive cluster is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.scheduler.adaptive import AdaptiveTarget
from dask_train.scheduler.devices import DeviceRequest
from dask_train.scheduler.placement_queue import PlacementQueue, PlacementRequest
from dask_train.scheduler.runs import KnownRun, Runs

SHARES_AFTER_S = 1000.0


class Cluster:
    """Runs on a scheduler that an adaptive cluster asks; ``now`` is its time."""

    def __init__(self, scheduler):
        self.scheduler, self.now, self.runs = scheduler, 100.0, Runs()
        self.queue = PlacementQueue(scheduler, self.runs)
        self.target = AdaptiveTarget(scheduler, self.queue, clock=lambda: self.now)

    def asks(self):
        """What the scheduler answers."""
        return self.scheduler.handlers["adaptive_target"](target_duration="5s")

    def ask(self, name, count, *, on=None, host="", devices=None, maximum=None, **needs):
        run = self.runs.by_id.setdefault(name, KnownRun(name, "me", {}, cluster_maximum=maximum))
        wanted = [(("worker", rank), dict(needs)) for rank in range(count)]
        request = PlacementRequest(run, wanted, on, DeviceRequest.of(devices), host, shares_after_s=SHARES_AFTER_S)
        assert self.queue.ask(request) == ""
        return request


@pytest.fixture
def cluster(a_scheduler):
    """Makes clusters of Dask workers with so many threads."""
    return lambda **threads: Cluster(a_scheduler(**threads))


def test_what_tasks_want_is_asked_for(cluster):
    adaptive = cluster(a=1)
    adaptive.scheduler.wanted_by_tasks = 5
    assert adaptive.asks() == 5
    adaptive.ask("r1", 1)
    adaptive.ask("r2", 2)
    assert adaptive.asks() == 5, "runs want three, and tasks five"


@pytest.mark.parametrize(
    ("threads", "wanted"), [({}, 4), ({"a": 1}, 4), ({"a": 2}, 2), ({"a": 2, "b": 1}, 3), ({"a": 9}, 1)]
)
def test_a_run_that_waits_wants_a_thread_for_each_role(cluster, threads, wanted):
    adaptive = cluster(**threads)
    adaptive.asks()
    adaptive.ask("r1", 4)
    assert adaptive.asks() == (wanted if sum(threads.values()) < 4 else 0)


def test_all_that_wait_are_counted_and_what_others_use_is_not_free(cluster):
    adaptive = cluster(a=2, b=2)
    adaptive.ask("r1", 3)
    adaptive.ask("r2", 2)
    adaptive.ask("r3", 2)
    assert adaptive.asks() == 4, "one thread is free, and three are missing"


def test_a_run_that_names_its_dask_workers_or_its_host_wants_no_others(cluster):
    adaptive = cluster(a=1, b=1)
    adaptive.ask("r1", 2)
    adaptive.ask("r2", 1, on=["a"])
    adaptive.ask("r3", 1, host="b")
    assert adaptive.asks() == 0


def test_resources_say_how_many_roles_a_dask_worker_carries(cluster):
    adaptive = cluster(a=8)
    adaptive.scheduler.workers["a"].resources = {"GPU": 2}
    adaptive.scheduler.workers["a"].used_resources = {}
    adaptive.ask("r1", 2, GPU=1)
    adaptive.ask("r2", 2, GPU=1)
    assert adaptive.asks() == 2


@pytest.mark.parametrize(
    ("maximum", "asks", "shares"),
    [(3, False, False), (2, False, True), (0, True, True), (None, True, False), (None, False, True)],
)
def test_roles_share_threads_where_no_dask_worker_may_come(cluster, maximum, asks, shares):
    adaptive = cluster(a=1, b=1)
    if asks:
        adaptive.asks()
    request = adaptive.ask("r1", 4, maximum=maximum)
    assert bool(request.granted) == shares
    assert ("adaptive cluster is asked for more" in adaptive.queue.why(request)) == (not shares)


def test_roles_share_threads_once_they_have_waited(cluster):
    adaptive = cluster(a=1)
    request = adaptive.ask("r1", 2, maximum=5)
    assert not request.granted
    assert adaptive.queue.why(request).startswith("2 roles need as many free threads, and 1 of 1 are free.")
    request.asked -= SHARES_AFTER_S + 1
    adaptive.queue.serve()
    assert list(request.granted.values()) == ["a", "a"]
    adaptive.queue.free(request.run)
    again = adaptive.ask("r1", 2)
    assert again.granted, "a run that has shared once does not wait again"


def test_a_cluster_that_does_not_ask_any_more_is_not_adaptive(cluster):
    adaptive = cluster(a=1)
    adaptive.asks()
    assert adaptive.target.is_asked()
    adaptive.now += 31
    assert not adaptive.target.is_asked()


def test_a_run_that_grows_wants_what_it_may_have(cluster):
    adaptive = cluster(a=1, b=1)
    run = adaptive.ask("r1", 2).run
    assert adaptive.asks() == 0
    run.summary, run.follows = {"most_workers": 4}, True
    assert adaptive.asks() == 4
    adaptive.scheduler.add("c", 1)
    assert adaptive.asks() == 4
    adaptive.scheduler.add("d", 1)
    assert adaptive.asks() == 4, "those that it has not taken yet must not be closed"
    run.places |= {("worker", 2): ("c", {}), ("worker", 3): ("d", {})}
    assert adaptive.asks() == 0


def test_a_run_that_grows_wants_nothing_while_others_wait_or_hosts_are_several(cluster):
    adaptive = cluster(a=1, b=1)
    run = adaptive.ask("r1", 2).run
    run.summary, run.follows = {"most_workers": 8}, True
    adaptive.ask("r2", 1)
    assert adaptive.asks() == 3
    adaptive.queue.free(adaptive.runs.by_id["r2"])
    assert adaptive.asks() == 8
    adaptive.scheduler.workers["b"].host = "elsewhere"
    assert adaptive.asks() == 0
    run.follows = False  # its workers may be anywhere, as with parameter servers
    assert adaptive.asks() == 8


def test_dask_workers_that_are_of_no_use_do_not_draw_others_for_ever(cluster):
    adaptive = cluster(a=1, b=1)
    run = adaptive.ask("r1", 2).run
    run.summary, run.follows = {"most_workers": 4}, True
    for number in range(20):
        if adaptive.asks() > len(adaptive.scheduler.workers):
            adaptive.scheduler.add(f"n{number}", 0)  # all of its threads are taken
    assert len(adaptive.scheduler.workers) == 4
    adaptive.scheduler.wanted_by_tasks = 3
    assert adaptive.asks() == 6


def test_runs_without_places_grow_later(cluster):
    adaptive = cluster(a=1)
    adaptive.runs.by_id["r1"] = KnownRun("r1", "me", {}, summary={"most_workers": 8})
    assert adaptive.asks() == 0


def test_the_operation_is_that_of_dask():
    from distributed import Scheduler

    answered = SimpleNamespace(handlers={"adaptive_target": lambda target_duration: target_duration}, workers={})
    target = AdaptiveTarget(answered, PlacementQueue(answered, Runs()))
    assert answered.handlers["adaptive_target"](target_duration=7) == 7
    assert target.is_asked()
    assert "target_duration" in Scheduler.adaptive_target.__annotations__


def test_pages_of_the_scheduler_have_the_same_answer_and_only_one_of_them_is_for_clusters(cluster):
    from distributed.http.scheduler.api import AdaptiveTargetHandler

    adaptive, written = cluster(a=1), []
    adaptive.asks()
    adaptive.ask("r1", 4)
    adaptive.now += 100.0
    assert adaptive.scheduler.adaptive_target() == 4, "as metrics show it"
    assert not adaptive.target.is_asked()
    page = SimpleNamespace(server=adaptive.scheduler, set_header=lambda *_: None, write=written.append)
    AdaptiveTargetHandler.get(page)
    assert written == ['{"workers": 4}']
    assert adaptive.target.is_asked()
