"""A session that is opened again where a connection was lost."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from dask_train.demo.lasting_session import MAX_TRIES, LastingSession


class Sessions:
    """Opens sessions whose first steps end as told: with an error, else with the number of the session."""

    def __init__(self, *errors: type[Exception] | None) -> None:
        self.errors = list(errors)
        self.opened: list[bool] = []
        self.closed: list[int] = []

    def __call__(self, again: bool) -> Any:
        self.opened.append(again)
        return Session(self, len(self.opened))


class Session:
    def __init__(self, sessions: Sessions, number: int) -> None:
        self.sessions, self.number = sessions, number

    def run(self, fetches: Any, feed: Any = None) -> Any:
        error = self.sessions.errors.pop(0) if self.sessions.errors else None
        if error is not None:
            raise error(None, None, "lost")
        return self.number, fetches, feed

    def close(self) -> None:
        self.sessions.closed.append(self.number)
        raise tf.errors.UnavailableError(None, None, "closing fails, too")


LOST = tf.errors.AbortedError, tf.errors.UnavailableError


def test_a_step_is_run_again_in_another_session():
    sessions = Sessions(None, *LOST)
    with LastingSession(sessions) as session:
        assert session.run("a", {"x": 1}) == (1, "a", {"x": 1})
        assert session.run("b", {"x": 2}) == (3, "b", {"x": 2})
        assert (sessions.opened, sessions.closed) == ([False, True, True], [1, 2])
    assert sessions.closed == [1, 2, 3]


def test_what_is_lost_again_and_again_is_raised():
    sessions = Sessions(*LOST, None, *MAX_TRIES * [LOST[1]])
    with LastingSession(sessions) as session:
        session.run("a")
        with pytest.raises(tf.errors.UnavailableError):
            session.run("b")
    assert len(sessions.opened) == 2 + MAX_TRIES


def test_other_errors_are_raised_at_once():
    sessions = Sessions(tf.errors.OutOfRangeError)
    with LastingSession(sessions) as session, pytest.raises(tf.errors.OutOfRangeError):
        session.run("a")
    assert sessions.opened == [False]


def test_one_that_is_closed_stays_so():
    sessions = Sessions(tf.errors.AbortedError)
    with LastingSession(sessions) as session:
        session.close()
        with pytest.raises(RuntimeError, match="is closed"):
            session.run("a")
    assert (sessions.opened, sessions.closed) == ([False], [1])


def test_one_that_is_closed_while_it_runs():
    class Closing(Sessions):
        def __call__(self, again: bool) -> Any:
            session.close()  # as by another thread
            return super().__call__(again)

    session = LastingSession(Closing())
    with pytest.raises(RuntimeError, match="is closed"):
        session.run("a")
