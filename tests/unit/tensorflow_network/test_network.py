"""A network as its client sees it, with a stand-in for the scheduler and for Dask's client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed import Future

from dask_train.errors import ClosedError, DataError, LaunchError, RoleLostError
from dask_train.roles import AddressBook
from dask_train.tensorflow_network import network as network_module
from dask_train.tensorflow_network.member import leave
from dask_train.tensorflow_network.network import Network

FED = {"loss": "", "state": "running", "version": 0, "waiting": 1, "delivered": [], "failed": {}}


class Client:
    """Notes what is submitted."""

    cluster = None

    def __init__(self):
        self.submitted = []

    def submit(self, function, *args, **settings):
        self.submitted.append((function, args, settings))
        return SimpleNamespace(key=settings["key"])


class Peer:
    """A Dask end on the running event loop; the scheduler's answers are in ``answers``."""

    poll_s = 5.0
    asynchronous = True

    def __init__(self, client):
        self.dask_end, self.asked, self.cancelled, self.told_workers = client, [], [], []
        self.news = asyncio.Queue()
        self.answers = {"train_feed": FED, "train_roles": {"state": "running"}}
        self.spawned = []

    @property
    def loop(self):
        return self

    def add_callback(self, function):
        asyncio.get_running_loop().call_soon(function)

    def spawn(self, function):
        self.spawned.append(asyncio.ensure_future(function()))

    def run(self, function, *args):
        return asyncio.ensure_future(function(*args))

    async def ask(self, handler, **message):
        self.asked.append((handler, message))
        if handler.endswith("_watch"):
            return await self.news.get()
        answer = self.answers[handler]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def on_workers(self, function, *args, workers, on_error):
        assert on_error == "ignore", "those that are gone need not"
        self.told_workers.append((function, args, workers))

    async def cancel(self, futures):
        self.cancelled += futures


class Batch(Future):
    """A future of no client."""

    def __init__(self, key, is_cancelled=False):
        self.key, self._is_cancelled = key, is_cancelled

    def cancelled(self):
        return self._is_cancelled

    def __del__(self):
        pass

    def __repr__(self):
        return str(self.key)


def with_network(test, **settings):
    """Run ``test(net, peer)`` on an event loop, with a network of two workers and a ps."""

    async def run():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(network_module, "Peer", Peer)
            book = AddressBook(worker=["tcp://a:1", "tcp://b:1"], ps=["tcp://c:1"])
            net = Network(Client(), "n1", AddressBook(), book, **{"leave_servers": False} | settings)
            await asyncio.wait_for(test(net, net._peer), 60)
            for task in net._peer.spawned:
                task.cancel()

    return asyncio.run(run())


def check(test):
    """A test of a network as :func:`with_network` makes it."""
    return lambda: with_network(test)


async def lose(net, peer, state="lost", loss="worker 1 is gone."):
    peer.news.put_nowait({"state": state, "loss": loss})
    while net.status == "running":
        await asyncio.sleep(0)


@check
async def test_a_role_is_a_task_at_each_of_its_places(net, peer):
    futures = net.submit("worker", print, "x", end="")
    assert [settings["workers"] for _, _, settings in peer.dask_end.submitted] == [["tcp://a:1"], ["tcp://b:1"]]
    assert not any(settings["allow_other_workers"] or settings["pure"] for _, _, settings in peer.dask_end.submitted)
    assert [args[0::2] for _, args, _ in peer.dask_end.submitted] == [("n1", ("x",))] * 2
    assert [future.key[: len("print-worker-0-")] for future in futures] == ["print-worker-0-", "print-worker-1-"]
    await peer.spawned[-1]
    assert peer.asked[-1] == ("train_roles", {"network": "n1", "keys": [future.key for future in futures]})
    assert peer.cancelled == []


@check
async def test_roles_of_a_network_that_was_closed_meanwhile_are_cancelled(net, peer):
    peer.answers["train_roles"] = {"state": "closed"}
    futures = net.submit("ps", print)
    await peer.spawned[-1]
    assert peer.cancelled == futures


@check
async def test_a_scheduler_that_is_gone_is_told_by_the_roles_themselves(net, peer):
    peer.answers["train_roles"] = RoleLostError("The Dask scheduler did not answer.")
    net.submit("ps", print)
    await peer.spawned[-1]


@check
async def test_wrong_arguments_are_refused_before_anything_is_asked(net, peer):
    peer.asked.clear()
    with pytest.raises(TypeError, match="submit takes a function for job 'worker', not 3"):
        net.submit("worker", 3)
    with pytest.raises(ValueError, match="chief"):
        net.submit("chief", print)
    with pytest.raises(ValueError, match="chief"):
        net.feed([Batch("a")], to="chief")
    with pytest.raises(ValueError, match="feed was given no batches"):
        net.feed([], to="worker")
    with pytest.raises(TypeError, match="feed takes Dask futures, not a int"):
        net.feed([1], to="worker")
    with pytest.raises(ValueError, match="the same batch twice"):
        net.feed([Batch("a"), Batch("a")], to="worker")
    with pytest.raises(DataError, match=r"1 of 2 batches were cancelled or released; the first is b\."):
        await net.feed([Batch("a"), Batch("b", is_cancelled=True)], to="worker")
    assert (peer.asked, peer.dask_end.submitted) == ([], [])


@check
async def test_feeds_go_on_that_nobody_holds_until_all_is_delivered(net, peer):
    first = await net.feed([Batch("a")], to="worker")
    second = await net.feed([Batch("b")], to="worker")
    first.waiting = 0
    third = await net.feed([Batch("c")], to="worker")
    assert net._feeds == [second, third]


@check
async def test_a_loss_ends_what_waits_and_what_comes(net, peer):
    watching = net.wait_lost(5)
    await lose(net, peer)
    with pytest.raises(RoleLostError, match=r"worker 1 is gone\. Close the network"):
        await watching
    with pytest.raises(RoleLostError, match="worker 1 is gone"):
        net.submit("worker", print)
    assert net.status == "lost"


@check
async def test_a_network_that_another_client_closes_takes_no_more(net, peer):
    await lose(net, peer, "closing", "")
    with pytest.raises(ClosedError, match=r"Network n1 is closing\. Start a new one"):
        await net.feed([Batch("a")], to="worker")


@check
async def test_the_cluster_is_as_before_where_no_close_has_ended(net, peer):
    taken_down = asyncio.Event()

    async def down():
        taken_down.set()

    net._shield = SimpleNamespace(down=down)
    await lose(net, peer, "closed", "")
    await asyncio.wait_for(taken_down.wait(), 5)
    await net.close()


@pytest.mark.parametrize("leave_servers", [False, True])
def test_closing_restarts_or_leaves_and_twice_is_fine(leave_servers):
    async def close(net, peer):
        peer.answers["train_close"] = {"status": "OK", "missing": []}
        await net.close(force=True, timeout_s=7)
        await net.close()
        closed = [message for handler, message in peer.asked if handler == "train_close"]
        assert closed == [{"network": "n1", "force": True, "timeout_s": 7}]
        everyone = ["tcp://a:1", "tcp://b:1", "tcp://c:1"]
        assert peer.told_workers == ([(leave, ("n1",), everyone)] if leave_servers else [])
        peer.news.put_nowait({"state": "closing", "loss": ""})  # asked before, told after
        await asyncio.sleep(0.01)
        assert net.status == "closed"

    with_network(close, leave_servers=leave_servers)


@check
async def test_what_only_it_holds_keeps_it_open(net, peer):
    peer.answers["train_close"] = {"status": "held", "keys": ["x", "y"]}
    with pytest.raises(DataError, match=r"n1 can't be closed: 2 results lie only on its Dask workers.*: x, y"):
        await net.close()
    assert net.status == "running"


@check
async def test_it_is_closed_though_some_do_not_come_back(net, peer):
    peer.answers["train_close"] = {"status": "OK", "missing": ["tcp://n:1"]}
    with pytest.raises(LaunchError, match=r"1 Dask workers did not come back; their nannies were tcp://n:1\."):
        await net.close(timeout_s=2)
    assert net.status == "closed"


@check
async def test_an_asynchronous_network_is_no_plain_context(net, peer):
    peer.answers["train_close"] = {"status": "OK", "missing": []}
    with pytest.raises(TypeError, match="async with await"), net:
        pass
    async with net as same:
        assert same is net
    assert net.status == "closed"
