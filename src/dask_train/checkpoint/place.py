"""Location and policy of a run's checkpoints, and the identity of the run among others in the same folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_train.checkpoint.best import AUTO
from dask_train.checkpoint.policy import Checkpoint
from dask_train.masking import shows_no_secrets
from dask_train.stores import open_store


@shows_no_secrets
@dataclass(frozen=True, kw_only=True)
class CheckpointPlace:
    """Location and policy of a run's checkpoints.

    Attributes
    ----------
    url
        Path that all hosts share, or an fsspec URL such as ``s3://bucket/run``.
    run
        Unique name of the run.
    began
        Time of the run's start, in seconds since the epoch, by the client's clock.
    resume
        Whether to begin with the last checkpoint in the folder, of whichever run. Default: false.
    every_steps, every_s, keep, best, mode
        See :class:`~dask_train.checkpoint.policy.Checkpoint`.
    storage_options
        Options of the file system; not in the ``repr``.
    """

    url: str
    run: str = ""
    began: float = 0.0
    resume: bool = False
    every_steps: int | None = None
    every_s: float | None = None
    keep: int = 2
    best: str | None = None
    mode: str = "auto"
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    @property
    def policy(self) -> Checkpoint:
        """Return the checkpoint policy, without ``restore_best``, which only the client needs."""
        return Checkpoint(
            self.url,
            every_steps=self.every_steps,
            every_s=self.every_s,
            keep=self.keep,
            best=self.best,
            mode=AUTO if self.best is None else self.mode,
            storage_options=self.storage_options,
        )

    def opened(self) -> tuple[Any, str]:
        """Return the file system, and the path of the folder in it."""
        system, root = open_store(self.url, self.storage_options)
        return system, root.rstrip("/")
