"""Every exception that dask-train raises for a run, in one tree.

::

    DaskTrainError
    ├── PlacementError          the cluster has no room for the requested roles
    ├── LaunchError             a role was placed but did not start
    ├── RoleFailedError         a role's own code raised
    ├── RoleLostError           a role, or the Dask worker that carried it, is gone
    ├── StalledError            a wait reached its deadline
    ├── DivergedError           workers that train one model have different weights
    ├── ClosedError             what was waited on has been closed
    ├── PredictionError         a model can't be opened where it is used, fails, or its processes die
    ├── DataError               the data can't be read, moved or accounted for
    ├── CheckpointError         a checkpoint can't be written or read
    └── VersionMismatchError    two sides run versions that don't work together

Wrong arguments are ``ValueError`` or ``TypeError``. Every message has up to four parts: what happened with its
values, the likely cause, what to change, and the original error as ``__cause__``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Self

from dask_train.cards import in_notebook
from dask_train.error_cards import draw_error
from dask_train.masking import masked

# How Keras colours words of its messages: ECMA-48, 8.3.117.
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


def in_words(error: BaseException) -> str:
    """Return an error as a part of another one's message: its text without colours, and its type if not ours."""
    try:
        text = masked(_COLOURS.sub("", str(error)))
    except Exception:  # of an error of the user's, whose text is made by code of theirs
        text = "its text can't be made"
    return text if isinstance(error, DaskTrainError) else f"{type(error).__name__}: {text}"


class DaskTrainError(Exception):
    """Root of all errors of a run.

    Parameters
    ----------
    what
        What happened, with the values involved, as a full sentence.
    cause
        The likely cause, as a full sentence; empty if ``what`` says it all.
    change
        What the reader can change, as a full sentence.

    Notes
    -----
    Passwords and tokens in the texts are masked.     Survives pickling: it is made again from the same three strings.
    """

    def __init__(self, what: str, cause: str = "", change: str = "") -> None:
        what, cause, change = masked(what), masked(cause), masked(change)
        self.what, self.cause, self.change = what, cause, change
        super().__init__(what, cause, change)

    def __copy__(self) -> Self:
        """Return the same error without the traceback of the first, which tblib, that Dask uses, would copy along."""
        fresh = type(self)(*self.args)
        fresh.__dict__.update(self.__dict__)
        return fresh

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """Draw the error as a card in a notebook; elsewhere IPython shows it as any other."""
        if not in_notebook():
            raise AttributeError("_render_traceback_")
        return partial(draw_error, self, {"what": self.what, "why": self.cause, "what to change": self.change})

    def __str__(self) -> str:
        return " ".join(part for part in (self.what, self.cause, self.change) if part)


class PlacementError(DaskTrainError):
    """The cluster has no room for the requested roles; nothing was started."""


class LaunchError(DaskTrainError):
    """A role was placed but did not start in time, or its server refused to."""


class RoleFailedError(DaskTrainError):
    """A role's own code raised; the original is the ``__cause__``."""


class RoleLostError(DaskTrainError):
    """A role, or the Dask worker that carried it, is gone."""


class StalledError(DaskTrainError):
    """A wait reached its deadline."""


class DivergedError(DaskTrainError):
    """Workers that train one model have different weights: something changes them that is not summed over all."""


class ClosedError(DaskTrainError):
    """Something that was waited on has been closed."""


class PredictionError(DaskTrainError):
    """A model can't be opened where it is used, raised there, has no room, or its processes died again and again."""


class DataError(DaskTrainError):
    """Data can't be read, moved or accounted for."""


class CheckpointError(DaskTrainError):
    """A checkpoint can't be written or read."""


class VersionMismatchError(DaskTrainError):
    """Two sides run versions that don't work together."""
