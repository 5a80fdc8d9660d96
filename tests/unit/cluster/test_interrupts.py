"""A Ctrl-C that a Dask worker does not hear: where it shares the client's terminal, and nowhere else."""

from __future__ import annotations

import os
import signal

import pytest

from dask_train.cluster.own_cluster import heed_interrupts, ignore_interrupts, this_boot

OTHER_PID = 0  # of no client


@pytest.fixture
def heard(monkeypatch):
    """How many interrupts this process has heard; it is as it was afterwards."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    yield heard
    heed_interrupts()
    signal.signal(signal.SIGINT, before)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_terminal_of_the_client_is_not_heard_until_told_to(heard):
    assert ignore_interrupts(this_boot(), os.getpgrp(), OTHER_PID)
    interrupt()
    assert heard == []
    heed_interrupts()
    interrupt()
    assert heard == [signal.SIGINT]


@pytest.mark.parametrize(
    "client",
    [
        lambda: ("another-host", os.getpgrp(), OTHER_PID),
        lambda: (this_boot(), os.getpgrp() + 1, OTHER_PID),
        lambda: (this_boot(), os.getpgrp(), os.getpid()),
    ],
    ids=["another host", "another terminal", "the client's own process"],
)
def test_who_has_nothing_to_fear_from_it_hears_it(heard, client):
    assert not ignore_interrupts(*client())
    interrupt()
    assert heard == [signal.SIGINT]


def test_networks_that_end_one_after_the_other(heard):
    for _ in range(2):
        assert ignore_interrupts(this_boot(), os.getpgrp(), OTHER_PID)
    heed_interrupts()
    interrupt()
    assert heard == [], "the other one still goes on"
    heed_interrupts()
    interrupt()
    assert heard == [signal.SIGINT]


def test_one_too_many_changes_nothing(heard):
    heed_interrupts()
    interrupt()
    assert heard == [signal.SIGINT]


def test_other_threads_can_not_set_it_and_do_not_fail(heard, in_threads):
    assert in_threads(lambda: ignore_interrupts(this_boot(), os.getpgrp(), OTHER_PID)) == [False]
    assert ignore_interrupts(this_boot(), os.getpgrp(), OTHER_PID)
    in_threads(heed_interrupts)
    interrupt()
    assert heard == [], "it is undone by the thread that can"
