"""Run the trials of a study until none are left, and make its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from dask_train.driver.result import leave_result
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.pool import PoolSlot, Slots
from dask_train.searching.study import Study

S = TypeVar("S", bound=Study)
R = TypeVar("R")


def trained(slots: Slots, study: S, display: SearchDisplay, result_of: Callable[[S], R]) -> R:
    """Train all trials, and show how it goes.

    Raises
    ------
    RoleFailedError
        All of them have failed.
    CheckpointError
        The search can't be kept.
    KeyboardInterrupt, DaskTrainError
        As the slots raise it, with what was found so far as ``result``.
    """

    def show(now: Sequence[PoolSlot]) -> None:
        display.update(study.ended, [slot.handed for slot in now if slot.handed], study.best_ended)

    failure: BaseException | None = None
    try:
        with display:
            slots.train(show)
        study.end()
    except BaseException as error:
        failure = error
        interrupted = isinstance(error, KeyboardInterrupt)
        study.cut_short("It was interrupted." if interrupted else f"The search ended: {error}")
        leave_result(error, result_of(study))
        raise
    finally:
        study.close()
        if study.log is not None:
            study.log.end(failure, study.best)
    study.warn()
    return result_of(study)
