"""The messages between a Dask worker's tasks and a model process: a frozen dataclass each, as roles' are.

They go over a socket pair as they are (:mod:`dask_train.transport.frames`); rows and predictions lie in shared memory
of the Dask worker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dask_train.predicting.server.values import Call
from dask_train.settings.process import Settings
from dask_train.transport.frames import Files


@dataclass(frozen=True, kw_only=True)
class ModelMessage:
    """Root of all messages."""


# What a Dask worker's task tells a model process


@dataclass(frozen=True, kw_only=True)
class ModelFiles(Files):
    """Files in memory: the model's arrays, then rows and predictions of each slot.

    ``places`` are dtype, shape and offset of each array in the first.
    """

    places: Sequence[tuple[str, tuple[int, ...], int]]


@dataclass(frozen=True, kw_only=True)
class Open(ModelMessage):
    """Open the model that came in parts; see :class:`~dask_train.predicting.server.values.ModelParts`."""

    kind: str
    header: bytes = field(repr=False)
    num_threads: int
    settings: Settings = field(default_factory=Settings)
    data: ModelFiles


@dataclass(frozen=True, kw_only=True)
class Ask(ModelMessage):
    """Answer a call about the rows in a slot; ``text_sizes`` are bytes of the columns of text among them."""

    call: Call
    num_rows: int
    text_sizes: Sequence[int]
    slot: int


# What a model process answers


@dataclass(frozen=True, kw_only=True)
class ModelOpened(ModelMessage):
    """The model is open."""


@dataclass(frozen=True, kw_only=True)
class Beat(ModelMessage):
    """Another batch is done."""


@dataclass(frozen=True, kw_only=True)
class Answered(ModelMessage):
    """Predictions lie in the slot; or this is what metrics have counted, or say."""

    counted: list[np.ndarray] | dict[str, object] | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Raised(ModelMessage):
    """The model, or what opens it, has raised; ``exception`` is pickled, or empty."""

    error: str
    traceback: str
    exception: bytes = field(repr=False)
