"""The number of Dask workers that an adaptive cluster is asked for: that of tasks, or of runs if they want more."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .placement import Capacity
from .placement_queue import WORKER, PlacementQueue, PlacementRequest
from .runs import KnownRun

# The operation by which an adaptive cluster asks the scheduler, once a second by default.
_OPERATION = "adaptive_target"
# The module of the page by which others ask, such as Dask's operator for Kubernetes.
_API = "distributed.http.scheduler.api"
# A cluster that has not asked for so long is not adaptive any more.
_ASKS_S = 30.0


class AdaptiveTarget:
    """Answers adaptive clusters in the scheduler's place: its own number, or the one that runs want if it is larger.

    Parameters
    ----------
    scheduler
        Dask's scheduler. Its handler and its method ``adaptive_target`` are replaced.
    placement_queue
        The requests of runs that wait, and the places of those that train.
    clock
        Tells seconds.
    """

    def __init__(
        self, scheduler: Any, placement_queue: PlacementQueue, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._scheduler = scheduler
        self._queue = placement_queue
        self._clock = clock
        self._asked = float("-inf")
        self._of_tasks = scheduler.handlers[_OPERATION]
        scheduler.handlers[_OPERATION] = self.answer
        scheduler.adaptive_target = self.answer_page
        placement_queue.is_adaptive = self.is_asked

    def is_asked(self) -> bool:
        """Return whether a cluster has asked of late, and so is adaptive."""
        return self._clock() - self._asked < _ASKS_S

    def answer(self, target_duration: Any = None) -> int:
        """Return how many Dask workers the cluster is to have.

        Runs want no more than one for each role, beside those that tasks want. So a cluster whose new Dask workers are
        of no use, as others lock them at once, does not grow for ever.
        """
        self._asked = self._clock()
        return self._wanted(target_duration)

    def answer_page(self, target_duration: Any = None) -> int:
        """Return the same for a page of the scheduler; of these, metrics and counts only show it to people."""
        asker = inspect.currentframe()
        asker = asker.f_back if asker is not None else None
        is_cluster = asker is not None and asker.f_globals.get("__name__") == _API
        return self.answer(target_duration) if is_cluster else self._wanted(target_duration)

    def _wanted(self, target_duration: Any) -> int:
        of_tasks = int(self._of_tasks(target_duration=target_duration))
        return max(of_tasks, min(self.of_runs(), of_tasks + self._num_roles()))

    def of_runs(self) -> int:
        """Return how many Dask workers runs want, those that are there included; 0 if none wants another one.

        A run that waits wants a thread for each of its roles, and one whose number of workers follows the Dask workers
        wants as many as it may have. If it follows those of its host, it draws others only while all are there. Runs
        that name their Dask workers want no others.
        """
        waiting = [request for request in self._queue.waiting if request.on is None and not request.host]
        num_more = self._missing(waiting)
        wanted = bool(waiting)
        for run in self._queue.runs.by_id.values() if not self._queue.waiting else ():
            num_left = self._left_to_grow(run)
            wanted = wanted or num_left is not None
            num_more += num_left or 0
        return len(self._scheduler.workers) + num_more if wanted else 0

    def _missing(self, requests: Sequence[PlacementRequest]) -> int:
        """Return how many Dask workers like those that are there are missing for these requests."""
        workers = self._queue.capacities(None) if requests else []
        open_workers = [replace(worker, resources=dict(worker.resources)) for worker in workers if not worker.why_not]
        share = 0.0  # of a Dask worker
        for request in requests:
            for (_, need), needs_device in zip(request.roles, request.with_device, strict=True):
                has_room = (each for each in open_workers if each.used < each.threads and each.provides(need))
                if (worker := next(has_room, None)) is not None:
                    worker.used += 1
                    for name, amount in need.items():
                        worker.resources[name] = worker.resources.get(name, 0.0) - amount
                else:
                    share += 1.0 if needs_device else 1.0 / _places_each(workers, need)
        return math.ceil(share - 1e-9)

    def _num_roles(self) -> int:
        """Return how many roles runs have, wait for, or may come to have."""
        runs = self._queue.runs.by_id.values()
        num_placed = sum(max(len(run.places), int(run.summary.get("most_workers", 0))) for run in runs)
        return num_placed + sum(len(request.roles) for request in self._queue.waiting)

    def _left_to_grow(self, run: KnownRun) -> int | None:
        """Return how many Dask workers a run could use that are yet to come; None if it wants no other one."""
        most = int(run.summary.get("most_workers", 0))
        needs = [need for (role, _), (_, need) in run.places.items() if role == WORKER]
        hosts = {worker.host for worker in self._scheduler.workers.values()}
        if not 0 < len(needs) < most or (run.follows and len(hosts) != 1):
            return None
        return max(0, most - self._queue.num_places(run, needs[0], None, on_one_host=run.follows))


def _places_each(workers: Sequence[Capacity], need: dict[str, float]) -> float:
    """Return how many such roles one of these Dask workers carries on average; one where there is none yet."""
    places = [_places(worker, need) for worker in workers if worker.declares(need)]
    return max(1.0, sum(places) / len(places)) if places else 1.0


def _places(worker: Capacity, need: dict[str, float]) -> int:
    """Return how many roles with such needs fit on an idle Dask worker."""
    shares = [worker.declared[name] / amount for name, amount in need.items() if amount > 0]
    return int(min([float(worker.threads), *shares]))
