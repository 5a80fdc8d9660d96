"""Settings that each rank's training loop is sent; a value that imports no framework."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_train.checkpoint.policy import Checkpoint
from dask_train.run.stopping import StopRule
from dask_train.transport.connections import Credentials

if TYPE_CHECKING:
    from dask_train.role.session import Session


@dataclass(frozen=True, kw_only=True)
class LoopTask:
    """Settings of a training loop: epochs, batches, checkpoints and stop rules.

    Attributes
    ----------
    epochs, initial_epoch, batch_size, steps_per_epoch, shuffle, seed
        As in :func:`dask_train.fit`.
    num_shares
        Number of shares that each global batch is cut into, several per rank. Default: 0, one per rank.
    checkpoint
        Checkpoint policy. Default: None, no checkpoints.
    scored_elsewhere
        Whether a scorer validates. Default: false.
    stop_names
        Names of the scores in the stop rule that the client evaluates.
    epoch_rules
        Stop rules that the loop evaluates after each epoch, or after each unit that a model has in place of epochs.
    resume
        Whether to begin with the last checkpoint, also of an earlier run. Default: false.
    configuration
        Plain values that describe the training; a checkpoint to resume from has to have the same.
    run
        Unique id of this call of ``fit``, by which checkpoints are told from those of other calls. Not the run's name.
    secret
        Random key by which roles of this run on different hosts authenticate each other.
    collective_timeout_s
        Timeout of a collective call, in seconds.
    """

    epochs: int = 1
    initial_epoch: int = 0
    batch_size: int = 32
    steps_per_epoch: int | None = None
    shuffle: Any = True
    seed: int = 0
    num_shares: int = 0
    checkpoint: Checkpoint | None = None
    scored_elsewhere: bool = False
    stop_names: frozenset[str] = frozenset()
    epoch_rules: tuple[StopRule, ...] = ()
    resume: bool = False
    configuration: dict[str, Any] = field(default_factory=dict, repr=False)
    run: str = ""
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)
    collective_timeout_s: float = 180.0

    def credentials(self, session: Session) -> Credentials:
        """Return the credentials for connections between roles of this run on different hosts."""
        return Credentials(key=self.secret, tls=session.tls)
