"""How often a run keeps a checkpoint, where, and which ones stay."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_train.checkpoint.best import AUTO, MODES, mode_by_name
from dask_train.input_errors import made_at_the_call
from dask_train.masking import shows_no_secrets
from dask_train.stores import checked_options


@made_at_the_call
@shows_no_secrets
@dataclass(frozen=True)
class Checkpoint:
    """Checkpoints of ``fit``, ``train`` or ``search``: where they are kept, how often, and which of them stay.

    Parameters
    ----------
    url
        A folder that the hosts of the cluster share, or an fsspec URL such as ``s3://bucket/run``.
    every_steps
        Number of steps between checkpoints, counted from the first of all. Default: None, no such rule.
    every_s
        Seconds between checkpoints; None for no such rule. Default: 60.0.
    keep
        Number of checkpoints that stay, the last ones. With ``keep=1``, a damaged checkpoint cannot be recovered.
        Default: 2.
    best
        Score of the best checkpoint, which stays as well, such as ``"val_loss"``. Default: None, none. In ``fit`` it is
        one of the logs at the end of an epoch, in ``train`` the score of that name that the role which keeps a
        checkpoint has reported last since the one before, in ``search`` the metric.
    mode
        Whether less ("min") or more ("max") of that score is better. "auto" is as in Keras: losses and Keras' own
        metrics have a direction; pass it for others, and in ``train`` for all but losses.
    restore_best
        Whether ``fit`` ends with the model of the best checkpoint, optimizer and all, instead of the last epoch's.
        ``search`` does so in any case; in ``train``, ``session.load_checkpoint(best=True)`` gives it. Default: False.
    storage_options
        Keywords for the file system of fsspec, such as credentials; as Dask's ``read_parquet`` takes them. Never shown,
        and not stored. Default: what the environment of each process says.

    Raises
    ------
    ValueError, TypeError
        The place is empty, a number is not above 0, a word is not one of those, or nothing says what is best.

    Notes
    -----
    In ``train`` it is for the function to keep them, whenever ``session.checkpoint_due()`` says so. ``fit`` keeps them
    by itself, and one at the end of each epoch besides. It writes them in the background, during training; one that is
    due while another is written waits for it: that of an epoch's end as it was then, and only the last such. Training
    ends when all are written, or with an error after 1.5 times ``train.progress.timeout``. They have checksums of all
    that they hold; what is damaged later is passed over for the one before. Of equal scores the first is the best one.
    It stays while training continues, also in a later call; one that was the best before stays for as long as one of
    the last does that was kept meanwhile.
    """

    url: str | os.PathLike[str]
    every_steps: int | None = None
    every_s: float | None = 60.0
    keep: int = 2
    best: str | None = None
    mode: str = AUTO
    restore_best: bool = False
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        url: Any = self.url
        if not isinstance(url, str | os.PathLike) or not os.fspath(url):
            raise ValueError(f"checkpoint is {self.url!r}; pass a folder or a URL.")
        steps: Any = self.every_steps
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
            raise ValueError(f"every_steps is {steps!r}; pass a whole number of at least 1, or None.")
        seconds: Any = self.every_s
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (number and 0 < seconds < math.inf):
            raise ValueError(f"every_s is {seconds!r}; pass seconds above 0, or None.")
        keep: Any = self.keep
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep is {keep!r}; pass a whole number of at least 1.")
        checked_options(self.storage_options, checkpoint=url)
        self._check_best()

    def _check_best(self) -> None:
        best: Any = self.best
        if best is not None and (not isinstance(best, str) or not best):
            raise ValueError(f"best is {best!r}; pass the name of a score, such as 'val_loss', or None.")
        if self.mode not in (AUTO, *MODES):
            raise ValueError(f"mode is {self.mode!r}; it is 'auto', 'min' or 'max'.")
        if not isinstance(self.restore_best, bool):
            raise TypeError(f"restore_best is {self.restore_best!r}; it is True or False.")
        if best is None and (self.restore_best or self.mode != AUTO):
            argument = "restore_best=True" if self.restore_best else f"mode={self.mode!r}"
            raise ValueError(f"{argument} is of the best checkpoint; say by which score: best='val_loss'.")


def check_checkpoint(checkpoint: Any, resume: Any, *, words: tuple[str, ...] = ()) -> Checkpoint | None:
    """Return what ``checkpoint=`` and ``resume=`` mean, the same for all verbs.

    Parameters
    ----------
    checkpoint, resume
        As the user gave them.
    words
        What ``resume`` may be besides True and False.

    Raises
    ------
    TypeError, ValueError
        One of them is something else, or there is nothing to resume from.
    """
    policy = checkpoint if isinstance(checkpoint, Checkpoint | None) else Checkpoint(checkpoint)
    if not isinstance(resume, bool) and resume not in words:
        raise TypeError(f"resume is {resume!r}; it is True or False{''.join(f', or {word!r}' for word in words)}.")
    if resume and policy is None:
        raise ValueError(
            f"resume={resume!r} resumes from a checkpoint; say where they are kept: checkpoint='a folder or URL'."
        )
    return policy


def check_best_of_train(checkpoint: Checkpoint | None) -> None:
    """Check that the best checkpoint can be found without a model.

    Raises
    ------
    ValueError
        It can't.
    """
    if checkpoint is None or checkpoint.best is None:
        return
    if mode_by_name(checkpoint.best, checkpoint.mode) == AUTO:
        raise ValueError(
            f"The best checkpoint is to be known by {checkpoint.best!r}, which does not say whether less or more of "
            "it is better. Pass mode='min' or mode='max' to dt.Checkpoint."
        )
    if checkpoint.restore_best:
        raise ValueError(
            "restore_best=True is for dt.fit, which holds the model. In a function of dt.train, "
            "session.load_checkpoint(best=True) gives the best checkpoint's files."
        )


def is_due(every_steps: int | None, every_s: float | None, *, steps: int, last_steps: int, seconds: float) -> bool:
    """Return whether a checkpoint is due.

    Parameters
    ----------
    every_steps, every_s
        As :class:`Checkpoint` has them.
    steps, last_steps
        How many steps there were in all, and how many when the last one was kept.
    seconds
        Since then.
    """
    if every_steps is not None and steps // every_steps > last_steps // every_steps:
        return True
    return every_s is not None and seconds >= every_s
