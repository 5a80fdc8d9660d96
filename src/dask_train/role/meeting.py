"""How a training role meets the others when it first does something together with them."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import NoReturn

from dask_train.collectives.checked import CheckedCollectives
from dask_train.collectives.formation import Formation, formed
from dask_train.collectives.hosts import Hosts
from dask_train.collectives.lost import PeerLostError
from dask_train.collectives.process_group import ProcessGroup
from dask_train.collectives.rendezvous import meet
from dask_train.collectives.ring import Ring
from dask_train.collectives.shared_memory import SharedMemory
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.role.context import Link
from dask_train.run.messages import Met
from dask_train.transport.connections import Credentials


class Meeting:
    """The group of the training roles, made when it is first asked for.

    Until then a role that is lost can be replaced alone. From then on the loss of one is the loss of all: the run
    knows, since it is the run that tells each where the others are.

    Parameters
    ----------
    link, me
        The way to the run, and which role this is.
    timeout_s
        How long the others may take to come, once all are known to be on their way, in seconds.
    patience_s
        How long they may take to come to any call, in seconds.
    joins
        Whether the others train already. Default: false.

    Attributes
    ----------
    has_joined
        Whether it joins others that train, and these know, so that they wait for it.
    """

    def __init__(self, link: Link, me: RoleInfo, timeout_s: float, patience_s: float, *, joins: bool = False) -> None:
        self._link, self._me, self._joins, self.has_joined = link, me, joins, False
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._group: CheckedCollectives | None = None
        self._meeting = threading.Lock()
        self._opened = ExitStack()

    @property
    def has_met(self) -> bool:
        """Whether this role has come to any collective call."""
        return self._group is not None

    def group(self) -> CheckedCollectives:
        """Return the same one each time.

        Raises
        ------
        ValueError
            This role does not train, or another one that does has returned.
        StalledError, LaunchError
            Another one did not come in time.
        """
        with self._meeting:  # of several threads that come first at the same time one meets the others
            return self._group or self._made()

    def _made(self) -> CheckedCollectives:
        names = [f"{role} {rank}" for role, rank in self._me.members]
        if (self._me.role, self._me.rank) not in self._me.members:
            raise ValueError(
                f"{self._me.role} {self._me.rank} takes part in no collective call: they are of the roles that "
                f"train, {', '.join(self._me.training)}. Let it report(), or read checkpoints."
            )
        with ExitStack() as undone:
            group = self._met(undone) if len(names) > 1 else self._alone()
            collectives = self._group = undone.enter_context(closing(CheckedCollectives(group, names)))
            undone.enter_context(self._link.spent.following(group))
            self._opened = undone.pop_all()
        return collectives

    def _alone(self) -> ProcessGroup:
        memory = SharedMemory(SharedMemory.create(), 0, 1)
        return ProcessGroup(Hosts.of(["here:0"]), 0, memory, None, self._patience_s)

    def _met_at(self, holder: socket.socket, size: int = 0, or_size: int = 0) -> Met:
        """Tell the run that this role waits for the others, and return where all are."""
        me, joins = self._me, self._joins
        self._joins = False
        met = self._link.meet(address_of(me.host, holder), size, or_size, joins=joins)
        if met.error:
            raise ValueError(f"{me.role} {me.rank} waits for the other training roles, and {met.error}.")
        self.has_joined |= joins
        return met

    def form(self, size: int = 0, or_size: int = 0) -> Formation:
        """Meet all training roles of a run whose lost ones are replaced in place, those that were replaced among them.

        If one is lost meanwhile, they meet once more, with the one that takes its place.

        Parameters
        ----------
        size
            Number of roles that are to meet. Default: 0, those that the others wait for.
        or_size
            Another number in which they may meet, if the others do. Default: 0, there is none.

        Raises
        ------
        ValueError
            One that trains has returned.
        StalledError, LaunchError
            Another one did not come in time.
        """
        rank = self._me.members.index((self._me.role, self._me.rank))
        while True:
            with hold_port() as holder, suppress(PeerLostError):
                met = self._met_at(holder, size, or_size)
                hosts, credentials = Hosts.of(met.addresses), Credentials(key=met.secret, tls=self._me.tls)
                timeouts_s = self._timeout_s, self._patience_s
                return formed(hosts, rank, credentials, met.attempts, timeouts_s, partial(self._look, met))

    def _look(self, met: Met) -> None:
        """Leave the meeting if one of those who are to come is lost."""
        if any(self.lost_attempt(rank) >= attempt for rank, attempt in enumerate(met.attempts)):
            raise PeerLostError

    def lost_attempt(self, rank: int) -> int:
        """Return the last start of a training role whose process is gone; -1 where none is."""
        return self._link.lost_attempt(rank)

    def start_all_again(self, why: str) -> NoReturn:
        """Let the run start all roles again, as this one can't continue, and wait for the end of this process."""
        self._link.start_all_again(why)

    def _met(self, opened: ExitStack) -> ProcessGroup:
        me, rank = self._me, self._me.members.index((self._me.role, self._me.rank))
        met = self._met_at(opened.enter_context(hold_port()))
        hosts, credentials = Hosts.of(met.addresses), Credentials(key=met.secret, tls=me.tls)
        memory, across = meet(hosts, rank, met.secret, self._timeout_s), None
        with ExitStack() as undone:
            undone.callback(memory.close)
            if len(hosts.groups) > 1 and rank in hosts.leaders:
                addresses, place = [hosts.addresses[leader] for leader in hosts.leaders], hosts.leaders.index(rank)
                across = opened.enter_context(closing(Ring(addresses, place, credentials, self._patience_s)))
            undone.pop_all()  # the group closes it
        return ProcessGroup(hosts, rank, memory, across, self._patience_s)

    def close(self) -> None:
        """Leave the group, if this role has come to it: the others do not wait for it any more."""
        self._opened.close()
        self._group = None
