"""The trials of a search with Optuna, trained until there are none left, and what is told in the end."""

from __future__ import annotations

from collections.abc import Sequence

from dask_train.driver.result import leave_result
from dask_train.errors import RoleFailedError
from dask_train.input_errors import warn_at_the_call
from dask_train.report.search_progress import SearchDisplay
from dask_train.searching.pool import PoolSlot, Slots
from dask_train.searching.result import SearchResult
from dask_train.searching.trials import Trials


def trained(slots: Slots, trials: Trials, display: SearchDisplay) -> SearchResult:
    """Train all trials, and show how it goes.

    Raises
    ------
    RoleFailedError
        All of them have failed.
    KeyboardInterrupt, DaskTrainError
        As the slots raise it, with what was found so far as ``result``.
    """

    def show(now: Sequence[PoolSlot]) -> None:
        display.update(trials.ended, [slot.handed for slot in now if slot.handed], trials.best_ended)

    failure: BaseException | None = None
    try:
        with display:
            slots.train(show)
    except BaseException as error:
        failure = error
        interrupted = isinstance(error, KeyboardInterrupt)
        trials.cut_short("It was interrupted." if interrupted else f"The search ended: {error}")
        leave_result(error, SearchResult(trials))
        raise
    finally:
        trials.close()
        if trials.log is not None:
            trials.log.end(failure, trials.best)
    failed = [ended for ended in trials.ended if ended.state == "FAIL"]
    if failed and len(failed) == len(trials.ended):
        all_failed = RoleFailedError(
            f"All {len(failed)} trials have failed. Trial {failed[0].number}: {failed[0].error}"
        )
        if failed[0].traceback:
            all_failed.add_note(f"Traceback of trial {failed[0].number}:\n{failed[0].traceback.rstrip()}")
        raise all_failed
    for message, number in trials.warnings.items():
        warn_at_the_call(f"Trial {number}: {message}")
    return SearchResult(trials)
