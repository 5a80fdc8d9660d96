"""The objects that a role process makes for its session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.data.account import Account
from dask_train.data.rows import Rows
from dask_train.data.state_memory import StateMemory
from dask_train.data.table import Table
from dask_train.frameworks.base import Framework
from dask_train.role.meeting import Meeting
from dask_train.roles import AddressBook


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """Arguments of a :class:`~dask_train.role.session.Session` besides its link and its identity.

    Attributes
    ----------
    attempt
        Number of the role's start, from 0.
    alone
        Whether it was started again alone, while others train. Default: false.
    joins
        Whether it is one more than the run had, and others train already. Default: false.
    framework, peers, extras
        Framework adapter, addresses of the peers, and attributes that the adapter adds to the session.
    data
        The role's own data, mapped; None if it has none.
    account
        Record of the batches that the role takes.
    checkpoint
        Folder of the run's checkpoints; None if there is none.
    scratch
        Folder that is removed with the run.
    meeting
        Rendezvous of the training roles.
    state_memory
        Memory of the Dask worker in which the state of training is kept. Default: None, it is not.
    """

    attempt: int
    framework: Framework
    peers: AddressBook
    extras: Mapping[str, Any]
    data: tuple[Table, Rows] | None
    account: Account
    checkpoint: CheckpointFolder | None
    scratch: Path
    meeting: Meeting
    state_memory: StateMemory | None = None
    alone: bool = False
    joins: bool = False
