"""What adapters of boosting libraries share: ranks that sum histograms over a network of the library's own."""

from __future__ import annotations

import importlib
import socket
import time
from collections.abc import Mapping
from typing import ClassVar

from dask_train.errors import LaunchError
from dask_train.extras import install_command
from dask_train.frameworks.base import TRAINING_ROLES, Framework, RoleInfo
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.ranks import first_address, num_ranks, rank_of
from dask_train.frameworks.words import RankPlace
from dask_train.roles import AddressBook
from dask_train.spelling import passed

# How much computing is progress, in seconds: what a rank that hangs spends otherwise comes to less in minutes.
PULSE_S = 5.0


class BoostingFramework(Framework):
    """An adapter whose training roles wait for each other in every round, in native code.

    Attributes
    ----------
    title
        What the library is called.
    """

    title: ClassVar[str]
    views = "read-only"
    role_bytes = 150 << 20
    shared_bytes = 60 << 20

    def __init__(self) -> None:
        self._port_holder: socket.socket | None = None

    def check(self, counts: Mapping[str, int]) -> None:
        """See :meth:`Framework.check <dask_train.frameworks.base.Framework.check>`."""
        if "ps" in counts:
            raise ValueError(
                f"ps={counts['ps']} with {passed('framework', self.name)}: {self.title} has no parameter server; its "
                "workers sum histograms among themselves. Leave ps out."
            )
        if not num_ranks(counts):
            raise ValueError(
                f"{passed('framework', self.name)} with no role that trains, only {', '.join(counts) or 'none'}: its "
                "ranks are the chief and the workers. Ask for worker=1 or more."
            )

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether several train: they sum what they have in every round."""
        return num_ranks(counts) > 1

    def can_replace(self, role: str) -> bool:
        """Return whether a lost role can be replaced: not a rank, which can't join a network that is up."""
        return role not in TRAINING_ROLES

    def load(self, me: RoleInfo) -> None:
        """Import the library.

        Raises
        ------
        LaunchError
            It can't be imported.
        """
        try:
            importlib.import_module(self.name)
        except (ImportError, OSError) as error:  # its native library, or one that this needs, is missing
            raise LaunchError(
                f"{self.title} can't be imported for {me.role} {me.rank}: {error}.",
                change=f"Install it on every Dask worker: {install_command(self.name)}.",
            ) from error

    def pulse(self) -> int:
        """Seconds of computing, in steps: a round of many rows reports nothing for long, and takes no batches."""
        return int(time.process_time() / PULSE_S)

    def prepare(self, me: RoleInfo) -> str:
        """Load the library; rank 0 holds the port at which it awaits the others."""
        self.load(me)
        if me.role not in TRAINING_ROLES or rank_of(me):
            return ""
        self._port_holder = hold_port()
        return address_of(me.host, self._port_holder)

    def _place(self, me: RoleInfo, peers: AddressBook) -> RankPlace | None:
        """Return where this rank meets the others; None if it is alone, or trains not."""
        if me.role not in TRAINING_ROLES:
            return None
        holder, self._port_holder = self._port_holder, None
        if num_ranks(me.counts) == 1:
            if holder is not None:
                holder.close()
            return None
        return RankPlace(
            rank=rank_of(me),
            num_ranks=num_ranks(me.counts),
            meeting=first_address(peers, me.counts),
            port_holder=holder,
        )
