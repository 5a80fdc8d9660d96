"""What a checkpoint of ``fit`` holds, and how it is stored: as values and arrays, without a class of ours by name."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from dask_train.checkpoint.stored import store, stored
from dask_train.data.account import BatchRange
from dask_train.errors import CheckpointError
from dask_train.trainers.common.outcome import Read

# Raised when what is stored means something else than before.
FORMAT = 5
# The part of the state that a Keras model is, with its optimizers: see ``fitting/roles/loop.py``.
MODEL = "model"
# Of a Keras model that was taken apart: what it takes to make one, which is known where training resumes.
MAKING = ("config", "compilations", "custom_objects")


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
    judged_by
        The score by which the best checkpoint is known; None if it is not to be known.
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
    own: list[dict[str, Any]] = field(default_factory=list, repr=False)
    judged_by: str | None = None

    def check_parts(self, names: dict[str, list[str]]) -> None:
        """Check that it has the parts of a state, whose sorted names are those, by kind.

        Raises
        ------
        CheckpointError
            It has not.
        """
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
            It is no checkpoint of ``fit``, or one of another version.
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
        if version != FORMAT:
            raise CheckpointError(
                f"The checkpoint has format {version} of dt.fit, and this dask-train reads {FORMAT}.",
                f"{'A later' if version > FORMAT else 'An earlier'} version has written it.",
                "Install that version where the roles run, or pass checkpoint= another folder.",
            )
        content["read"] = [
            (
                run,
                size,
                {rank: [BatchRange.of(stretch) for stretch in stretches] for rank, stretches in by_rank.items()},
            )
            for run, size, by_rank in content["read"]
        ]
        return cls(**content)
