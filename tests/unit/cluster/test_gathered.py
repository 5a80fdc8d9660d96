"""A wait for results of Dask that is broken off gives the work up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed import KilledWorker
from distributed.client import FutureCancelledError

from dask_train.cluster.gathered import gathered, gathered_later
from dask_train.errors import PredictionError


class Future:
    released = False

    def done(self):
        return True

    def release(self):
        self.released = True


class Client:
    """Gives 3, or raises where it gathers."""

    def __init__(self, error=None):
        self.futures, self._error = [Future(), Future()], error

    def compute(self, lazy):
        return self.futures if isinstance(lazy, list) else self.futures[0]

    def gather(self, _futures):
        if self._error is not None:
            raise self._error
        return 3


class AsynchronousClient(Client):
    async def gather(self, futures):
        return super().gather(futures)


def now(client, lazy):
    return gathered(client, lazy)


def later(client, lazy):
    return asyncio.run(gathered_later(client, lazy))


BOTH = pytest.mark.parametrize(("get", "kind"), [(now, Client), (later, AsynchronousClient)])


@BOTH
def test_what_comes(get, kind):
    client = kind()
    assert get(client, ["a", "b"]) == 3
    assert [future.released for future in client.futures] == [False, False]


def test_what_is_done_is_told():
    told = []
    assert gathered(Client(), "a", parts=["b"], watch=told.append) == 3
    assert [list(numbers) for numbers in told] == [[0]]


def test_a_watched_wait_that_is_broken_off():
    client = Client()

    def interrupted(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gathered(client, "a", parts=["b"], watch=interrupted)
    assert [future.released for future in client.futures] == [True, True]


@BOTH
@pytest.mark.parametrize(("lazy", "released"), [(["a", "b"], [True, True]), ("a", [True, False])])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, ValueError])
def test_a_wait_that_is_broken_off(get, kind, error, lazy, released):
    client = kind(error())
    with pytest.raises(error):
        get(client, lazy)
    assert [future.released for future in client.futures] == released


@BOTH
@pytest.mark.parametrize("lazy", [["a"], "a"])
def test_what_is_lost_with_dask_workers_is_an_error_of_ours(get, kind, lazy):
    lost = FutureCancelledError(key="model-t", reason="lost dependencies")
    client = kind(lost)
    with pytest.raises(PredictionError, match="What was computed is lost: FutureCancelledError: model-t") as raised:
        get(client, lazy)
    assert raised.value.__cause__ is lost
    assert client.futures[0].released


@BOTH
def test_dask_workers_that_die_again_and_again_are_an_error_of_ours(get, kind):
    with pytest.raises(PredictionError, match=r"Dask workers died 4 times while .* 'x'; the last was tcp://h:1"):
        get(kind(KilledWorker("x", SimpleNamespace(address="tcp://h:1"), 3)), "a")
