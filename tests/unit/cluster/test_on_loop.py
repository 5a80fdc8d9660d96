"""What a thread runs on the event loop of another begins there, and is cancelled with what it is awaited by."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future

import pytest
from distributed.utils import LoopRunner

from dask_train.cluster.on_loop import begin


@pytest.fixture
def loop():
    runner = LoopRunner(asynchronous=False)
    runner.start()
    yield runner.loop.asyncio_loop
    runner.stop()


async def added(first, *, second):
    return first + second


async def fails():
    raise KeyError("mine")


def test_what_it_returns(loop):
    outcome = Future()
    begin(loop, outcome, added, 1, second=2)
    assert outcome.result(60) == 3


@pytest.mark.parametrize("function", [fails, lambda: {}["mine"]])
def test_what_it_raises(loop, function):
    outcome = Future()
    begin(loop, outcome, function)
    with pytest.raises(KeyError, match="mine"):
        outcome.result(60)


def test_it_is_cancelled(loop):
    async def waits():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    begun, ended, outcome = threading.Event(), threading.Event(), Future()
    begin(loop, outcome, waits)
    assert begun.wait(60)
    outcome.cancel()
    assert ended.wait(60)


def test_it_cancels_itself(loop):
    async def gives_up():
        raise asyncio.CancelledError

    outcome = Future()
    begin(loop, outcome, gives_up)
    with pytest.raises(CancelledError):
        outcome.result(60)


def test_it_is_made_on_the_loop(loop):
    def function():
        made_in.append(threading.current_thread())
        return added(1, second=1)

    made_in, outcome, goes_on = [], Future(), threading.Event()
    loop.call_soon_threadsafe(goes_on.wait)
    begin(loop, outcome, function)
    assert not made_in
    goes_on.set()
    assert outcome.result(60) == 2
    assert made_in[0] is not threading.current_thread()


def test_what_was_cancelled_before_is_not_made(loop):
    outcome, goes_on, made = Future(), threading.Event(), []
    loop.call_soon_threadsafe(goes_on.wait)
    begin(loop, outcome, lambda: made.append(1))
    outcome.cancel()
    goes_on.set()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(60)
    assert not made


def test_a_closed_loop_raises_and_leaves_no_coroutine():
    closed = asyncio.new_event_loop()
    closed.close()
    made = []
    with pytest.raises(RuntimeError, match="closed"):
        begin(closed, Future(), lambda: made.append(1))
    assert not made
