"""Every question to the scheduler is answered, or ends."""

from __future__ import annotations

import _thread
import asyncio
import gc
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from distributed.utils import LoopRunner

from dask_train.cluster import peer as peer_module
from dask_train.cluster.peer import Peer, answered_within, copied
from dask_train.errors import RoleLostError
from dask_train.predicting.server.in_process import ObjectModel
from dask_train.predicting.server.values import ModelParts
from dask_train.settings.process import Settings


class Scheduler:
    """``train_wait`` takes as long as it is asked to, and ``hang`` for ever, as all does when it hangs."""

    hangs = False

    async def identity(self, **_: Any) -> dict[str, Any]:
        return await self.hang() if self.hangs else {}

    async def train_wait(self, timeout_s: float) -> dict[str, Any]:
        await asyncio.sleep(timeout_s)
        return {"status": "OK"}

    async def hang(self) -> Any:
        await asyncio.Event().wait()


def make(answer_timeout_s: float, **more: Any) -> Peer:
    end = SimpleNamespace(**{"address": "tcp://w", "loop": None, "scheduler": Scheduler(), **more})
    return Peer(end, answer_timeout_s)


def test_a_scheduler_that_hangs():
    with pytest.raises(RoleLostError, match=r"did not answer hang to tcp://w within 0.01 s. It hangs"):
        asyncio.run(make(0.01).call("hang"))


def test_what_a_question_waits_for_is_no_silence():
    assert asyncio.run(make(0.5).ask("train_wait", timeout_s=0.6)) == {"status": "OK"}


@pytest.mark.parametrize(("answer_timeout_s", "poll_s"), [(120.0, 5.0), (1000.0, 5.0), (10.0, 0.5)])
def test_a_scheduler_that_has_little_time_to_answer_is_asked_more_often(answer_timeout_s, poll_s):
    assert make(answer_timeout_s).poll_s == poll_s, "one that hangs is noticed after 5% more, at most"


def test_a_client_without_a_connection_is_told_so_at_once():
    peer = make(60.0, status="connecting")
    peer.is_client = True
    with pytest.raises(RoleLostError, match=r"did not answer hang to tcp://w. The client has lost its connection"):
        asyncio.run(peer.call("hang"))


def test_long_work_goes_on_while_the_scheduler_answers(monkeypatch):
    monkeypatch.setattr(peer_module, "POLL_S", 0.01)
    peer = make(0.5)

    async def story() -> str:
        return await peer.while_it_answers(asyncio.sleep(0.6, "done"))

    assert asyncio.run(story()) == "done"
    peer.dask_end.scheduler.hangs = True
    with pytest.raises(RoleLostError, match="did not answer identity"):
        asyncio.run(story())


def test_what_is_raised_while_one_waits_keeps_nothing_alive():
    class Data:
        pass

    async def fails(data: Data) -> None:
        raise RuntimeError("mine")

    def awaited() -> weakref.ref[Data]:
        data = Data()
        try:
            make(1.0, loop=runner.loop).run(fails, data)
        except RuntimeError as error:
            frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert frames == ["awaited", "fails"]
        return weakref.ref(data)

    runner = LoopRunner(asynchronous=False)
    runner.start()
    gc.disable()
    try:
        held = awaited()
        runner.run_sync(asyncio.sleep, 0)  # the loop lets go of what it ran
        assert held() is None
    finally:
        gc.enable()
        runner.stop()


@pytest.fixture
def runner() -> Iterator[LoopRunner]:
    runner = LoopRunner(asynchronous=False)
    runner.start()
    yield runner
    runner.stop()


class Works:
    """A coroutine function that waits until it is cancelled."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.begun = threading.Event()

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.told.append("cancelled")
            raise


def interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@pytest.mark.parametrize("interrupt", [interrupt, _thread.interrupt_main], ids=["signal", "editor"])
def test_an_interrupt_cancels_what_one_waits_for(runner, interrupt):
    works = Works()
    threading.Thread(target=lambda: (works.begun.wait(60), time.sleep(0.05), interrupt())).start()
    with pytest.raises(KeyboardInterrupt):
        make(1.0, loop=runner.loop).run(works)
    runner.run_sync(asyncio.sleep, 0.05)
    assert works.told == ["cancelled"]


def test_what_has_not_begun_when_a_ctrl_c_comes_never_begins(runner, caplog):
    works, goes_on = Works(), threading.Event()

    def interrupted():
        threading.Timer(0.1, interrupt).start()
        make(1.0, loop=runner.loop).run(works)

    try:
        runner.loop.add_callback(goes_on.wait)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        goes_on.set()
    runner.run_sync(asyncio.sleep, 0.05)
    assert (works.begun.is_set(), caplog.messages) == (False, [])


def test_a_process_that_slept_reads_the_answer_that_has_come():
    async def story():
        answered = asyncio.get_running_loop().create_future()

        async def answer():
            return await answered

        waiting = asyncio.ensure_future(answered_within(answer(), 0.5))
        await asyncio.sleep(0)
        time.sleep(1.5)
        asyncio.get_running_loop().call_later(0.05, answered.set_result, "answer")
        return await waiting

    assert asyncio.run(story()) == "answer"


def test_what_does_not_answer_is_cancelled():
    cancelled = []

    async def never():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def story(limit_s):
        await asyncio.wait_for(answered_within(never(), limit_s), 0.1)

    for limit_s in (0.05, 60.0):  # its own deadline, and that of whoever waits for it
        with pytest.raises(TimeoutError):
            asyncio.run(story(limit_s))
    assert cancelled == [True, True]


def test_a_copy_shares_no_memory():
    weights = np.zeros(4, np.float32)
    token = "t"  # noqa: S105 - tells models apart
    parts = copied(ModelParts(kind="torch", name="m", token=token, header=b"", arrays=[weights], opened_bytes=16))
    estimator = copied(ObjectModel(_Scaled(weights), "predict", "m", "t", Settings()))
    weights += 1
    assert not parts.arrays[0].any()
    assert not estimator.opened()(np.ones(4)).any()


class _Scaled:
    """Multiplies rows by weights that it was given."""

    def __init__(self, weights):
        self.weights = weights

    def predict(self, x):
        return x * self.weights


def test_a_dask_worker_in_this_process_gets_a_copy(monkeypatch):
    """It would keep the caller's arrays."""
    put = []

    async def scatter(_, values, **__):
        put.extend(values.values())
        return values

    monkeypatch.setattr(peer_module, "scatter", scatter)
    value = np.zeros(4)
    for address in ("inproc://1/2", "tcp://1:2"):
        peer = Peer(SimpleNamespace(id="c", address="c", loop=None, scheduler=Workers(address), status="running"), 1.0)
        monkeypatch.setattr(peer, "_reaches", _reached)
        asyncio.run(peer.put("key", value))
    assert [np.shares_memory(each, value) for each in put] == [False, True]


async def _reached(_):
    return True


class Workers:
    """A scheduler with one Dask worker."""

    def __init__(self, address):
        self.address = address

    async def identity(self, **_):
        return {"workers": {self.address: {}}}
