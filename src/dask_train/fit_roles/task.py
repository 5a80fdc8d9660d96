"""What ``fit`` sends to each role process: one value, which imports Keras when it is called and no earlier."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_train.agreement.network import Credentials
from dask_train.data.account import Stretch
from dask_train.fit_roles.layout import Layout

if TYPE_CHECKING:
    from dask_train.fit_roles.servers import Servers
    from dask_train.session import Session

# Under this name the roles of a run find what the model is validated on.
VALIDATION = "validation"

# A run, its number of workers, and what each of them has trained on.
Read = tuple[str, int, dict[int, list[Stretch]]]


@dataclass(frozen=True, kw_only=True)
class FitTask:
    """A model and how it is to be fitted; called with a session, it does what its role has to do.

    Attributes
    ----------
    header, arrays
        The model, taken apart.
    layout, validation_layout
        What the columns of a batch mean; None without validation data.
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
    checkpoint_every
        Steps and seconds between checkpoints, each perhaps None; None for no checkpoints.
    scored_elsewhere
        Whether a scorer validates.
    resume
        Whether to begin with the last checkpoint, also of an earlier run.
    run
        Tells this call of ``fit`` from others in their checkpoints.
    secret
        By which roles of different hosts know each other; drawn anew.
    patience_s
        How long a worker may wait for the others in a step, in seconds.
    """

    header: dict[str, Any] = field(repr=False)
    arrays: list[np.ndarray] = field(repr=False)
    layout: Layout
    validation_layout: Layout | None = None
    callbacks: bytes = field(default=b"", repr=False)
    epochs: int = 1
    initial_epoch: int = 0
    batch_size: int = 32
    steps_per_epoch: int | None = None
    shuffle: Any = True
    seed: int = 0
    validation_batch_size: int = 32
    validation_steps: int | None = None
    validation_freq: Any = 1
    class_weight: dict[int, float] | None = None
    num_classes: int | None = None
    checkpoint_every: tuple[int | None, float | None] | None = None
    scored_elsewhere: bool = False
    resume: bool = False
    run: str = ""
    secret: bytes = field(default_factory=partial(secrets.token_bytes, 32), repr=False)
    patience_s: float = 180.0

    __name__ = "fit"

    def credentials(self, session: Session) -> Credentials:
        """What roles of this run on other hosts have to have."""
        return Credentials(key=self.secret, tls=session.tls)

    def servers(self, model: Any, session: Session) -> Servers:
        """Lines to all parameter servers."""
        from dask_train.fit_roles.servers import Servers

        return Servers(model, session.peers["ps"], session.host, self.credentials(session), self.patience_s)

    def __call__(self, session: Session) -> Any:
        """Do what the session's role has to; the first worker returns an :class:`Outcome`, all others None."""
        if session.role == "ps":
            from dask_train.fit_roles.parameter_server import serve_parameters

            return serve_parameters(self, session)
        if session.role == "scorer":
            from dask_train.fit_roles.scorer import score

            return score(self, session)
        if "ps" in session.peers:
            from dask_train.fit_roles.asynchronous import fit_asynchronously

            return fit_asynchronously(self, session)
        from dask_train.fit_roles.synchronous import fit_synchronously

        return fit_synchronously(self, session)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the chief returns.

    Attributes
    ----------
    header, arrays
        The trained model, taken apart.
    history, epoch
        As Keras' ``History`` has them.
    callbacks
        What each of the user's callbacks holds after training, pickled; empty where it can't be.
    steps
        How many steps were taken, also before it was resumed.
    read
        What was trained on before it was resumed from a checkpoint of another run.
    applied
        By worker: the batches of this run that have gone into the weights.
    num_rows
        Of the data.
    agreeing_s, waiting_s
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
    agreeing_s: float
    waiting_s: float
    applied: dict[int, list[Stretch]]
