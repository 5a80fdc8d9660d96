"""What ``fit`` shows while it waits."""

from __future__ import annotations

from typing import Any

from dask_train.report.fit_progress import EpochLines, FitDisplay


def display_of(verbose: str | int, epochs: int, progress: bool | None, **settings: Any) -> FitDisplay | EpochLines:
    """How a run of ``fit`` is shown; lines are not drawn anew, so the settings of a display are not for them."""
    if verbose == 2 and progress:
        return EpochLines(epochs=epochs)
    return FitDisplay(progress, epochs=epochs, **settings)
