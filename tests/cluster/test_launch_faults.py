"""Networks that can't be raised: each is refused with its reason, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import dask
import pytest

import dask_train as dt


def refuse(book, job, index, **_):
    if (job, index) == ("worker", 1):
        raise OSError("address already in use")


def test_a_server_that_does_not_start(client, start_server_with, workers, state):
    before = set(workers(client))
    (kept,) = client.scatter([list(range(1000))], hash=False)
    start_server_with(refuse)
    with pytest.raises(
        dt.LaunchError,
        match=r"^worker 1 could not start its server on tcp://\S+: OSError: address already in use\.$",
    ) as caught:
        dt.start_tensorflow(client, worker=2)
    assert isinstance(caught.value.__cause__, OSError)
    assert state(client)["networks"] == {}
    assert len(set(workers(client)) & before) == 1, "both of the network were restarted"
    assert kept.result(timeout=60) == list(range(1000))


def wait_for_ever(book, job, index, **_):
    threading.Event().wait()


def test_the_deadline_of_a_launch(client, start_server_with, workers, state):
    start_server_with(wait_for_ever)
    before = set(workers(client))
    with (
        dask.config.set({"train.launch.timeout": "1s"}),
        pytest.raises(
            dt.LaunchError,
            match=r"^2 of 2 Dask workers did not start its server within 1 s: ps 0 on tcp://\S+, worker 0 on "
            r"tcp://\S+\. Importing TensorFlow .* or raise train\.launch\.timeout\.$",
        ),
    ):
        dt.start_tensorflow(client, ps=1, worker=1)
    assert state(client)["networks"] == {}
    assert len(set(workers(client)) & before) == 1


class InterruptedLaunchError(Exception):
    """What a signal's handler raises while a network is being raised."""


def test_a_launch_that_is_broken_off(client, start_server_with, workers, state):
    """The server that does not start sends its own client the signal, so that it comes in the middle of the launch."""
    pid = os.getpid()

    def interrupt(book, job, index, **_):
        if index == 0:
            os.kill(pid, signal.SIGUSR1)
        threading.Event().wait(3)  # it ends, as the nanny would wait for 10 s for a Dask worker whose event loop hangs

    def handle(*_):
        raise InterruptedLaunchError

    start_server_with(interrupt)
    handler = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(InterruptedLaunchError):
            dt.start_tensorflow(client, worker=2)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert state(client)["networks"] == {}
    assert len(workers(client)) == len(set(workers(client)))


def hold_the_event_loop(seconds):
    threading.Event().wait(seconds)


def test_the_deadline_holds_for_an_event_loop_that_hangs(client, workers, state):
    hung = workers(client)[0]
    hanging = asyncio.run_coroutine_threadsafe(
        client._run(hold_the_event_loop, 3, workers=[hung]), client.loop.asyncio_loop
    )
    with (
        dask.config.set({"train.launch.timeout": "1500ms"}),
        pytest.raises(
            dt.LaunchError, match=rf"^1 of 3 Dask workers did not tell its versions .*: worker \d on {hung}\."
        ),
    ):
        dt.start_tensorflow(client, worker=3)
    hanging.result(60)
    assert state(client)["networks"] == {}


def die(book, job, index, **_):
    if index == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_dask_worker_that_dies_while_it_starts(client, start_server_with, workers, state, wait_for):
    start_server_with(die)
    with pytest.raises(dt.LaunchError, match=r"^worker 1 could not start its server on tcp://\S+: \w+Error: "):
        dt.start_tensorflow(client, worker=2)
    assert state(client)["networks"] == {}
    wait_for(lambda: len(workers(client)) == 3, "the nanny has started another")


def test_an_interrupted_launch_is_undone(client, start_server_with, state, workers):
    start_server_with(wait_for_ever)

    async def interrupt():
        launching = asyncio.ensure_future(dt.start_tensorflow(client, worker=1))
        while not ((await client.scheduler.train_networks()) or {}).get("networks"):
            assert not launching.done(), launching.result()
            await asyncio.sleep(0.01)
        launching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await launching

    asyncio.run_coroutine_threadsafe(interrupt(), client.loop.asyncio_loop).result(60)
    assert state(client)["networks"] == {}
    assert len(workers(client)) == 3
