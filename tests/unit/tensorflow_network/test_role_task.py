"""The task that a role is, in a process where neither Dask worker nor member is real."""

from __future__ import annotations

from types import SimpleNamespace

import distributed
import pytest
from distributed.protocol.pickle import dumps

from dask_train.errors import ClosedError
from dask_train.tensorflow_network import member
from dask_train.tensorflow_network.role_task import run_role


@pytest.fixture
def queue(monkeypatch):
    """The queue of network n1's member here."""
    made = SimpleNamespace(closed=False)
    order = []
    monkeypatch.setattr(distributed, "secede", lambda: order.append("seceded"))
    monkeypatch.setattr(distributed, "get_worker", lambda: "here")

    def member_of(worker, network):
        assert order == ["seceded"], "the thread is Dask's again before anything is waited for"
        assert (worker, network) == ("here", "n1")
        return SimpleNamespace(queue=made)

    monkeypatch.setattr(member, "member_of", member_of)
    return made


def add(a, b=0):
    return a + b


def meet_the_end():
    raise ClosedError("The queue is closed.")


@pytest.mark.usefixtures("queue")
def test_the_function_gets_its_arguments():
    assert run_role("n1", dumps(add), (2,), {"b": 3}) == 5


def test_the_end_of_the_network_is_no_error_of_the_role(queue):
    queue.closed = True
    assert run_role("n1", dumps(meet_the_end), (), {}) is None


@pytest.mark.usefixtures("queue")
def test_something_else_that_is_closed_is_an_error_of_the_role():
    with pytest.raises(ClosedError, match=r"The queue is closed\."):
        run_role("n1", dumps(meet_the_end), (), {})
