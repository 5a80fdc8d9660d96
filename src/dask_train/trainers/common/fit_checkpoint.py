"""What a checkpoint of ``fit`` holds, and how it is stored: as values and arrays, without a class of ours by name."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_train.checkpoint.stored import store, stored
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.trainers.common.outcome import Read

# Raised when what is stored means something else than before.
FORMAT = 4
# The part of the state that a Keras model is, with its optimizers: see ``fitting/roles/loop.py``.
MODEL = "model"
# Of a Keras model that was taken apart: what it takes to make one, which is known where training resumes.
MAKING = ("config", "compilations", "custom_objects")


class CallbackState(NamedTuple):
    """What one callback holds, for those that resume from a checkpoint.

    Attributes
    ----------
    name
        Of its class.
    state
        Pickled; empty if it can't be.
    """

    name: str
    state: bytes


@dataclass(frozen=True, kw_only=True)
class FitCheckpoint:
    """What a checkpoint holds.

    Attributes
    ----------
    run
        Of which run it is.
    order
        What fixes the order of rows, which must be the same where it is resumed: number of rows, batch size, batches of
        an epoch, shuffle, seed.
    configuration
        What training was begun with; see :mod:`dask_train.fitting.roles.configuration`.
    epoch, batch
        The next batch, as Keras counts.
    steps
        How many have been taken.
    shared
        The parts of the state that all ranks share, by name.
    own
        Of each rank its own parts, by name.
    history, epochs
        As in ``History``.
    read
        What was trained on so far, by which runs.
    rates, arrays, callbacks, metrics, steps_by_rank, progress, counted
        Of Keras models that earlier versions have kept, and now parts of ``shared`` and ``own``. With them ``shared``
        is the header of the model, taken apart, and ``own`` has a list of each worker's seeds and moving averages.
    """

    run: str
    order: dict[str, Any]
    configuration: dict[str, Any] = field(repr=False)
    epoch: int
    batch: int
    steps: int
    shared: dict[str, Any] = field(repr=False)
    history: dict[str, list[Any]]
    epochs: list[int]
    read: list[Read]
    rates: list[float | None] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list, repr=False)
    callbacks: list[CallbackState] = field(default_factory=list, repr=False)
    own: list[Any] = field(default_factory=list, repr=False)
    metrics: list[np.ndarray] = field(default_factory=list, repr=False)
    steps_by_rank: dict[int, int] = field(default_factory=dict)
    progress: list[dict[int, tuple[int, int]]] = field(default_factory=list)
    counted: dict[int, list[np.ndarray]] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The Keras model, taken apart."""
        return tuple(self.shared[MODEL]["parts"]) if MODEL in self.shared else (self.shared, self.arrays)

    @property
    def in_parts(self) -> dict[str, Any]:
        """Return the parts of the state that all ranks share, by name; also of formats with a Keras model alone."""
        return {MODEL: {"parts": [self.shared, self.arrays], "rates": self.rates}} if self.arrays else self.shared

    def check_parts(self, names: dict[str, list[str]]) -> None:
        """Check that it has the parts of a state, whose sorted names are those, by kind.

        Raises
        ------
        CheckpointError
            It has not.
        """
        if any(not isinstance(own, dict) for own in self.own):
            raise CheckpointError(
                "An earlier version of dask-train has written the checkpoint, which this one can't resume from.",
                change="Go on with that version, or pass checkpoint= another folder to begin anew.",
            )
        own = self.own[0] if self.own else dict.fromkeys(names["own"])
        there = {"shared": sorted(self.shared), "own": sorted(own)}
        if there != names:
            parts = [", ".join(each["shared"] + each["own"]) or "none" for each in (there, names)]
            raise CheckpointError(
                f"The checkpoint is of another kind of model: it holds {parts[0]}, and this one has {parts[1]}.",
                change="Pass the model of then, or checkpoint= another folder to begin anew.",
            )

    def write(self, folder: Path) -> None:
        """Write it into an empty local folder.

        Raises
        ------
        TypeError
            Something in it is of a kind that can't be stored, such as what a callback has put into the history.
        """
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        content["read"] = [
            (run, size, {rank: [astuple(stretch) for stretch in stretches] for rank, stretches in by_rank.items()})
            for run, size, by_rank in self.read
        ]
        store(folder, {"format": FORMAT, **content})

    @classmethod
    def load(cls, folder: Path) -> FitCheckpoint:
        """Return what :meth:`write` has written there.

        Raises
        ------
        CheckpointError
            It is no checkpoint of ``fit``, or one of a later version.
        """
        try:
            content = stored(folder)
            version = content.pop("format")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            names = ", ".join(sorted(file.name for file in folder.rglob("*") if file.is_file()))
            raise CheckpointError(
                f"The checkpoint, which has the files {names}, is none of dt.fit.",
                "It was made with dt.train, by other code, or, of boosted trees, by an earlier version of dask-train.",
                "Pass checkpoint= another folder.",
            ) from error
        if version > FORMAT:
            raise CheckpointError(
                f"The checkpoint has format {version} of dt.fit, and this dask-train reads up to {FORMAT}.",
                "A later version has written it.",
                "Install that version where the roles run, or pass checkpoint= another folder.",
            )
        if version < 4:
            content["shared"] = content.pop("header")
        content["callbacks"] = [CallbackState(*state) for state in content["callbacks"]]
        content["read"] = [
            (
                run,
                size,
                {rank: [BatchRange.of(stretch) for stretch in stretches] for rank, stretches in by_rank.items()},
            )
            for run, size, by_rank in content["read"]
        ]
        return cls(**content)
