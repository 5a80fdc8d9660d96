"""Following the scheduler, and waiting for what it tells."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from dask_train.errors import DaskTrainError, RoleLostError, StalledError
from dask_train.tensorflow_network.mirror import Mirror


class Peer:
    """A Dask end whose event loop is the running one."""

    poll_s = 5.0

    @property
    def loop(self):
        return self

    def add_callback(self, function):
        asyncio.get_running_loop().call_soon(function)

    def spawn(self, function):
        self.following = asyncio.ensure_future(function())


class Counter(Mirror):
    """Counts what it is told; ``told`` stands for the scheduler."""

    def __init__(self, peer):
        super().__init__(peer)
        self.told = asyncio.Queue()
        self.count = 0
        self.num_polls = 0

    async def _poll(self, timeout_s):
        self.num_polls += 1
        try:
            news = await asyncio.wait_for(self.told.get(), min(timeout_s, 0.01))
        except TimeoutError:
            return
        if isinstance(news, BaseException):
            raise news
        self.count += news


def followed(test):
    """Run ``test(counter, peer)`` on an event loop."""

    async def run():
        peer = Peer()
        counter = Counter(peer)
        counter._follow()
        await test(counter, peer)
        counter._end()
        await asyncio.wait_for(peer.following, 60)

    return lambda: asyncio.run(run())


@followed
async def test_a_wait_ends_when_its_condition_is_met(counter, peer):
    waiting = [asyncio.ensure_future(counter._until(lambda n=n: counter.count >= n, 5, "news")) for n in (1, 2, 3)]
    counter.told.put_nowait(2)
    await asyncio.wait_for(asyncio.gather(*waiting[:2]), 60)
    assert not waiting[2].done()
    counter.told.put_nowait(1)
    await waiting[2]


@followed
async def test_a_wait_ends_at_its_deadline(counter, peer):
    with pytest.raises(StalledError, match=r"^A score did not happen within 0\.05 s\. Pass a longer timeout_s"):
        await counter._until(lambda: counter.count > 0, 0.05, "A score")


@followed
async def test_all_who_wait_learn_of_a_failure_and_no_more_is_asked(counter, peer):
    waits = [asyncio.ensure_future(counter._until(lambda: False, 5, "news")) for _ in range(2)]
    counter.told.put_nowait(RoleLostError("ps 0 is gone."))
    errors = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(error) for error in errors] == [RoleLostError] * 2
    assert [str(error) for error in errors] == ["ps 0 is gone."] * 2
    assert errors[0] is not errors[1]
    await asyncio.wait_for(peer.following, 60)
    with pytest.raises(RoleLostError, match="gone"):
        await counter._until(lambda: False, 5, "news")


@followed
async def test_what_holds_already_counts_even_after_a_failure(counter, peer):
    counter.told.put_nowait(1)
    counter.told.put_nowait(RoleLostError("gone"))
    await asyncio.wait_for(peer.following, 60)
    await counter._until(lambda: counter.count == 1, 5, "news")


@followed
async def test_an_error_of_our_own_ends_the_waits_too(counter, peer):
    counter.told.put_nowait(ZeroDivisionError("oh"))
    with pytest.raises(DaskTrainError, match=r"Counter can't be followed: ZeroDivisionError: oh\.") as caught:
        await counter._until(lambda: False, 5, "news")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_forgotten_copy_is_followed_no_longer():
    async def run():
        peer = Peer()
        counter = Counter(peer)
        counter._follow()
        await asyncio.sleep(0)
        seen = weakref.ref(counter)
        del counter
        await asyncio.wait_for(peer.following, 60)
        gc.collect()
        assert seen() is None

    asyncio.run(run())
