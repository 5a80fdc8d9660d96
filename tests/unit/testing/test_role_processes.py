"""Role processes of a test: real ones, that meet, answer, fail, and are gone in the end."""

from __future__ import annotations

import os
from contextlib import contextmanager
from multiprocessing import Pipe

import cloudpickle
import psutil
import pytest

from dask_train.frameworks.base import Framework, RoleInfo
from dask_train.testing.role_process import RoleSession
from dask_train.testing.role_processes import RoleProcesses, _by_value


class Meeting(Framework):
    """Tells addresses, gives two things, and leaves a trace in the environment where it is told to."""

    def __init__(self, trace=False):
        self.trace = trace

    def prepare(self, me):
        if me.role == "broken":
            raise ValueError("it can't prepare")
        if me.role == "gone":
            os._exit(3)
        return f"{me.host}:{me.rank}"

    @contextmanager
    def rendezvous(self, me, peers, timeout_s):
        if self.trace:
            os.environ["DASK_TRAIN_TRACE"] = "left"
        yield {"peers": peers.as_dict(), "timeout_s": timeout_s}


def looked_at(session):
    """Of this module, which the processes can't import."""
    return session.me.role, session.me.rank, session.peers, session.timeout_s, os.getpid()


def failing(session):
    raise ZeroDivisionError("in its function")


def waiting(session):
    session.wait_until_stopped()
    return "stopped"


def test_roles_prepare_meet_and_answer_and_are_gone_in_the_end(wait_for):
    functions = {"worker": looked_at, "ps": waiting, "other": failing}
    counts = {"worker": 2, "ps": 1, "other": 1}
    with RoleProcesses(Meeting(trace=True), counts, functions.__getitem__, host="h") as processes:
        addresses = processes.addresses()
        assert addresses.as_dict() == {"worker": ["h:0", "h:1"], "ps": ["h:0"], "other": ["h:0"]}
        for role, _, rank in [(role, address, rank) for role, rank, address in addresses.tasks()]:
            processes.meet((role, rank), addresses, timeout_s=7.0)
        answers = [processes.answer(("worker", rank)) for rank in range(2)]
        for rank, answer in enumerate(answers):
            assert answer.value[:4] == ("worker", rank, addresses.as_dict(), 7.0)
            assert (answer.error, answer.extras, answer.changed) == (
                None,
                {"peers", "timeout_s"},
                {"DASK_TRAIN_TRACE"},
            )
            assert 0 <= answer.took_s < 60
        failed = processes.answer(("other", 0))
        assert isinstance(failed.error, ZeroDivisionError)
        assert failed.value is None
        assert not processes.is_done(("ps", 0))
        processes.stop(("ps", 0))
        assert processes.answer(("ps", 0)).value == "stopped"
        pids = [answer.value[4] for answer in answers]
        assert all(map(psutil.pid_exists, pids)), "they stay until the test is through"
        processes.stop(("worker", 0))
        processes.stop(("worker", 0))  # it may have ended
    wait_for(lambda: not any(map(psutil.pid_exists, pids)), "they are gone")


@pytest.mark.parametrize(
    ("role", "told"),
    [("broken", r"\('broken', 0\) could not prepare"), ("gone", "gone 0 ended without an answer, exit code 3")],
)
def test_a_role_that_does_not_prepare_is_told(role, told):
    with (
        RoleProcesses(Meeting(), {role: 1}, lambda _: looked_at) as processes,
        pytest.raises(RuntimeError, match=told) as caught,
    ):
        processes.addresses()
    assert (str(caught.value.__cause__) == "it can't prepare") == (role == "broken")


def test_a_role_that_does_not_start_ends_with_the_deadline_of_the_test():
    with pytest.raises(TimeoutError, match="worker 0 did not start within the test's deadline"):
        RoleProcesses(Meeting(), {"worker": 1}, lambda _: looked_at, deadline_s=0.0)


def test_a_role_that_says_nothing_ends_with_the_deadline_of_the_test(monkeypatch):
    with RoleProcesses(Meeting(), {"worker": 1}, lambda _: looked_at) as processes:
        processes.addresses()
        monkeypatch.setattr(processes, "_deadline", 0.0)
        with pytest.raises(TimeoutError, match="worker 0 said nothing within the test's deadline"):
            processes.answer(("worker", 0))


def session_of(**extras):
    me = RoleInfo(role="worker", rank=0, counts={"worker": 1}, host="h", num_threads=1)
    ours, theirs = Pipe()
    return RoleSession(me, Framework(), extras, theirs), ours


def test_what_the_rendezvous_gave_is_an_attribute_and_a_function_is_called_once():
    called = []
    session, _ = session_of(rank=5, server=lambda: called.append("made") or "a server")
    assert called == []
    assert (session.rank, session.server, session.server) == (5, "a server", "a server")
    assert called == ["made"]
    with pytest.raises(AttributeError, match="the rendezvous gave no 'world', only rank, server"):
        session.world  # noqa: B018 - it raises


def test_a_role_waits_until_it_is_stopped(in_threads):
    session, ours = session_of()
    assert in_threads(session.wait_until_stopped, lambda: ours.send("stop")) == [None, None]


def test_functions_of_a_test_travel_with_their_code_and_nothing_stays_registered():
    me = session_of()[0].me
    work = _by_value(Framework(), me, looked_at)
    assert b"wait_until_stopped" not in work
    assert b"getpid" in work, "its code"
    assert looked_at.__module__ not in cloudpickle.list_registry_pickle_by_value()
    assert b"getpid" not in _by_value(Framework(), me, RoleSession.wait_until_stopped)
