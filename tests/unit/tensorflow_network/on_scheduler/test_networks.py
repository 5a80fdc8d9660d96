"""Where the tasks of a network are put, on a scheduler of plain objects."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from dask_train.tensorflow_network.on_scheduler.networks import LOST, LeasedNetwork, Networks


@dataclass
class Worker:
    """A Dask worker, as the scheduler knows it."""

    address: str
    host: str
    status: Any = field(default_factory=lambda: SimpleNamespace(name="running"))
    nanny: str | None = "nanny"
    memory_limit: int = 100
    metrics: dict[str, int] = field(default_factory=dict)


class Locks:
    """As Dask's extension for ``MultiLock``."""

    def __init__(self) -> None:
        self.locks: dict[str, list[str]] = defaultdict(list)

    def _request_locks(self, names: list[str], user: str, count: int) -> bool:
        assert len(names) == count
        for name in names:
            self.locks[name].append(user)
        return all(self.locks[name] == [user] for name in names)

    def release(self, user: str) -> None:
        for users in self.locks.values():
            users[:] = [u for u in users if u != user]


def scheduler(**hosts: str) -> Any:
    """Dask workers by host: ``scheduler(h1="ab")`` has a and b on h1."""
    found = {a: Worker(a, host) for host, addresses in hosts.items() for a in addresses}
    locks = Locks()
    return SimpleNamespace(workers=found, clients={"me": None}, tasks={}, extensions={"multi_locks": locks}, plugins={})


def reserve(
    networks: Networks, name: str = "n1", on: list[str] | None = None, client: str = "me", **counts: int
) -> Any:
    leave = counts.pop("leave_servers", False)
    return networks.reserve(LeasedNetwork(name, client, bool(leave), {}, 60.0), counts, on)


def test_tasks_are_spread_over_the_hosts():
    networks = Networks(scheduler(h1="abc", h2="de", h3="f"))
    jobs = reserve(networks, ps=2, worker=3)["jobs"]
    assert jobs == {"ps": ["a", "d"], "worker": ["f", "b", "e"]}
    assert networks.by_id["n1"].members == {
        "a": ("ps", 0),
        "d": ("ps", 1),
        "f": ("worker", 0),
        "b": ("worker", 1),
        "e": ("worker", 2),
    }


def test_on_is_taken_in_its_order():
    networks = Networks(scheduler(h1="abc", h2="de"))
    assert reserve(networks, on=["e", "c", "a"], ps=1, worker=1)["jobs"] == {"ps": ["e"], "worker": ["c"]}
    assert reserve(networks, "n2", on=["e", "a"], ps=1)["jobs"] == {"ps": ["a"]}
    assert reserve(networks, "n3", on=["x", "a", "y"], ps=1)["addresses"] == ["x", "y"]


def test_all_or_nothing():
    cluster = scheduler(h1="abc")
    networks = Networks(cluster)
    cluster.workers["b"].status.name = "paused"
    cluster.workers["b"].metrics["memory"] = 84
    cluster.extensions["multi_locks"].locks["c"].append("xgboost")
    answer = reserve(networks, worker=2)
    assert answer == {
        "status": "too few",
        "need": 2,
        "free": 1,
        "taken": {"b": "is paused (memory at 84%)", "c": "is locked by another library, such as xgboost.dask"},
    }
    assert networks.by_id == {}
    assert "a" not in cluster.extensions["multi_locks"].locks or not cluster.extensions["multi_locks"].locks["a"]
    assert reserve(networks)["jobs"] == {"worker": ["a"]}
    assert reserve(networks, "n2")["status"] == "too few"


def test_a_network_of_a_client_that_left_is_named_so():
    cluster = scheduler(h1="a")
    networks = Networks(cluster)
    reserve(networks)
    assert reserve(networks, "n2")["taken"] == {"a": "carries network n1"}
    cluster.clients = {"another": None}
    assert reserve(networks, "n2", client="another")["taken"] == {"a": "carries network n1 of a client that left"}
    assert reserve(networks, "n3", client="me") == {"status": "no client"}


def test_what_a_forgotten_network_leaves():
    networks = Networks(scheduler(h1="ab"))
    reserve(networks)
    net = networks.by_id["n1"]
    networks.forget(net)
    networks.forget(net)
    assert reserve(networks, "n2")["jobs"] == {"worker": ["a", "b"]}
    networks.forget(networks.by_id["n2"], spent=True)
    assert reserve(networks, "n3")["taken"] == dict.fromkeys(
        "ab", "holds a server of network n2, which ended without a restart"
    )


def test_nannies_are_needed_only_where_a_restart_will_be():
    cluster = scheduler(h1="ab")
    cluster.workers["b"].nanny = None
    networks = Networks(cluster)
    assert reserve(networks, worker=2) == {"status": "no nanny", "addresses": ["b"]}
    assert reserve(networks, worker=1)["jobs"] == {"worker": ["a"]}
    assert reserve(networks, "n2", worker=1, leave_servers=True)["jobs"] == {"worker": ["b"]}


class Tasks:
    """Records which role is ended, and how."""

    def __init__(self, **states: str) -> None:
        self.tasks = {key: SimpleNamespace(key=key, state=state) for key, state in states.items()}
        self.ended: dict[str, bytes] = {}
        self.loop = self
        self.callbacks: list[Any] = []

    def add_callback(self, function: Any, *arguments: Any) -> None:
        self.callbacks.append((function, arguments))

    def transition(self, key: str, finish: str, stimulus: str, **error: Any) -> dict[str, str]:
        self.tasks[key].state = finish
        if finish == "erred":
            self.ended[key] = error.get("exception") or self.tasks[key].exception
        return {key: "waiting"} if finish == "released" else {}

    def transitions(self, recommendations: dict[str, str], stimulus: str) -> None:
        assert not recommendations


def test_unfinished_roles_end_with_the_reason():
    cluster = Tasks(running="processing", dead="no-worker", early="waiting", done="memory", failed="erred")
    networks = Networks(cluster)
    net = LeasedNetwork("n1", "me", False, {"lost": b"lost: @reason@", "closed": b"closed: @reason@"}, 60.0)
    networks.add_roles(net, [*cluster.tasks, "unknown"])
    assert cluster.ended == {}
    net.state, net.loss = LOST, "ps 0 is gone:\nits Dask worker left."
    networks.end_roles(net)
    assert cluster.ended == dict.fromkeys(("running", "dead", "early"), b"lost: ps 0 is gone: its Dask worker left.")
    # what only the lost one held is to be computed again, which can't be
    networks.transition("done", "no-worker")
    networks.transition("nobody's", "no-worker")
    assert len(cluster.callbacks) == 1
    for key in ("running", "nobody's"):
        networks.transition(key, "forgotten")
    assert net.role_keys == {"dead", "early", "done", "failed", "unknown"}


def test_roles_that_come_too_late_end_at_once():
    cluster = Tasks(late="processing")
    net = LeasedNetwork(
        "n1", "me", False, {"lost": b"lost: @reason@", "closed": b"closed: @reason@"}, 60.0, state="closed"
    )
    Networks(cluster).add_roles(net, ["late"])
    assert cluster.ended == {"late": b"closed: Network n1 was closed."}
