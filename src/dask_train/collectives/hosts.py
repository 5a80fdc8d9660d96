"""Which ranks share a host, as all of them work it out for themselves from the addresses of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Hosts:
    """Ranks by host.

    Parameters
    ----------
    addresses
        ``host:port`` of each rank. Ranks with the same host part share a network, and with it the names of abstract
        Unix sockets, by which they pass each other memory. A host with several addresses counts as several hosts,
        which is slower and right.
    """

    addresses: tuple[str, ...]

    @classmethod
    def of(cls, addresses: Sequence[str]) -> Hosts:
        """Sort ranks by the host that each is on."""
        return cls(tuple(addresses))

    @cached_property
    def groups(self) -> list[list[int]]:
        """The ranks of each host, lowest first; hosts in the order of their first ranks."""
        ranks_by_host: dict[str, list[int]] = {}
        for rank, address in enumerate(self.addresses):
            ranks_by_host.setdefault(address.rpartition(":")[0], []).append(rank)
        return list(ranks_by_host.values())

    @property
    def leaders(self) -> list[int]:
        """The first rank of each host; rank 0 is the first of them."""
        return [group[0] for group in self.groups]

    def group_of(self, rank: int) -> list[int]:
        """Return all ranks of the host of that rank."""
        return next(group for group in self.groups if rank in group)
