"""Where a run keeps checkpoints and how often, and what distinguishes it from other runs in the same place."""

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
    """Where a run keeps checkpoints, how often, and whether it resumes from those of earlier runs.

    Attributes
    ----------
    url
        A path that all hosts share, or an fsspec URL such as ``s3://bucket/run``.
    run
        The run's name, which no other run has.
    began
        When it was started, in seconds since the epoch, by its client's clock.
    resume
        Whether it begins with the last one that is there, whichever run has kept it.
    every_steps, every_s, keep, best, mode
        See :class:`~dask_train.checkpoint.policy.Checkpoint`.
    storage_options
        For its file system; not in the ``repr``.
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
        """Return how often, and which ones stay; ``restore_best`` is for the client alone."""
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
        """Return the file system, and the path there."""
        system, root = open_store(self.url, self.storage_options)
        return system, root.rstrip("/")
