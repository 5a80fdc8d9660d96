"""What is worked out ahead: in order, a little at a time, and no further than somebody wants it."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from dask_train.data import ahead as ahead_module
from dask_train.data.ahead import Ahead


class Element:
    """Something that can be seen to go."""


@pytest.fixture(autouse=True)
def short_looks(monkeypatch):
    monkeypatch.setattr(ahead_module, "_LOOK_S", 0.01)


@pytest.mark.parametrize("depth", [1, 3, 1000])
def test_everything_comes_in_order(no_leaks, depth):
    with no_leaks():
        ahead = Ahead(iter(range(300)), depth)
        assert list(ahead) == list(range(300))
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(ahead)


def test_elements_may_be_none():
    assert list(Ahead(iter([None, 0, None]), 2)) == [None, 0, None]


def test_an_error_comes_where_it_was(no_leaks):
    def prepared() -> Iterator[int]:
        yield from (1, 2)
        raise ValueError("the third")

    with no_leaks():
        ahead = Ahead(prepared(), 4)
        assert [next(ahead), next(ahead)] == [1, 2]
        for _ in range(2):
            with pytest.raises(ValueError, match="the third"):
                next(ahead)


def test_it_works_in_a_thread_and_no_further_ahead_than_it_may(wait_for):
    made: list[int] = []

    def prepared() -> Iterator[str]:
        for number in range(50):
            made.append(number)
            yield threading.current_thread().name

    ahead = Ahead(prepared(), 3)
    wait_for(lambda: len(made) == 4, "three wait, and one more is in hand")
    for number, name in enumerate(ahead, 1):
        assert name == "dask-train-ahead"
        assert len(made) <= number + 4
    assert len(made) == 50


def test_closing_ends_a_thread_that_waits_for_its_reader(no_leaks, wait_for):
    alive: list[weakref.ref[Element]] = []
    ended = threading.Event()

    def prepared() -> Iterator[Element]:
        try:
            while True:
                element = Element()
                alive.append(weakref.ref(element))
                yield element
        finally:
            ended.set()

    with no_leaks():
        ahead = Ahead(prepared(), 2)
        next(ahead)
        wait_for(ahead._waiting.full, "the thread waits")
        ahead.close()
        ahead.close()
        assert ended.wait(60)
        ahead._thread.join(60)
        assert not ahead._thread.is_alive()
        assert sum(element() is not None for element in alive) <= 1, "what was prepared is forgotten"
    del ahead
    gc.collect()
    assert not any(element() for element in alive)


def test_closing_does_not_wait_for_what_is_being_prepared(no_leaks):
    go_on, busy = threading.Event(), threading.Event()

    def prepared() -> Iterator[int]:
        busy.set()
        go_on.wait(60)
        yield 1
        raise AssertionError("nobody wants more")

    with no_leaks():
        ahead = Ahead(prepared(), 2)
        assert busy.wait(60)
        ahead.close()
        assert ahead._thread.is_alive()
        go_on.set()


def test_a_thread_that_has_failed_ends_though_nobody_reads(no_leaks, wait_for):
    def prepared() -> Iterator[int]:
        yield 1
        raise ValueError("late")

    with no_leaks():
        ahead = Ahead(prepared(), 1)
        wait_for(ahead._waiting.full, "the error waits for room")
        ahead.close()
