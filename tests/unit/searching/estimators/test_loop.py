"""What a role process does that fits estimators: one request after the other, until the run ends."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dask_train.errors import ClosedError
from dask_train.searching.estimators import loop as loop_module
from dask_train.searching.estimators.loop import EstimatorLoop
from dask_train.searching.worker import TrialFailed, TrialRequest


def request(number: int, task: Any) -> TrialRequest:
    return TrialRequest(number=number, work=task, metric="score", mode="max", to_beat=None)


@pytest.fixture
def served():
    """What is sent back where these words come, and then the end."""

    def serve(*words: Any, validation: Any = None) -> Any:
        left = list(words)

        def receive() -> Any:
            if not left:
                raise ClosedError("The run ends.")
            return left.pop(0)

        rows = SimpleNamespace(rows_by_number=lambda: "rows")
        it = SimpleNamespace(size=1, sent=[], moves=[], _data=rows, receive=receive)
        it.dataset = lambda name: SimpleNamespace(rows_by_number=lambda: f"rows of {name}")
        it.send, it.notices, it.stops = it.sent.append, [], []
        it.notice, it.stop = it.notices.append, it.stops.append
        it._link = SimpleNamespace(moved=it.moves.append)
        EstimatorLoop(columns="columns", validation=validation)(it)
        return it

    return serve


def test_orders_are_done_one_after_the_other_on_the_same_rows(served):
    seen = []

    def work(given: TrialRequest, session: Any, tables: Any) -> Any:
        seen.append((given.number, tables["data"].rows, tables["validation"].rows, tables["validation"].columns))
        return f"done {given.number}"

    it = served(request(3, work), "the end of a trial that has ended", request(4, work), validation=("v", "its shape"))
    assert it.sent == ["done 3", "done 4"]
    assert seen == [(number, "rows", "rows of v", "its shape") for number in (3, 4)]


def test_what_fails_is_told_and_the_next_is_done(served):
    def fails(*_: Any) -> Any:
        raise ValueError("x" * 5000)

    it = served(request(1, fails), request(2, lambda *_: "done"))
    failed, done = it.sent
    assert isinstance(failed, TrialFailed)
    assert (failed.number, done) == (1, "done")
    assert failed.error.startswith("ValueError: xxx")
    assert len(failed.error) == 2000, "it goes through the scheduler"
    assert "Traceback" in failed.traceback
    assert failed.seconds >= 0


def test_a_process_that_can_not_be_cleared_ends_its_run_in_order(served, monkeypatch):
    """So a trial that it was sent meanwhile is lost, and begun once more elsewhere; it has not failed."""

    def forget(_: Any) -> None:
        raise MemoryError("no graph can be cleared")

    monkeypatch.setattr(loop_module.EstimatorWorker, "forget", forget)
    it = served(request(1, lambda *_: "done"), request(2, lambda *_: "never"))
    assert it.sent == ["done"]
    assert it.notices == ["A process of the search could not be cleared: MemoryError: no graph can be cleared"]
    assert it.stops == ["its process could not be cleared after a trial"]


def test_that_it_is_at_work_is_told_all_the_while_and_no_longer(served, monkeypatch):
    monkeypatch.setattr(loop_module, "ALIVE_S", 0.001)
    enough = threading.Event()

    def work(_: TrialRequest, session: Any, __: Any) -> str:
        while len(session.moves) < 5:
            assert not enough.wait(0.001)
        return "done"

    it = served(request(7, work))
    known = len(it.moves)
    assert set(it.moves) == {"working on trial 7"}
    assert not [thread for thread in threading.enumerate() if thread.name == "dask-train-alive"]
    assert len(it.moves) == known


def test_what_ends_the_process_is_no_failure_of_a_trial(served):
    def ends(*_: Any) -> Any:
        raise SystemExit

    with pytest.raises(SystemExit):
        served(request(1, ends))
    assert not [thread for thread in threading.enumerate() if thread.name == "dask-train-alive"]
