"""Which Dask workers restart together, and who takes what they hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.tensorflow_network.on_scheduler.drain import stuck
from dask_train.tensorflow_network.on_scheduler.layout import (
    FILL_UP_TO,
    FRESH_PROCESS_BYTES,
    ClusterPicture,
    computable,
    only_on,
)

MB = 2**20
LIMIT = 1000 * MB
PROCESS = 300 * MB  # so that a Dask worker has room for 400 MB


@dataclass(eq=False)
class Worker:
    """A Dask worker, as the scheduler knows it."""

    address: str
    memory_limit: int = LIMIT
    has_what: list[Any] = field(default_factory=list)

    @property
    def memory(self) -> Any:
        return self

    @property
    def process(self) -> int:
        return PROCESS


@dataclass(eq=False)
class Task:
    """A task, as the scheduler knows it; without a recipe it is scattered data."""

    key: str
    nbytes: int = MB
    run_spec: str | None = None
    worker_restrictions: set[str] | None = None
    dependencies: list[Any] = field(default_factory=list)
    actor: bool = False
    who_has: set[Worker] = field(default_factory=set)

    def get_nbytes(self) -> int:
        return self.nbytes


class Cluster:
    """A scheduler with Dask workers a, b, c, ... that hold tasks."""

    def __init__(self, names: str = "abc") -> None:
        self.workers = {name: Worker(name) for name in names}
        self.tasks: dict[str, Task] = {}

    @property
    def running(self) -> list[Worker]:
        return list(self.workers.values())

    def hold(self, where: str, key: str, mb: int = 1, **about: Any) -> Task:
        task = self.tasks[key] = Task(key, mb * MB, **about)
        for name in where:
            self.workers[name].has_what.append(task)
            task.who_has.add(self.workers[name])
        return task


def test_only_on():
    cluster = Cluster()
    here, both, outside = cluster.hold("a", "here"), cluster.hold("ab", "both"), cluster.hold("bc", "outside")
    assert set(only_on(cluster, ["a"])) == {here}
    assert set(only_on(cluster, ["a", "b", "gone"])) == {here, both}
    assert set(only_on(cluster, "abc")) == {here, both, outside}


def test_what_dask_can_compute_again():
    scattered = Task("scattered")
    assert not computable(scattered, {"a"})
    assert computable(Task("free", run_spec="sum"), {"a"})
    assert not computable(Task("pinned", run_spec="sum", worker_restrictions={"a"}), {"a", "b"})
    assert computable(Task("pinned elsewhere", run_spec="sum", worker_restrictions={"a", "c"}), {"a", "b"})
    from_scattered = Task("from scattered", run_spec="sum", dependencies=[scattered])
    assert not computable(from_scattered, {"a"})
    scattered.who_has = {Worker("c")}
    assert computable(from_scattered, {"a"})
    assert not computable(Task("deep", run_spec="sum", dependencies=[from_scattered]), {"a", "c"})


def test_all_restart_at_once_where_the_others_have_room():
    cluster = Cluster("abc")
    cluster.hold("a", "x", 150)
    cluster.hold("b", "y", 150)
    layout = ClusterPicture.of(cluster, ["a", "b"])
    assert layout.next_wave(["a", "b"]) == ["a", "b"]
    shares, left = layout.shares(["a", "b"])
    assert ({target: sorted(keys) for target, keys in shares.items()}, left) == ({"c": ["x", "y"]}, [])


def test_else_a_part_of_them_takes_what_the_other_holds():
    cluster = Cluster("ab")
    cluster.hold("a", "x", 150)
    cluster.hold("b", "y", 150)
    layout = ClusterPicture.of(cluster, ["a", "b"])
    assert layout.next_wave(["a", "b"]) == ["a"]
    layout.restarted(["a"])
    assert layout.holders == {"x": {"b"}, "y": {"b"}}
    assert layout.next_wave(["b"]) == ["b"]
    assert stuck(cluster, ["a", "b"]) == []


def test_each_key_needs_a_place_of_its_own():
    cluster = Cluster("abc")
    cluster.hold("a", "x", 500)
    layout = ClusterPicture.of(cluster, ["a"])
    assert layout.shares(["a"]) == ({}, ["x"]), "400 MB twice are no room for 500 MB"
    assert layout.next_wave(["a"]) == []
    assert stuck(cluster, ["a"]) == [f"x ({500 * MB} bytes)"]


def test_the_largest_go_first_and_to_the_roomiest():
    cluster = Cluster("abc")
    cluster.workers["c"].memory_limit = 2 * LIMIT
    for key, mb in (("s", 10), ("l", 900), ("m", 300)):
        cluster.hold("a", key, mb)
    assert ClusterPicture.of(cluster, ["a"]).shares(["a"]) == ({"c": ["l", "s"], "b": ["m"]}, [])


def test_a_later_wave_that_can_not_be_emptied_is_found_beforehand():
    cluster = Cluster("ab")
    cluster.hold("b", "x", 500)
    assert ClusterPicture.of(cluster, ["a", "b"]).next_wave(["a", "b"]) == ["a"]
    # a takes it after its restart: 700 - 200 MB are room for 500
    assert stuck(cluster, ["a", "b"]) == []
    cluster.tasks["x"].nbytes += MB
    assert stuck(cluster, ["a", "b"]) == [f"x ({501 * MB} bytes)"]
    cluster.tasks["x"].run_spec = "sum"
    assert stuck(cluster, ["a", "b"]) == [], "it is computed again"


def test_nowhere_to_go():
    cluster = Cluster("a")
    cluster.hold("a", "x")
    cluster.hold("a", "y", run_spec="sum")
    cluster.hold("a", "z", run_spec="sum", worker_restrictions={"a"})
    assert set(stuck(cluster, ["a"])) == {f"x ({MB} bytes)", f"z ({MB} bytes)"}


def test_an_actor_can_not_be_moved():
    cluster = Cluster("ab")
    cluster.hold("a", "counter", actor=True, run_spec="Counter")
    assert stuck(cluster, ["a"]) == ["counter (an actor)"]
    assert stuck(cluster, ["b"]) == []


def test_what_is_needed_is_moved_before_what_dask_can_compute_again():
    cluster = Cluster("ab")
    cluster.hold("a", "again", 300, run_spec="sum")
    cluster.hold("a", "needed", 200)
    assert ClusterPicture.of(cluster, ["a"]).shares(["a"]) == ({"b": ["needed"]}, [])
    assert stuck(cluster, ["a"]) == []


def test_a_worker_without_a_limit_takes_all():
    cluster = Cluster("ab")
    cluster.workers["b"].memory_limit = 0
    cluster.hold("a", "x", 10_000)
    assert stuck(cluster, ["a"]) == []


@pytest.mark.parametrize("waiting", ["abc", "ab", "a"])
def test_nothing_held_means_one_wave(waiting):
    assert ClusterPicture.of(Cluster("abcd"), list(waiting)).next_wave(list(waiting)) == list(waiting)


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(1, 600)), max_size=12),
    st.sampled_from(["abcd", "abc", "ab", "d"]),
)
def test_no_needed_key_is_lost_in_any_plan(held, leaving):
    cluster = Cluster("abcd")
    for number, (where, mb) in enumerate(held):
        cluster.hold("".join(where), f"x{number}", mb)
    layout, waiting = ClusterPicture.of(cluster, list(leaving)), list(leaving)
    mine = set(layout.holders)
    while waiting and (wave := layout.next_wave(waiting)):
        before = {key: set(holders) for key, holders in layout.holders.items()}
        layout.restarted(wave)
        waiting = [address for address in waiting if address not in wave]
        assert set(layout.holders) == set(before) == mine
        assert all(layout.holders.values())
        assert all(0 <= room <= LIMIT * FILL_UP_TO - FRESH_PROCESS_BYTES for room in layout.room.values())


def test_one_that_dies_before_it_restarts_is_no_hindrance():
    cluster = Cluster("ab")
    cluster.hold("a", "x")
    layout = ClusterPicture.of(cluster, ["a", "gone"])
    assert layout.next_wave(["a", "gone"]) == ["a", "gone"]
    layout.restarted(["a", "gone"])
    assert layout.holders == {"x": {"b"}}
