"""Ranks of a framework's own network: all roles that train, numbered over chiefs and workers, chiefs first."""

from __future__ import annotations

from collections.abc import Mapping

from dask_train.frameworks.base import TRAINING_ROLES, RoleInfo
from dask_train.roles import AddressBook


def num_ranks(counts: Mapping[str, int]) -> int:
    """Return how many train."""
    return sum(counts.get(role, 0) for role in TRAINING_ROLES)


def rank_of(me: RoleInfo) -> int:
    """Return the number of a role that trains among all of them."""
    return me.rank + (0 if me.role == "chief" else me.counts.get("chief", 0))


def first_address(peers: AddressBook, counts: Mapping[str, int]) -> str:
    """``host:port`` at which rank 0 awaits the others."""
    return peers.task_address(next(role for role in TRAINING_ROLES if role in counts), 0)
