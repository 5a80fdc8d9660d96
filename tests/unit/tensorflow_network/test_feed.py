"""A feed as its client sees it, told by a stand-in for the scheduler how it stands."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from dask_train.errors import ClosedError, DataError, RoleLostError, StalledError
from dask_train.tensorflow_network.feed import Feed


class Peer:
    """A Dask end on the running event loop; what the scheduler tells next is put into ``told``."""

    poll_s = 0.01

    def __init__(self):
        self.asked = []
        self.at_first = {"loss": "", "state": "running"}
        self.told = asyncio.Queue()

    @property
    def loop(self):
        return self

    def add_callback(self, function):
        asyncio.get_running_loop().call_soon(function)

    def spawn(self, function):
        self.following = asyncio.ensure_future(function())

    def run(self, function, *args):
        return asyncio.ensure_future(function(*args))

    async def ask(self, handler, **message):
        self.asked.append((handler, message))
        return await self.told.get() if handler == "train_feed_watch" else self.at_first

    def tell(self, version, waiting, *delivered, **failed):
        self.told.put_nowait({"version": version, "waiting": waiting, "delivered": delivered, "failed": failed})


def fed(test):
    """Run ``test(feed, peer)`` on an event loop, with a feed of batches a, b and c that is under way."""

    async def run():
        peer = Peer()
        feed = await Feed(peer, "n1", "worker", [SimpleNamespace(key=key) for key in "abc"])._start()
        await asyncio.wait_for(test(feed, peer), 60)
        peer.following.cancel()

    return lambda: asyncio.run(run())


@fed
async def test_batches_are_kept_alive_until_they_are_delivered(feed, peer):
    assert peer.asked[0] == ("train_feed", {"network": "n1", "feed": feed.id, "job": "worker", "keys": ["a", "b", "c"]})
    waiting = feed.wait()
    peer.tell(3, 1, "c", "a")
    while feed.delivered < 2:
        await asyncio.sleep(0)
    assert list(feed._futures) == ["b"]
    assert repr(feed) == "<Feed to worker: 2 delivered, 1 waiting>"
    peer.tell(4, 0, "b")
    assert await waiting is feed
    await peer.following
    assert (feed.delivered, feed.waiting, feed._futures) == (3, 0, {})
    watched = [message for handler, message in peer.asked if handler == "train_feed_watch"]
    assert [(each["seen"], each["known"]) for each in watched] == [(-1, 0), (3, 2)]


@fed
async def test_a_batch_that_fails_is_told_before_the_others_are_delivered(feed, peer):
    waiting = feed.wait(60)
    peer.tell(1, 1, "a", b="ended in an error: no")
    with pytest.raises(DataError, match=r"1 of 3 batches can't be fed; the first, b, ended in an error: no\. Mend"):
        await waiting
    peer.tell(2, 0, "c", b="ended in an error: no")
    await peer.following
    assert feed.delivered == 2, "the others are delivered all the same"
    with pytest.raises(DataError, match="1 of 3 batches"):
        await feed.wait(60)


@fed
async def test_batches_that_nobody_takes_are_told_at_the_deadline(feed, peer):
    with pytest.raises(StalledError, match=r"The delivery of all 3 batches did not happen within 0\.02 s"):
        await feed.wait(0.02)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        ({"loss": "worker 1 is gone.", "state": "lost"}, RoleLostError, "gone. 3 batches were not delivered"),
        ({"loss": "", "state": "closing"}, ClosedError, "The network was closed with 3 batches waiting"),
        ({"loss": "", "state": "running"}, ClosedError, "0 delivered, 3 waiting> was cancelled"),
    ],
)
def test_what_ends_a_feed_is_told_and_its_batches_are_let_go(answer, error, text):
    @fed
    async def ended(feed, peer):
        peer.told.put_nowait(answer)
        with pytest.raises(error, match=text):
            await feed.wait(60)
        await peer.following
        assert feed._futures == {}

    ended()


def test_a_network_that_has_ended_takes_none():
    async def start():
        peer = Peer()
        peer.at_first = {"loss": "", "state": "closed"}
        with pytest.raises(ClosedError, match="closed with 1 batches waiting"):
            await Feed(peer, "n1", "worker", [SimpleNamespace(key="a")])._start()
        assert not hasattr(peer, "following")

    asyncio.run(start())


@fed
async def test_cancelling_asks_the_scheduler(feed, peer):
    await feed.cancel()
    assert peer.asked[-1] == ("train_feed_cancel", {"feed": feed.id})
