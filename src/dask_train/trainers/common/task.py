"""What the training loop of each rank is sent; a value that imports no framework."""

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
    """How long to train, on which batches, when to keep a checkpoint, and with which one to begin.

    Attributes
    ----------
    epochs, initial_epoch, batch_size, steps_per_epoch, shuffle, seed
        As in :func:`dask_train.fit`.
    num_shares
        Number of shares that each global batch is cut into, of which each rank has some; 0 for one per rank.
    checkpoint
        When one is kept, and which is the best; None for no checkpoints.
    scored_elsewhere
        Whether a scorer validates.
    stop_names
        The scores that the rule to stop by looks at, which the client asks.
    epoch_rules
        Rules to stop by that the loop asks when an epoch has ended, or what there is in place of epochs.
    resume
        Whether to begin with the last checkpoint, also of an earlier run.
    configuration
        What training is begun with, as plain values: which a checkpoint to resume from has to have, too.
    run
        Distinguishes this call of ``fit`` from others in their checkpoints.
    secret
        By which roles of different hosts know each other; drawn anew.
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
        """Return what roles of this run on other hosts have to have."""
        return Credentials(key=self.secret, tls=session.tls)
