"""Ranks that go on where one of them is lost, as threads: what tests of groups and of loops share."""

from __future__ import annotations

import os
import threading

from dask_train.collectives import Hosts, meet
from dask_train.collectives.replaceable import Formation, ReplaceableGroup


class Lost(BaseException):
    """The end of a thread that stands for a process."""


class RestartError(Exception):
    """All are to start again."""


class Course:
    """A run: lets ranks meet when all are there, and knows who is lost."""

    def __init__(self, size):
        self.size, self.number = size, 0
        self.lock, self.attempts, self.lost = threading.Condition(), [0] * size, {}
        self.waiting, self.told, self.is_over = {}, {}, False

    def end(self, rank):
        """A process is gone; its successor may come."""
        with self.lock:
            self.lost[rank] = self.attempts[rank]
            self.attempts[rank] += 1
            self.waiting.pop(rank, None)

    def end_all(self):
        """All are to start again, and nobody does here."""
        with self.lock:
            self.lost, self.is_over = dict.fromkeys(range(self.size), 99), True
            self.lock.notify_all()

    def of(self, rank):
        """What the group of a rank sees of the run."""
        course = self

        class Run:
            def form(self):
                with course.lock:
                    course.waiting[rank] = True
                    if len(course.waiting) == course.size:
                        course.number += 1
                        key = f"{os.getpid()}-{id(course)}-{course.number}"
                        places = tuple(f"10.0.0.9:{key}-{each}" for each in range(course.size))
                        course.told = {each: (places, tuple(course.attempts)) for each in course.waiting}
                        course.waiting = {}
                        course.lock.notify_all()
                    assert course.lock.wait_for(lambda: rank in course.told or course.is_over, 60.0)
                    if course.is_over:
                        raise RestartError("all end")
                    places, attempts = course.told.pop(rank)
                hosts = Hosts.of(places)
                return Formation(hosts=hosts, rank=rank, memory=meet(hosts, rank, b"run", 60.0), attempts=attempts)

            def lost_attempt(self, peer):
                return course.lost.get(peer, -1)

            def start_all_again(self, why):
                raise RestartError(why)

        return Run()


def joined(course, rank):
    """The group of a rank, as it meets the others; closed by who has asked for it."""
    run = course.of(rank)
    return ReplaceableGroup(run, run.form(), 60.0)


def lived(in_threads, course, life):
    """What ranks come to that begin anew where they are lost; ``life(rank)`` raises :class:`Lost` then."""

    def lives(rank):
        while True:
            try:
                return life(rank)
            except Lost:
                course.end(rank)

    return in_threads(*(lambda rank=rank: lives(rank) for rank in range(course.size)))
