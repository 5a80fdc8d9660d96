"""A role that answers who comes: orders become methods, errors answers, and nothing stays when it is closed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from dask_train.errors import RoleFailedError
from dask_train.fitting.roles.answering import Answering
from dask_train.frameworks.ports import hold_port
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import Channel, ask
from dask_train.transport.connections import Credentials
from dask_train.transport.dialling import dial, receptions

SLOT = ArraySlot([((2,), "f4")])
RUN = Credentials(key=b"run")
LONG_S = 60.0


class Role(Answering):
    """Says what it was told, or fails, or takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on, self.asked = threading.Event(), threading.Event()

    def _on_echo(self, line: Channel, *, value: Any) -> Any:
        line.put(0, [[1.0, 2.0]])
        return value

    def _on_fail(self, _: Channel) -> None:
        raise ZeroDivisionError("by nought")

    def _on_wait(self, _: Channel) -> str:
        self.asked.set()
        assert self.goes_on.wait(LONG_S)
        return "late"


@pytest.fixture
def role(no_leaks):
    """A role, and a way to it; all that it has open is gone once it is closed."""
    with no_leaks(), ExitStack() as stack:
        port = stack.enter_context(hold_port()).getsockname()[1]
        answers = Role()
        answers.answer(receptions(f"127.0.0.1:{port}", SLOT, RUN))
        stack.callback(answers.close)

        def come(host: str = "127.0.0.1") -> Channel:
            line = dial(f"127.0.0.1:{port}", SLOT, host, RUN, LONG_S)
            stack.callback(line.close)
            return line

        yield answers, come


def asked(line: Channel, order: str, **told: Any) -> Any:
    return ask([line], [(order, told)], LONG_S, "The role")[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.2"])
def test_orders_are_methods_and_arrays_go_with_answers(role, host):
    _, come = role
    line = come(host)
    for value in ({"a": [1, 2]}, None):
        assert asked(line, "echo", value=value) == value
        assert line.into[0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("order", "told", "why"),
    [
        ("fail", {}, "ZeroDivisionError: by nought"),
        ("echo", {}, "TypeError: .*'value'"),
        ("nothing_of_the_kind", {}, "AttributeError: .*_on_nothing_of_the_kind"),
    ],
)
def test_what_fails_is_an_answer_and_the_line_goes_on(role, order, told, why):
    _, come = role
    line = come()
    with pytest.raises(RoleFailedError, match=f"The role failed at what it was asked: {why}"):
        asked(line, order, **told)
    assert asked(line, "echo", value=1) == 1


def test_who_takes_long_holds_up_nobody_else(role):
    answers, come = role
    slow, quick = come(), come()
    slow.send(("wait", {}))
    assert answers.asked.wait(LONG_S)
    assert asked(quick, "echo", value=1) == 1
    answers.goes_on.set()
    assert slow.receive(LONG_S) == "late"


def test_it_is_alone_once_all_have_hung_up(role):
    answers, come = role
    first, second = come(), come()
    for line in (first, second):
        asked(line, "echo", value=0)
    answers.wait_until_alone(0.0)
    assert len(answers._served) == 2, "it has waited no longer than it was to"
    first.close()
    second.close()
    answers.wait_until_alone(LONG_S)
    assert answers._served == {}


def test_who_asks_one_that_closes_sees_its_end(role):
    answers, come = role
    line = come()
    asked(line, "echo", value=0)
    answers.close()
    with pytest.raises((EOFError, OSError)):
        asked(line, "echo", value=0)
    answers.close()  # again does no harm


def test_what_is_asked_when_it_closes_may_still_be_done(role, in_threads):
    answers, come = role
    line = come()
    line.send(("wait", {}))
    assert answers.asked.wait(LONG_S)

    def let_go() -> None:
        answers.goes_on.set()

    in_threads(answers.close, let_go)
    assert answers._served == {}


def test_one_that_knows_nothing_of_who_comes_answers_others(role, monkeypatch):
    """A caller that can't be told apart is hung up on, and no longer counted."""
    answers, come = role
    known: Callable[[Channel], Any] = answers.caller_of
    failed = threading.Event()

    def fails_once(line: Channel) -> Any:
        if not failed.is_set():
            failed.set()
            raise EOFError("it has gone already")
        return known(line)

    monkeypatch.setattr(answers, "caller_of", fails_once)
    gone = come()
    with pytest.raises((EOFError, OSError)):
        asked(gone, "echo", value=0)
    assert asked(come(), "echo", value=1) == 1
    assert len(answers._served) == 1
