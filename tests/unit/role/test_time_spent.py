"""The account of a role's time."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from dask_train.role.time_spent import CHECKPOINTS, COMPUTING, DATA, OTHERS, SUMS, TimeSpent


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Group:
    """Ranks of which the test says how long they take."""

    took, is_waiting = (0.0, 0.0), None

    def seconds(self):
        return self.took


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def spent(clock):
    found = TimeSpent(clock)
    found.begin()
    return found


def test_nothing_is_told_before_the_function_begins(clock):
    assert TimeSpent(clock).seconds() == {}


def test_what_is_named_by_nobody_is_computing(spent, clock):
    clock.now += 3
    with spent.on(DATA):
        clock.now += 1
        assert (spent.busy_with, spent.seconds()) == (DATA, {DATA: 1.0, COMPUTING: 3.0}), "also while it goes on"
    clock.now += 2
    assert (spent.busy_with, spent.seconds()) == (COMPUTING, {DATA: 1.0, COMPUTING: 5.0})


def test_what_is_done_within_something_counts_for_itself(spent, clock):
    with spent.on(CHECKPOINTS):
        clock.now += 1
        with suppress(OSError), spent.on(DATA):
            clock.now += 2
            raise OSError("no such file")
        clock.now += 4
    assert spent.seconds() == {CHECKPOINTS: 5.0, DATA: 2.0, COMPUTING: 0.0}


def test_several_threads_take_the_time_once(spent, clock):
    def load():
        with spent.on(DATA):
            clock.now += 2

    with spent.on(CHECKPOINTS):
        clock.now += 1
        thread = threading.Thread(target=load)
        thread.start()
        thread.join(60)
    assert spent.seconds() == {CHECKPOINTS: 3.0, COMPUTING: 0.0}


def test_groups_tell_sums_and_waits_while_they_are_there_and_afterwards(spent, clock):
    group = Group()
    with spent.following(group):
        clock.now += 10
        group.took, group.is_waiting = (3.0, 1.0), True
        assert spent.busy_with == OTHERS
        group.is_waiting = False
        assert spent.busy_with == SUMS
        assert spent.seconds() == {OTHERS: 1.0, SUMS: 3.0, COMPUTING: 6.0}
    with spent.following(Group()):
        assert spent.seconds() == {OTHERS: 1.0, SUMS: 3.0, COMPUTING: 6.0}
    assert spent.busy_with == COMPUTING
