"""What a session tells, is told, and asks."""

from __future__ import annotations

import enum
import re
import time
from typing import Any

import numpy as np
import pytest

from dask_train.role.messaging import MAX_TEXT


class Phase(enum.IntEnum):
    """As a user has them."""

    TRAIN = 2


class Tensor:
    """As TensorFlow's: no item(), and numpy()."""

    def __init__(self, value: Any) -> None:
        self._value = np.array(value)
        self.shape = self._value.shape

    def numpy(self) -> Any:
        return self._value[()]


class Tracked:
    """As torch's with a gradient: an item(), and a numpy() that raises."""

    shape = ()

    def item(self) -> float:
        return 0.25

    def numpy(self) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1, 1),
        (0.5, 0.5),
        (True, True),
        (Phase.TRAIN, 2),
        (np.float64(0.5), 0.5),
        (None, None),
        ("text", "text"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array(0.5), 0.5),
        (Tensor(0.5), 0.5),
        (Tracked(), 0.25),
        ("x" * 2 * MAX_TEXT, "x" * MAX_TEXT),
    ],
)
def test_scores_are_plain_values(value, plain, session, fake_link):
    link = fake_link()
    session(link=link).report(score=value)
    (told,) = link.reports
    assert told["score"] == plain
    assert type(told["score"]) is type(plain), "others may not be able to load a class of the user's"


def test_scores_say_where_they_are_from(session, fake_link):
    link = fake_link()
    before = time.time()
    session("worker", 1, link=link, attempt=2).report(loss=0.5, step=7)
    (told,) = link.reports
    assert before <= told.pop("time") <= time.time()
    assert told == {"loss": 0.5, "step": 7, "role": "worker", "rank": 1, "attempt": 2}


@pytest.mark.parametrize("name", ["role", "rank", "attempt", "time"])
def test_names_that_are_taken(name, session):
    text = f"report() adds role, rank, attempt, time itself; name your {name!r} differently."
    with pytest.raises(ValueError, match=re.escape(text)):
        session().report(**{name: 1})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros(3), "ndarray"),
        (Tensor([1.0, 2.0]), "Tensor"),
        ([1], "list"),
        (1j, "complex"),
        (np.complex64(1), "complex64"),
        (np.datetime64("2020-01-01"), "datetime64"),
        (np.array(object()), "ndarray"),
    ],
)
def test_what_is_no_score(value, kind, session, fake_link):
    link = fake_link()
    text = re.escape(f"report(score=...) was given a {kind}; scores are numbers, strings, booleans or None.")
    with pytest.raises(TypeError, match=text):
        session(link=link).report(score=value)
    assert link.reports == []


def test_stop(session, fake_link):
    link = fake_link()
    one = session("worker", 1, link=link)
    assert one.should_stop() is False
    assert (link.moves, link.notes) == ([], ["asking whether to stop"]), "a question is no progress"
    one.stop()
    one.stop("enough")
    assert link.asked == ["worker 1 asked the run to stop", "enough"]
    link.stop_reason = "loss < 0.1"
    assert one.should_stop() is True
    one.wait_until_stopped()
    assert (link.waited, link.moves, link.notes[-1]) == (1, [], "serving until it is stopped")


@pytest.mark.parametrize("value", [2**64 - 1, -(2**63), "ä"])
def test_scores_that_messages_can_hold(value, session, fake_link):
    link = fake_link()
    session(link=link).report(score=value)
    assert link.reports[0]["score"] == value


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ({"seed": 2**64}, "report(seed=...) was given 18446744073709551616; whole numbers have up to 64 bits."),
        ({"seed": -(2**63) - 1}, "whole numbers have up to 64 bits. Pass float(value) or str(value)."),
        ({"file": "a\udcff.npy"}, "report(file=...) was given text with a lone surrogate, 'a\\\\udcff.npy'"),
        ({"a\udcff": 1}, "report(a\\udcff=...) was given text with a lone surrogate"),
    ],
)
def test_scores_that_no_message_can_hold_are_refused(scores, text, session, fake_link):
    link = fake_link()
    with pytest.raises(ValueError, match=re.escape(text)):
        session(link=link).report(loss=1.0, **scores)
    assert link.reports == []
