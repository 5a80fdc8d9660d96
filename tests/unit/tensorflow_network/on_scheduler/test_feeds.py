"""Which batch goes to which Dask worker, on a scheduler of plain objects."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.tensorflow_network.on_scheduler.feeds import MAX_TRIES, Feeds, FeedState
from dask_train.tensorflow_network.on_scheduler.networks import LOST, RUNNING, LeasedNetwork


@dataclass(frozen=True)
class Worker:
    """A Dask worker, as the scheduler knows it."""

    address: str


class Loop:
    """Keeps what is to be called later."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def call_later(self, _delay_s: float, function: Any, *args: Any) -> None:
        self.calls.append((function, args))

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for function, args in calls:
            function(*args)


class Cluster:
    """Dask workers a, b (tasks of the job), and c, which is none; and where the keys lie."""

    def __init__(self, **where: str) -> None:
        self.workers = {name: Worker(name) for name in "abc"}
        self.tasks: dict[str, Any] = {}
        self.loop = Loop()
        for key, holders in where.items():
            self.put(key, holders)
        self.network = LeasedNetwork("n1", "client", False, {}, 60.0, state=RUNNING)
        self.network.members = {"a": ("worker", 0), "b": ("worker", 1)}
        self.feeds = Feeds(self)

    def put(self, key: str, holders: str) -> None:
        who_has = {self.workers[holder] for holder in holders}
        state = "memory" if who_has else "processing"
        self.tasks[key] = SimpleNamespace(key=key, state=state, who_has=who_has, exception_blame=None)

    def fail(self, key: str, text: str) -> None:
        self.tasks[key].state, self.tasks[key].exception_text = "erred", text

    def feed(self, keys: list[str], name: str = "f1", job: str = "worker") -> FeedState:
        self.feeds.add(FeedState(name, self.network, job, keys))
        return self.feeds.by_id[name]

    def take(self, address: str) -> str | None:
        batch = self.feeds.take(self.network, address)
        return batch and batch["key"]


def test_what_lies_there_comes_first():
    cluster = Cluster(x1="a", x2="b", x3="c", x4="b")
    cluster.feed(["x1", "x2", "x3", "x4"])
    assert [cluster.take("b") for _ in range(4)] == ["x2", "x4", "x1", "x3"]
    assert cluster.take("b") is None


def test_else_it_comes_from_the_longest_backlog():
    cluster = Cluster(x1="b", x2="c", x3="c", x4="c")
    cluster.feed(["x1", "x2", "x3", "x4"])
    assert [cluster.take("a") for _ in range(4)] == ["x2", "x3", "x1", "x4"]


def test_a_batch_tells_all_who_hold_it():
    cluster = Cluster(x1="bc")
    cluster.feed(["x1"])
    batch = cluster.feeds.take(cluster.network, "a")
    assert (batch["feed"], batch["key"], sorted(batch["who_has"])) == ("f1", "x1", ["b", "c"])


def test_each_batch_goes_to_one_and_is_told_when_delivered():
    cluster = Cluster(x1="a", x2="a")
    feed = cluster.feed(["x1", "x2"])
    assert {cluster.take("a"), cluster.take("b"), cluster.take("a"), cluster.take("b")} == {"x1", "x2", None}
    cluster.feeds.delivered("f1", "x2", "")
    assert feed.report(0) | {"version": None} == {"version": None, "waiting": 1, "delivered": ["x2"], "failed": {}}
    cluster.feeds.delivered("f1", "x1", "")
    cluster.feeds.delivered("f1", "x1", "")
    cluster.feeds.delivered("another", "x1", "")
    assert (feed.report(1)["delivered"], feed.report(0)["waiting"], feed.over) == (["x1"], 0, True)


def test_what_still_computes_is_given_when_it_is_there():
    cluster = Cluster(x1="")
    cluster.feed(["x1", "unknown"])
    assert cluster.take("a") is None
    cluster.put("x1", "c")
    changed = cluster.network.changed
    cluster.feeds.transition("x1", "memory")
    assert changed.is_set()
    assert cluster.take("a") == "x1"


def test_other_jobs_and_other_networks_get_nothing():
    cluster = Cluster(x1="a")
    cluster.feed(["x1"], job="scorer")
    assert cluster.take("a") is None
    cluster.network.state = LOST
    cluster.network.members["a"] = ("scorer", 0)
    assert cluster.take("a") is None


def test_feeds_are_served_in_order():
    cluster = Cluster(x1="c", x2="c")
    cluster.feed(["x1"], "f1")
    cluster.feed(["x2"], "f2")
    assert [cluster.feeds.take(cluster.network, "a")["feed"] for _ in range(2)] == ["f1", "f2"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_is_told_with_its_text(when):
    cluster = Cluster(x1="a", x2="")
    if when == "before":
        cluster.fail("x2", "ValueError('no such row')")
    feed = cluster.feed(["x1", "x2"])
    if when == "after":
        cluster.fail("x2", "ValueError('no such row')")
        cluster.feeds.transition("x2", "erred")
    assert feed.failed == {"x2": "ended in an error: ValueError('no such row')"}
    assert cluster.take("a") == "x1", "the others are delivered"


def test_an_error_is_that_of_the_task_to_blame():
    cluster = Cluster(x1="", x2="")
    cluster.fail("x1", "the cause")
    cluster.fail("x2", None)
    cluster.tasks["x2"].exception_blame = cluster.tasks["x1"]
    assert cluster.feed(["x2"]).failed == {"x2": "ended in an error: the cause"}


def test_what_is_released_is_told():
    cluster = Cluster(x1="", x2="a")
    feed = cluster.feed(["x1", "x2"])
    cluster.take("a")
    del cluster.tasks["x1"]
    cluster.feeds.transition("x1", "forgotten")
    cluster.feeds.transition("x2", "forgotten")
    assert list(feed.failed) == ["x1"], "what is on its way is read already"
    assert "was released, or lost with its Dask worker" in feed.failed["x1"]


def test_a_failed_delivery_is_tried_again_later_but_not_for_ever():
    cluster = Cluster(x1="c")
    feed = cluster.feed(["x1"])
    for tries in range(1, MAX_TRIES + 1):
        assert cluster.take("a") == "x1"
        cluster.feeds.delivered("f1", "x1", "it is not on c")
        assert cluster.take("a") is None, "not at once"
        assert feed.over == (tries == MAX_TRIES)
        changed = cluster.network.changed
        cluster.loop.run()
        assert changed.is_set() == (tries < MAX_TRIES)
    assert feed.failed == {"x1": f"could not be brought to a queue in {MAX_TRIES} tries: it is not on c"}


def test_what_was_lost_on_its_way_is_told_when_dask_has_forgotten_it():
    cluster = Cluster(x1="c")
    feed = cluster.feed(["x1"])
    cluster.take("a")
    del cluster.tasks["x1"]
    cluster.feeds.transition("x1", "forgotten")
    cluster.feeds.delivered("f1", "x1", "it is not on c")
    cluster.loop.run()
    assert "lost with its Dask worker" in feed.failed["x1"]


def test_a_dropped_feed_gives_nothing_and_is_not_taken_for_delivered():
    cluster = Cluster(x1="a", x2="a")
    feed = cluster.feed(["x1", "x2"])
    cluster.take("a")
    version, changed = feed.version, feed.changed
    cluster.feeds.drop_network("n1")
    cluster.feeds.drop("f1")
    assert (feed.dropped, feed.over) == (True, False)
    assert (feed.version > version, changed.is_set()) == (True, True)
    assert cluster.take("a") is None
    cluster.feeds.delivered("f1", "x1", "")
    assert (cluster.feeds.by_id, cluster.feeds._watched) == ({}, {})


def test_a_feed_that_is_over_leaves_nothing():
    cluster = Cluster(x1="a")
    feed = cluster.feed(["x1"])
    cluster.take("a")
    cluster.feeds.delivered("f1", "x1", "")
    cluster.feeds.drop("f1")
    assert (feed.dropped, cluster.feeds._watched) == (False, {})
