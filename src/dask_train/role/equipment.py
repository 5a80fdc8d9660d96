"""What a role process has been given for its session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.data.account import Account
from dask_train.data.rows import Rows
from dask_train.data.table import Table
from dask_train.frameworks.base import Framework
from dask_train.role.meeting import Meeting
from dask_train.roles import AddressBook


@dataclass(frozen=True, kw_only=True)
class Equipment:
    """What a role process has been given.

    Attributes
    ----------
    attempt
        Which start of the role it is.
    framework, peers, extras
        The adapter, its peers' addresses, and what it shows in the session.
    data
        The role's own data, mapped; None if it has none.
    account
        Where the batches that it takes are noted.
    checkpoint
        Where checkpoints are kept, if anywhere.
    scratch
        A folder that goes away with the run.
    meeting
        Where it meets the other training roles.
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
