"""Ranks that go on where one of them is lost, as threads: what tests of groups and of loops share."""

from __future__ import annotations

import threading
from contextlib import suppress

from dask_train.collectives import Hosts
from dask_train.collectives.formation import formed
from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.frameworks.ports import hold_port
from dask_train.transport.connections import Credentials


class Lost(BaseException):
    """The end of a thread that stands for a process."""


class RestartError(Exception):
    """All are to start again."""


class Course:
    """A run: lets ranks meet when all are there, and knows who is lost; at most ``most`` may be asked for.

    ``lost_in_meetings`` has whose process ends in which meeting: rank and number, from 1. ``hosts`` has by rank on
    which host it is, or is a function of its rank and attempt that tells.
    """

    def __init__(self, size, most=None, lost_in_meetings=(), hosts=None):
        self.size, self.number, self.most = size, 0, most or size
        self.host_of = hosts if callable(hosts) else lambda rank, _: 0 if hosts is None else hosts[rank]
        self.lost_in_meetings = list(lost_in_meetings)
        self.lock, self.attempts, self.lost = threading.Condition(), [0] * self.most, {}
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
            self.lost, self.is_over = dict.fromkeys(range(self.most), 99), True
            self.lock.notify_all()

    def let_meet(self):
        """Let those meet that wait for each other: newcomers for whoever waits."""
        for size in sorted({wanted or self.size for wanted, _ in self.waiting.values()}):
            ranks = range(size)
            wanted = [self.waiting.get(each, (-1, ""))[0] for each in ranks]
            if size == self.size:  # one that waits for as many as before decides
                meet = -1 not in wanted and (size in wanted or not any(wanted))
            else:
                meet = set(wanted) <= {0, size} and any(wanted)
            if not meet:
                continue
            self.number, self.size = self.number + 1, size
            places = tuple(self.waiting[each][1] for each in ranks)
            for each in ranks:
                self.told[each] = places, tuple(self.attempts[:size])
                del self.waiting[each]
            self.lock.notify_all()
            return

    def of(self, rank):
        """What the group of a rank sees of the run."""
        course = self

        class Run:
            def form(self, size=0):
                while True:
                    with hold_port() as holder, suppress(PeerLostError):
                        return self.formed(size, holder)

            def formed(self, size, holder):
                address = f"127.0.0.{1 + course.host_of(rank, course.attempts[rank])}:{holder.getsockname()[1]}"
                with course.lock:
                    course.waiting[rank] = size, address
                    course.let_meet()
                    assert course.lock.wait_for(lambda: rank in course.told or course.is_over, 60.0)
                    if course.is_over:
                        raise RestartError("all end")
                    places, attempts = course.told.pop(rank)
                    if (rank, course.number) in course.lost_in_meetings:
                        course.lost_in_meetings.remove((rank, course.number))
                        raise Lost

                def look():
                    if any(self.lost_attempt(peer) >= attempt for peer, attempt in enumerate(attempts)):
                        raise PeerLostError

                return formed(Hosts.of(places), rank, Credentials(key=b"run"), attempts, (60.0, 60.0), look)

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
            except BaseException:
                course.end_all()  # nobody waits for one that has failed
                raise

    return in_threads(*(lambda rank=rank: lives(rank) for rank in range(course.most)))


def lived_with_losses(in_threads, course, losses, life):
    """What ranks come to of which these are lost, as (rank, step, point); and who was replaced how often.

    ``life(rank, dies)`` is a rank's; ``dies(step, point)`` tells it when it is lost.
    """
    left = list(losses)

    def one_life(rank):
        def dies(step, point):
            if (rank, step, point) not in left:
                return False
            left.remove((rank, step, point))
            return True

        return life(rank, dies)

    results = lived(in_threads, course, one_life)
    assert not left + course.lost_in_meetings, "all were lost that should be"
    return results, course.attempts
