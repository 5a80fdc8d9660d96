"""What ``fit`` sends to each role process, and what comes back: values that import no Keras."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.checkpoint.policy import Checkpoint
from dask_train.data.account import BatchRange
from dask_train.fitting.layout import Layout
from dask_train.transport.connections import Credentials

if TYPE_CHECKING:
    from dask_train.role.session import Session

# Under this name the roles of a run find what the model is validated on.
VALIDATION = "validation"
# Rows of a global batch where nothing else is said; as in Keras.
BATCH_SIZE = 32

# A run, its number of workers, and what each of them has trained on.
Read = tuple[str, int, dict[int, list[BatchRange]]]


@dataclass(frozen=True, kw_only=True)
class InPlace:
    """What is trained as it is, in the process that holds it; never sent.

    Attributes
    ----------
    model : keras.Model or ModuleTraining
        The user's own; a module of torch with what it is trained with.
    callbacks
        Theirs, too.
    """

    model: Any
    callbacks: list[Any] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FitTask:
    """A model and how it is to be fitted; :class:`~dask_train.fitting.roles.entry.FitRole` does it.

    Attributes
    ----------
    header, arrays
        The model, taken apart; empty for one that is trained in place, without checkpoints.
    in_place
        The model itself and its callbacks, where they are trained in the process that holds them.
    layout, validation_layout
        What the columns of a batch mean; None without validation data.
    frame
        The schema of the frame whose columns these are, as JSON holds it; for checkpoints. None without a frame.
    callbacks
        Pickled; for the chief.
    epochs, initial_epoch, batch_size, steps_per_epoch, shuffle, seed
        As in :func:`dask_train.fit`.
    validation_batch_size, validation_steps, validation_freq
        As in Keras.
    class_weight
        By class.
    num_classes
        Labels are below it; None where they are something else.
    checkpoint
        When one is kept, and which is the best; None for no checkpoints.
    scored_elsewhere
        Whether a scorer validates.
    stop_names
        The scores that the rule to stop by looks at.
    resume
        Whether to begin with the last checkpoint, also of an earlier run.
    new_learning_rate
        Whether then the learning rate is the model's own, not that of the checkpoint.
    run
        Tells this call of ``fit`` from others in their checkpoints.
    secret
        By which roles of different hosts know each other; drawn anew.
    random
        The state of torch's random numbers in the client, with which the first worker begins; None for ``seed``.
    patience_s
        How long a worker may wait for the others in a step, in seconds.
    """

    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    layout: Layout
    in_place: InPlace | None = field(default=None, repr=False)
    validation_layout: Layout | None = None
    frame: dict[str, Any] | None = field(default=None, repr=False)
    callbacks: bytes = field(default=b"", repr=False)
    epochs: int = 1
    initial_epoch: int = 0
    batch_size: int = 32
    steps_per_epoch: int | None = None
    shuffle: Any = True
    seed: int = 0
    random: np.ndarray | None = field(default=None, repr=False)
    validation_batch_size: int = 32
    validation_steps: int | None = None
    validation_freq: Any = 1
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None
    checkpoint: Checkpoint | None = None
    scored_elsewhere: bool = False
    stop_names: frozenset[str] = frozenset()
    resume: bool = False
    new_learning_rate: bool = False
    run: str = ""
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)
    patience_s: float = 180.0

    def credentials(self, session: Session) -> Credentials:
        """What roles of this run on other hosts have to have."""
        return Credentials(key=self.secret, tls=session.tls)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the chief returns.

    Attributes
    ----------
    header, arrays
        The trained model, taken apart; empty for one that was trained in place.
    history, epoch
        As Keras' ``History`` has them.
    callbacks
        What each of the user's callbacks holds after training, pickled; empty where it can't be. Nothing of
        those that were called in place.
    steps
        How many steps were taken, also before it was resumed.
    read
        What was trained on before it was resumed from a checkpoint of another run.
    applied
        By worker: the batches of this run that have gone into the weights.
    num_rows
        Of the data.
    warnings
        What Keras would have warned of.
    num_steps
        Of an epoch.
    best_epoch
        Of which epoch the model is, where that of the best checkpoint was to be taken; None of the last.
    all_reduce_s, waiting_s
        Seconds that this role has waited for others, and summed; and waited alone.
    """

    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    history: dict[str, list[Any]]
    epoch: list[int]
    callbacks: list[bytes] = field(repr=False)
    steps: int
    read: list[Read]
    num_rows: int
    warnings: list[str]
    num_steps: int
    all_reduce_s: float
    waiting_s: float
    applied: dict[int, list[BatchRange]]
    best_epoch: int | None = None
