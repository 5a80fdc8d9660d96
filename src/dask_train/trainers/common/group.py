"""The group of all workers of a run that agree in every step; imports no framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Protocol

from dask_train.collectives import ProcessGroup
from dask_train.collectives.formation import Formation
from dask_train.collectives.replaceable import ReplaceableGroup
from dask_train.collectives.ring import Ring
from dask_train.errors import DaskTrainError
from dask_train.role.session import Session
from dask_train.transport.connections import Credentials


class GroupTask(Protocol):
    """The part of a task that a group of workers uses."""

    @property
    def collective_timeout_s(self) -> float:
        """Timeout of a collective call, in seconds."""

    def credentials(self, session: Session) -> Credentials:
        """Return what roles of this run on other hosts have to have."""


def _formed(session: Session) -> Formation:
    """Return the ranks as they have met; one that others wait for, and that can't meet them, lets all start again."""
    try:
        return session._meeting.form()
    except (DaskTrainError, ValueError, OSError) as error:
        if not (session.attempt or session._meeting.has_joined):
            raise
        role = "takes a lost one's place" if session.attempt else "joins the others"
        session._meeting.start_all_again(f"worker {session.rank}, which {role}, can't meet: {error}")


@contextmanager
def process_group(task: GroupTask, session: Session) -> Iterator[ProcessGroup]:
    """Connect the workers of a run, met through the session; the first one of each host with those of others.

    Where lost workers are replaced in place they meet here, and the group replaces them.
    """
    with ExitStack() as stack:
        if session.meeting is None:
            formation = _formed(session)
            later, timeout_s = session._alone or session._meeting.has_joined, task.collective_timeout_s
            replaceable = ReplaceableGroup(session._meeting, formation, timeout_s, begins_later=later)
            stack.enter_context(closing(replaceable))
            session._go_on_among(replaceable.size)
            stack.enter_context(session._link.spent.following(replaceable))
            yield replaceable
            return
        (hosts, memory), across = session.meeting, None
        if len(hosts.groups) > 1 and session.rank in hosts.leaders:
            addresses, place = [hosts.addresses[rank] for rank in hosts.leaders], hosts.leaders.index(session.rank)
            across = stack.enter_context(
                closing(Ring(addresses, place, task.credentials(session), task.collective_timeout_s))
            )
        group = ProcessGroup(hosts, session.rank, memory, across, task.collective_timeout_s)
        stack.enter_context(session._link.spent.following(group))
        group.begin_again()  # in a search the same workers have trained another model before
        yield group
