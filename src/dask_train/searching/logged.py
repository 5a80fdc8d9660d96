"""A search as places of ``log=`` see it: a run, and a nested one for each of its trials."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

from dask_train.config import logging_timeout_s
from dask_train.logging.base import Ending, Logger, Start
from dask_train.logging.log import INTERRUPTED_S, Log
from dask_train.searching.best_model import saved, whole


class SearchLog:
    """Tells places of a search and its trials; only :meth:`end` waits.

    Parameters
    ----------
    loggers
        The places.
    name
        Of the study.
    params
        What the search was asked to do.
    timeout_s
        How long a place is tried at the end.
    """

    def __init__(self, loggers: Sequence[Logger], name: str, params: Mapping[str, Any], timeout_s: float) -> None:
        known_params = {name: value for name, value in params.items() if value is not None}
        self._log = Log(loggers, Start(run=name, params=known_params, time=time.time()), timeout_s)
        self._trials: set[int] = set()
        self._is_ended = False

    def begin(self, number: int, params: Mapping[str, Any]) -> None:
        """Begin a trial."""
        self._trials.add(number)
        self._log.begin_trial(number, f"trial-{number}", params)

    def write(self, number: int, scores: Mapping[str, Any]) -> None:
        """Write the scores that a trial has reported."""
        if number in self._trials:
            self._log.write([{**scores, "trial": number}], number)

    def trial_ended(self, number: int, state: str, *, params: Mapping[str, Any], value: float | None, why: str) -> None:
        """Note that a trial has ended, perhaps before it could begin."""
        if number not in self._trials:
            self.begin(number, params)
        self._trials.discard(number)
        status: Literal["finished", "failed", "stopped"] = (
            "failed" if state == "FAIL" else "stopped" if state == "PRUNED" else "finished"
        )
        values = {} if value is None else {"value": value}
        self._log.end(Ending(status=status, reason=why or state.lower(), time=time.time(), values=values), number)

    def end(self, failure: BaseException | None, best: tuple[int, float, Any] | None) -> None:
        """End the search, once: keep the best model, and write what is left, or give it up."""
        if self._is_ended:
            return
        self._is_ended = True
        failed: Literal["failed", "stopped"] = "stopped" if isinstance(failure, KeyboardInterrupt) else "failed"
        reason = "all trials have ended" if failure is None else f"{type(failure).__name__}: {failure}"
        values = {} if best is None else {"best_value": best[1], "best_trial": float(best[0])}
        status = "finished" if failure is None else failed
        for number in sorted(self._trials):  # they wait for a call that resumes
            self._log.end(Ending(status="stopped", reason="the search was cut short", time=time.time()), number)
        self._trials.clear()
        self._log.end(Ending(status=status, reason=reason, time=time.time(), values=values))
        if best is not None and failure is None:
            model = None
            with suppress(Exception):  # `saved` makes it as well, and the log reports why it can't be made
                model = whole(best[2])
            self._log.deliver(lambda folder: [saved(best[2], folder)], model)
        self._log.wait_until_written(INTERRUPTED_S if failed == "stopped" else None)


@contextmanager
def search_log(loggers: Sequence[Logger], name: str, params: Mapping[str, Any]) -> Iterator[SearchLog | None]:
    """Give the log of a search, tried at its end for ``train.logging.timeout``; None if it is logged nowhere.

    The search ends its log. If it can't begin, that is how it ends there.
    """
    if not loggers:
        yield None
        return
    log = SearchLog(loggers, name, params, logging_timeout_s())
    try:
        yield log
    except BaseException as error:
        log.end(error, None)
        raise
