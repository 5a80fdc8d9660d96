"""Ranks that go on where one of them is lost, as threads: what tests of groups and of loops share."""

from __future__ import annotations

import threading
from contextlib import suppress

from dask_train.collectives import Hosts
from dask_train.collectives import ring as ring_module
from dask_train.collectives.formation import formed
from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.mirror import Mirrors
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.collectives.shared_memory import SharedMemory
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
        self.waiting, self.told, self.is_over, self.returned = {}, {}, False, set()
        self.is_full, self.why_again = False, ""

    def end(self, rank):
        """A process is gone; its successor may come."""
        with self.lock:
            self.lost[rank] = self.attempts[rank]
            self.attempts[rank] += 1
            self.waiting.pop(rank, None)

    def left(self, rank):
        """A rank has returned; those may wait for others that can't know of that."""
        with self.lock:
            self.returned.add(rank)
            self.let_meet()

    def let_none_join(self):
        """End those that wait to join."""
        with self.lock:
            self.is_full = True
            self.lock.notify_all()

    def goes_without(self, rank, size):
        """Whether others have continued without this rank, which waits for so many, or will."""
        return rank >= self.size and (self.is_full or size > self.size)

    def end_all(self, why="one has failed"):
        """All are to start again, and nobody does here."""
        with self.lock:
            self.why_again = self.why_again or why
            self.lost, self.is_over = dict.fromkeys(range(self.most), 99), True
            self.lock.notify_all()

    def let_meet(self):
        """Let those meet that wait for each other: newcomers for whoever waits."""
        sizes = {wanted for sizes, _ in self.waiting.values() for wanted in sizes} - {0, self.size}
        for size in [*sizes, self.size]:
            ranks = range(size)
            wanted = [self.waiting.get(each, ((-1, -1), ""))[0] for each in ranks]
            firsts, may_come = [first for first, _ in wanted], {other for _, other in wanted}
            if size == self.size:  # one that waits for as many as before decides
                meet = -1 not in firsts and (size in firsts or not any(firsts))
            else:
                meet = all(first in (0, size) or other == size for first, other in wanted)
                meet &= size in firsts or bool(size in may_come and self.returned & set(range(size, self.size)))
            if not meet:
                continue
            self.number, self.size = self.number + 1, size
            self.returned -= set(ranks)
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
            has_joined = False

            def form(self, size=0, or_size=0):
                while True:
                    with hold_port() as holder, suppress(PeerLostError):
                        return self.formed((size, or_size), holder)

            def formed(self, sizes, holder):
                address = f"127.0.0.{1 + course.host_of(rank, course.attempts[rank])}:{holder.getsockname()[1]}"
                with course.lock:
                    course.waiting[rank] = sizes, address
                    course.let_meet()
                    assert course.lock.wait_for(
                        lambda: rank in course.told or course.is_over or course.goes_without(rank, sizes[0]), 60.0
                    )
                    if course.is_over or rank not in course.told:
                        course.waiting.pop(rank, None)
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
                course.end_all(why)
                raise RestartError(why)

        return Run()


class Moments:
    """Counts moments of ranks within calls, around each wait and each exchange with other hosts, and ends one there.

    A moment is of the thread of a rank: what other threads send goes on for as long as it can.
    """

    def __init__(self, monkeypatch):
        self.own, self.counts, self.at, self.lost = threading.local(), {}, None, False
        self.marks = {}  # by rank and place: how many moments have been
        for cls, name in (
            (SharedMemory, "arrive"),
            (SharedMemory, "leave"),
            (ring_module._Incoming, "recv_into"),
            (Mirrors, "put_packed"),
            *((ring_module.Ring, name) for name in ("__call__", "broadcast", "gather", "meet", "pass_on")),
        ):
            monkeypatch.setattr(cls, name, self._between(getattr(cls, name)))

    def _between(self, function):
        def called(*args, **settings):
            self._pass()
            found = function(*args, **settings)
            self._pass()
            return found

        return called

    def _pass(self):
        rank = getattr(self.own, "rank", None)
        if rank is None:
            return
        self.counts[rank] = self.counts.get(rank, 0) + 1
        if self.at == (rank, self.counts[rank]) and not self.lost:
            self.lost = True
            raise Lost

    def begin(self, at=None):
        """Count anew; one is lost at this moment: rank and number."""
        self.counts, self.at, self.lost = {}, at, False

    def mark(self, *where):
        """Note how many moments have been of a rank, when it first comes to a place."""
        self.marks.setdefault(where, self.counts.get(where[0], 0))


def joined(course, rank):
    """The group of a rank, as it meets the others; closed by who has asked for it."""
    run = course.of(rank)
    return ReplaceableGroup(run, run.form(), 60.0)


def lived(in_threads, course, life):
    """What ranks come to that begin anew where they are lost; ``life(rank)`` raises :class:`Lost` then."""

    def lives(rank):
        while True:
            try:
                found = life(rank)
                course.left(rank)
                return found
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
