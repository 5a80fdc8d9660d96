"""The folders in which trials of a kept search keep checkpoints of their own, next to those of the search."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dask_train.checkpoint.place import CheckpointPlace
from dask_train.checkpoint.policy import Checkpoint

if TYPE_CHECKING:
    from dask_train.trainers.common.entry import LoopRole

_OF_A_TRIAL = re.compile(r"trial-\d{8,}-\d+-[0-9a-f]{8}")


@dataclass(frozen=True, kw_only=True)
class TrialFolders:
    """The folders of trials, one for each start of a trial.

    Attributes
    ----------
    place
        Where the search is kept.
    policy
        How often trials keep checkpoints, and how many stay.
    metric, mode
        The score by which the best checkpoint of a trial is known.
    """

    place: CheckpointPlace
    policy: Checkpoint
    metric: str
    mode: str

    def new(self, number: int, num_before: int) -> str:
        """Return the name of a folder for a trial that is begun, or begun again: one writer each."""
        return f"trial-{number:08d}-{num_before}-{secrets.token_hex(4)}"

    def url_of(self, name: str) -> str:
        """Return where the folder of that name lies."""
        return f"{self.place.url.rstrip('/')}/{name}"

    def with_checkpoints(self, role: LoopRole, name: str) -> LoopRole:
        """Return the same work of a trial, with checkpoints in that folder."""
        policy = replace(self.policy, url=self.url_of(name), best=self.metric, mode=self.mode, restore_best=False)
        keeping: LoopRole = replace(role, task=replace(role.task, checkpoint=policy, resume=True))  # type: ignore[type-var]
        return keeping

    def remove(self, names: Iterable[str]) -> None:
        """Remove checkpoints of a trial that has ended; what can't be removed is left there."""
        system, root = self.place.opened()
        for name in names:
            with suppress(Exception):
                system.rm(f"{root}/{name}", recursive=True)

    def remove_all(self) -> None:
        """Remove checkpoints of all trials, also of those of an earlier search in this place."""
        system, root = self.place.opened()
        system.invalidate_cache()
        names = [str(entry["name"]).rstrip("/").rpartition("/")[2] for entry in system.ls(root, detail=True)]
        self.remove(name for name in names if _OF_A_TRIAL.fullmatch(name))
