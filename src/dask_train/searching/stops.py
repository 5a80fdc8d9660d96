"""What follows when a sampler of Optuna has nothing more to suggest: it calls ``study.stop``, meant for ``optimize``.

Several searches may train trials of one study at the same time, in threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_LOCK = threading.Lock()


class _Stops(list[Callable[[], None]]):
    """In place of a study's ``stop``: what a sampler says is true for all searches of the study."""

    def __call__(self) -> None:
        with _LOCK:
            stops = list(self)
        for stop in stops:
            stop()


def follow_stop(study: Any, stop: Callable[[], None]) -> None:
    """Have a function called when a sampler stops the study, in place of Optuna's own."""
    with _LOCK:
        if not isinstance(vars(study).get("stop"), _Stops):
            study.stop = _Stops()
        study.stop.append(stop)


def leave_stop(study: Any, stop: Callable[[], None]) -> None:
    """Follow no more, if it is followed; without any function the study is as it was made."""
    with _LOCK:
        stops = vars(study).get("stop")
        if not isinstance(stops, _Stops) or stop not in stops:
            return
        stops.remove(stop)
        if not stops:
            del study.stop
