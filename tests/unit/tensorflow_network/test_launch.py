"""Raising a network over stand-ins for the scheduler and the Dask workers: all of it, or nothing is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dask_train.config import Deadlines
from dask_train.errors import LaunchError, PlacementError, RoleLostError, VersionMismatchError
from dask_train.tensorflow_network import launch as launch_module
from dask_train.tensorflow_network import member
from dask_train.tensorflow_network.launch import NetworkPlan, launch

PLACES = {"worker": ["tcp://a:1", "tcp://b:1"], "ps": ["tcp://c:1"]}
VERSIONS = {"python": "3.11.4", "dask_train": "0.1.0", "tensorflow": "2.21.0"}


class Cluster:
    """Answers of the scheduler by handler, and what each Dask worker does by the function it is to run."""

    def __init__(self):
        self.asked, self.did, self.shields = [], [], []
        self.answers = {
            "train_reserve": {"status": "OK", "jobs": PLACES},
            "train_started": {"state": "running", "loss": ""},
            "train_close": {"status": "OK", "missing": []},
            "train_forget": {"status": "OK"},
        }
        self.versions = {address: dict(VERSIONS) for places in PLACES.values() for address in places}
        self.failing = {}
        self.hanging = set()

    async def ask(self, handler, **message):
        self.asked.append((handler, message))
        if isinstance(answer := self.answers[handler], BaseException):
            raise answer
        return answer

    async def on_worker(self, function, address):
        self.did.append((function, address))
        if (function, address) in self.hanging:
            await asyncio.sleep(60)
        if error := self.failing.get((function, address)):
            raise error
        return self.versions[address] if function == "versions" else f"{address[6:7]}:2222"

    def who(self, function):
        """Where it was run, in the order of names."""
        return sorted(address for each, address in self.did if each == function)

    def last(self, handler):
        """The last message to it."""
        return next((message for each, message in reversed(self.asked) if each == handler), None)


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    names = {member.join: "join", member.start: "start", member.leave: "leave"}

    class Peer:
        id = "Client-1"

        def __init__(self, client):
            self.ask = made.ask

        async def on_workers(self, function, *args, workers, **settings):
            name = names.get(function, "versions")
            return {address: await made.on_worker(name, address) for address in workers}

    class Shield:
        def __init__(self, peer):
            pass

        async def up(self):
            made.shields.append("up")

        async def down(self):
            made.shields.append("down")

    async def installed(peer):
        pass

    monkeypatch.setattr(launch_module, "Peer", Peer)
    monkeypatch.setattr(launch_module, "Shield", Shield)
    monkeypatch.setattr(launch_module, "ensure_networks_plugin", installed)
    monkeypatch.setattr(launch_module.environment, "installed_versions", lambda: VERSIONS)
    return made


def plan_of(**settings):
    asked = {"id": "n1", "counts": {"worker": 2, "ps": 1}, "on": None, "leave_servers": False, "queue_size": 2}
    return NetworkPlan(start_server=print, **asked | settings)


def raise_network(launch_s=30.0, **settings):
    deadlines = replace(Deadlines.from_dask_config(), launch_s=launch_s, close_s=7.0)
    return asyncio.run(launch(None, plan_of(**settings), deadlines))


def test_servers_are_told_of_the_ports_that_were_bound(cluster):
    tf_spec, dask_spec = raise_network()
    assert dask_spec.as_dict() == PLACES
    assert tf_spec.as_dict() == {"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]}
    assert [cluster.who(what) for what in ("join", "start", "leave")] == [[*PLACES["worker"], *PLACES["ps"]]] * 2 + [[]]
    assert cluster.shields == ["up"], "until it is closed"


@pytest.mark.parametrize(
    ("answer", "settings", "text"),
    [
        (
            {"status": "unknown", "addresses": ["tcp://x:1"], "known": []},
            {"on": ["tcp://x:1"]},
            r"on= names tcp://x:1, which the cluster does not have\. Its Dask workers are none\.",
        ),
        (
            {"status": "no nanny", "addresses": ["tcp://a:1"]},
            {},
            r"1 of the Dask workers have no nanny: tcp://a:1\..*leave_servers=True",
        ),
        ({"status": "no client"}, {}, "does not know the client Client-1"),
        (
            {"status": "too few", "need": 3, "free": 1, "taken": {"tcp://b:1": "is paused"}},
            {},
            r"worker=2, ps=1 needs 3 Dask workers, one a task, and 1 of 2 in the cluster are free\. tcp.* is paused",
        ),
        (
            {"status": "too few", "need": 0, "free": 0, "taken": {}},
            {"counts": {}, "on": []},
            r"worker on every Dask worker: there are no Dask workers in on=\. Start some",
        ),
    ],
)
def test_a_place_that_can_not_be_had_is_told_and_nothing_is_begun(cluster, answer, settings, text):
    cluster.answers["train_reserve"] = answer
    with pytest.raises(PlacementError, match=text):
        raise_network(**settings)
    assert cluster.did == cluster.shields == []
    assert cluster.last("train_forget") is None


@pytest.mark.parametrize("answer", [RoleLostError("no answer within 120 s"), None], ids=["late", "interrupted"])
def test_a_lease_of_which_no_answer_came_is_given_back(cluster, answer):
    cluster.answers["train_reserve"] = answer or asyncio.CancelledError()
    with pytest.raises(type(cluster.answers["train_reserve"])):
        raise_network()
    assert cluster.last("train_forget") == {"network": "n1", "spent": False}


@pytest.mark.parametrize("hangs_in", ["join", "start"])
def test_a_second_interrupt_does_not_break_off_what_undoes_a_launch(cluster, hangs_in):
    cluster.hanging.add((hangs_in, "tcp://a:1"))
    undoing, goes_on = asyncio.Event(), asyncio.Event()

    async def ask(handler, **message):
        cluster.asked.append((handler, message))
        if handler in ("train_forget", "train_close"):
            undoing.set()
            await goes_on.wait()
            cluster.asked.append(("undone", {}))
        return cluster.answers[handler]

    async def interrupt_twice():
        cluster.ask = ask
        launching = asyncio.ensure_future(launch(None, plan_of(), Deadlines.from_dask_config()))
        while (hangs_in, "tcp://a:1") not in cluster.did:
            await asyncio.sleep(0)
        launching.cancel()
        await undoing.wait()
        launching.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await launching
        assert cluster.last("undone") is not None
        assert cluster.shields == ["up", "down"]

    asyncio.run(interrupt_twice())


@pytest.mark.parametrize(
    ("there", "error", "text"),
    [
        ({"tensorflow": None}, LaunchError, r"tensorflow is not installed on 1 of 3 Dask workers: tcp://b:1\."),
        ({"dask_train": None}, LaunchError, r"dask_train is not installed on 1 of 3"),
        ({"tensorflow": "2.20.0"}, VersionMismatchError, r"2\.20\.0 on tcp://b:1 and 2\.21\.0 on the client"),
        ({"python": "3.12.4"}, VersionMismatchError, r"python is 3\.12\.4 on tcp://b:1"),
        ({"dask_train": "0.1.1"}, VersionMismatchError, r"dask_train is 0\.1\.1 on tcp://b:1"),
    ],
)
def test_versions_that_do_not_fit_end_it_before_a_port_is_bound(cluster, there, error, text):
    told = cluster.versions["tcp://b:1"] | there
    cluster.versions["tcp://b:1"] = {package: version for package, version in told.items() if version}
    with pytest.raises(error, match=text):
        raise_network()
    assert cluster.who("join") == []
    assert cluster.last("train_forget") == {"network": "n1", "spent": False}


def test_patches_of_versions_and_a_client_without_tensorflow_fit(cluster, monkeypatch):
    monkeypatch.setattr(launch_module.environment, "installed_versions", lambda: {**VERSIONS, "python": "3.11.9"})
    raise_network()
    monkeypatch.setattr(
        launch_module.environment, "installed_versions", lambda: {"python": "3.11.9", "dask_train": "0.1.0"}
    )
    raise_network()
    cluster.versions["tcp://b:1"]["tensorflow"] = "2.20.0"
    with pytest.raises(VersionMismatchError, match=r"2\.20\.0 on tcp://b:1 and 2\.21\.0 on tcp://a:1"):
        raise_network()


def test_a_port_that_can_not_be_bound_leaves_nothing(cluster):
    cluster.failing["join", "tcp://b:1"] = OSError("no ports")
    with pytest.raises(LaunchError, match=r"worker 1 could not bind a port on tcp://b:1: OSError: no ports\."):
        raise_network()
    assert cluster.who("leave") == [*PLACES["worker"], *PLACES["ps"]]
    assert cluster.last("train_forget") == {"network": "n1", "spent": False}
    assert cluster.last("train_close") is None, "no server has started, so nothing is restarted"
    assert cluster.shields == ["up", "down"]


@pytest.mark.parametrize("leave_servers", [False, True])
def test_a_server_that_fails_ends_those_that_started(cluster, leave_servers):
    cluster.failing["start", "tcp://c:1"] = LaunchError("The TensorFlow server of ps 0 could not start.")
    with pytest.raises(LaunchError, match="ps 0 could not start its server on tcp://c:1: The TensorFlow server of ps"):
        raise_network(leave_servers=leave_servers)
    assert cluster.last("train_close") == {"network": "n1", "force": False, "timeout_s": 7.0}
    assert bool(cluster.who("leave")) == leave_servers, "else their processes are gone"
    assert cluster.last("train_forget") is None
    assert cluster.shields == ["up", "down"]


def test_results_that_lie_only_there_are_not_lost_for_a_launch_that_failed(cluster):
    cluster.answers["train_started"] = {"state": "lost", "loss": "worker 0 is gone."}
    cluster.answers["train_close"] = {"status": "held", "keys": ["x", "y"]}
    with pytest.raises(LaunchError, match="worker 0 is gone") as caught:
        raise_network()
    assert "2 results lie only there and can't be moved: x, y." in caught.value.__notes__[0]
    assert cluster.last("train_forget") == {"network": "n1", "spent": True}


def test_one_that_is_late_is_named_with_its_place(cluster):
    cluster.hanging.add(("start", "tcp://b:1"))
    text = (
        r"1 of 3 Dask workers did not start its server within 0\.2 s: worker 1 on tcp://b:1\..*train\.launch\.timeout"
    )
    with pytest.raises(LaunchError, match=text):
        raise_network(launch_s=0.2)


def test_one_that_hangs_holds_the_end_up_no_longer_than_it_may(cluster, monkeypatch):
    monkeypatch.setattr(launch_module, "UNDO_S", 0.02)
    cluster.failing["join", "tcp://a:1"] = OSError("no ports")
    cluster.hanging.add(("leave", "tcp://a:1"))
    with pytest.raises(LaunchError, match="no ports"):
        raise_network()
    assert cluster.last("train_forget")


def test_a_scheduler_that_goes_meanwhile_takes_the_shield_down(cluster):
    cluster.failing["start", "tcp://a:1"] = OSError("no")
    cluster.answers["train_close"] = RoleLostError("The Dask scheduler did not answer.")
    with pytest.raises(RoleLostError):
        raise_network()
    assert cluster.shields == ["up", "down"]
