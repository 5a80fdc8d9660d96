"""The checkpoints of one trial, in the role that keeps them: those of an earlier start are gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dask_train.checkpoint.folder import CheckpointFolder
from dask_train.checkpoint.manifest import LoadedCheckpoint
from dask_train.checkpoint.place import CheckpointPlace
from dask_train.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class GoneOnWith:
    """A checkpoint of an earlier start of the trial, which has been copied into the folder of this one.

    Attributes
    ----------
    folder
        A local one with its files.
    scores
        The metric after each epoch, by its number.
    best_epoch, best
        The best epoch whose model is kept, and what was trained after it, by the names of parts of the state; None if
        there is none. An epoch after which callbacks have set other weights than were scored may have a better score.
    """

    folder: Path
    scores: dict[int, float]
    best_epoch: int | None
    best: dict[str, Any] | None


def brought_over(
    earlier: Sequence[str], place: CheckpointPlace, own: CheckpointFolder, scratch: Path
) -> tuple[GoneOnWith | None, list[str]]:
    """Return what the trial resumes from, of its latest start that has any, and a text about that.

    Parameters
    ----------
    earlier
        Where these have kept theirs.
    place
        Where this one does.
    own
        The folder there.
    scratch
        For local copies.
    """
    notices: list[str] = []
    for url in reversed(earlier):
        folder = CheckpointFolder(replace(place, url=url))
        try:
            last = folder.load(scratch / "earlier")
            best = None if last is None else folder.load_best(scratch / "best")
        except CheckpointError as error:
            notices.append(str(error))
            continue
        if last is None:
            continue
        notices += [last.notice] if last.notice else []
        assert place.best is not None
        if best is not None and folder.best is not None:
            own.save(_copied(best), scratch, score=folder.best.score)
        own.save(_copied(last), scratch)  # the last one counts, also where it is the best one as well
        return _read(last, best, place.best), notices
    return None, notices


def _read(last: LoadedCheckpoint, best: LoadedCheckpoint | None, metric: str) -> GoneOnWith:
    from dask_train.trainers.common.fit_checkpoint import FitCheckpoint

    checkpoint = FitCheckpoint.load(last.folder)
    model = None if best is None else FitCheckpoint.load(best.folder)
    return GoneOnWith(
        folder=last.folder,
        scores=dict(zip(checkpoint.epochs, map(float, checkpoint.history.get(metric, [])), strict=False)),
        best_epoch=None if model is None else model.epoch - 1,
        best=None if model is None else model.shared,
    )


def _copied(loaded: LoadedCheckpoint) -> Any:
    return lambda folder: shutil.copytree(loaded.folder, folder, dirs_exist_ok=True)
