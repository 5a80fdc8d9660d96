"""A parameter server: holds weights and the user's optimizer, takes gradients as they come, gives weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from dask_train.fitting.backends import Backend, backend_of
from dask_train.fitting.roles.answering import Answering
from dask_train.fitting.roles.models import build
from dask_train.fitting.roles.servers import Gradient, Progress
from dask_train.fitting.roles.shards import columns_of, shards_of, slot_of
from dask_train.fitting.roles.weights import scale_of, value_of
from dask_train.fitting.roles.worker_counts import WorkerCounts
from dask_train.fitting.spec import FitTask
from dask_train.keras_models import state
from dask_train.keras_models.serialization import parts_to_model
from dask_train.role.session import Session
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import Channel
from dask_train.transport.dialling import receptions


def serve_parameters(task: FitTask, session: Session) -> None:
    """Serve until the run ends."""
    server = ParameterServer(task, session, backend_of(keras.backend.backend()))
    try:
        session.wait_until_stopped()
        server.wait_until_alone(_LINGER_S)
    finally:
        server.close()


# How long a server that is to stop serves workers that still end; the run's own deadline is mostly shorter.
_LINGER_S = 30.0


@dataclass
class Caller:
    """A worker that has dialled.

    Attributes
    ----------
    line
        To it.
    applying
        By optimizer, numbers of its variables on the line, and which of them get slices: what applies gradients.
    """

    line: Channel
    applying: dict[Any, Callable[[Sequence[Gradient]], None]] = field(default_factory=dict)


class ParameterServer(Answering):
    """A parameter server; a thread for each worker that has dialled, one at a time in what changes weights.

    Notes
    -----
    A worker's steps are numbered, as are the calls of optimizers in each, and one that was applied is not applied
    again: a worker that takes another's place continues after the last one. What workers have counted, rows and
    metrics, is added up here under the same lock, so counts are exact.
    """

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        super().__init__()
        model = parts_to_model(task.header, task.arrays)
        build(model, task.columns)
        shard = shards_of(model, session.size)[session.rank]
        self._optimizers = [optimizer for optimizer, _ in state.held_optimizers(model)]
        columns = columns_of(model, shard)
        self._num_weights, self._after_slots = len(shard.weights), len(shard.weights) + len(shard.slots)
        self._variables = columns[: self._after_slots]  # weights, then what optimizers keep
        self._backend = backend
        self._lock = threading.Lock()
        self._moved = threading.Condition(self._lock)  # a step was counted, or a worker has ended
        self._ready = threading.Event()
        self._progress: Progress = {}
        self._counted: dict[int, list[np.ndarray]] = {}  # by epoch
        self._statistics: dict[int, list[np.ndarray]] = {}  # by worker
        self._first_statistics = [value_of(variable) for variable in columns[self._after_slots :]]
        self._ended: set[int] = set()
        self._stop = False
        self._counts = WorkerCounts(())  # known when the first worker has brought its weights; in the first server
        self._others: list[np.ndarray] = []
        self._version = 0  # of these
        self._num_steps = 0
        self._remembered: Any = None
        self._slot: ArraySlot = slot_of(model, shard)
        self.answer(receptions(session.peers["ps"][session.rank], self._slot, task.credentials(session)))

    def caller_of(self, line: Channel) -> Caller:
        """Return what is known of a worker that has connected."""
        return Caller(line)

    # What workers ask

    def _on_begin(self, caller: Caller, *, rank: int, wait_s: float) -> dict[str, Any]:
        """Begin with a worker, at the steps that are known of it; the first one may have to bring the weights."""
        if rank != 0:
            self._ready.wait(wait_s)
        with self._lock:
            self._ended.discard(rank)
            if self._ready.is_set():
                self._give_weights(caller.line)
                self._give_statistics(caller.line)
            return {
                "ready": self._ready.is_set(),
                "steps": self._progress_of(rank)[0],
                "remembered": self._remembered if rank == 0 else None,
                "version": self._version,
                "counts": self._counts,
            }

    def _on_remember(self, _: Caller, *, value: Any) -> None:
        """Keep what would be lost with the first worker."""
        self._remembered = value

    def _on_bring(
        self,
        caller: Caller,
        *,
        progress: Progress,
        counted: dict[int, list[np.ndarray]],
        counts: WorkerCounts,
        num_steps: int,
    ) -> None:
        """Weights, optimizer and counts to begin with."""
        with self._lock:
            self._take(caller.line, range(len(caller.line.into)))
            self._give_weights(caller.line)
            self._progress, self._counted, self._counts = dict(progress), dict(counted), counts
            self._num_steps = num_steps  # scores of a later attempt are told from earlier ones by it
            self._ready.set()

    def _on_share(self, _: Caller, *, first: int, workers: int) -> dict[str, Any]:
        """Let that many workers share the batches from a step on, unless a worker may have begun it.

        A worker that has reported ``n`` steps may have begun the step of number ``n``. It hears of the change with the
        answer to that step, which it reports before it begins the next. A worker that joins may be about to begin with
        the step of the last change, so that one stays.
        """
        with self._moved:
            reached = max([self._counts.changes[-1][0], *(steps for steps, _ in self._progress.values())])
            if accepted := reached < first:
                self._counts = self._counts.then(first, workers)
                self._moved.notify_all()
            return {"accepted": accepted, "reached": reached, "counts": self._counts}

    def _on_counts(self, _: Caller, *, known: WorkerCounts, wait_s: float) -> WorkerCounts:
        """Return how many workers share the batches, as soon as that is not what is known."""
        with self._moved:
            self._moved.wait_for(lambda: self._counts != known, wait_s)
            return self._counts

    def _on_skip(self, _: Caller, *, rank: int, steps: int) -> None:
        """Let a worker continue after that many steps, as it has no share of those that it has not taken."""
        with self._lock:
            if steps > self._progress_of(rank)[0]:
                self._progress[rank] = (steps, 0)

    def _on_apply(
        self,
        caller: Caller,
        *,
        rank: int,
        steps: int,
        index: int,
        optimizer: int,
        places: tuple[int, ...],
        slices: dict[int, Gradient],
        scale: float | None,
    ) -> None:
        """Gradients for an optimizer, those of embeddings as ``slices`` of their tables; the new weights go back."""
        with self._lock:
            done, calls = self._progress_of(rank)
            if (steps, index) == (done + 1, calls):
                arrays = [slices[place][1] if place in slices else caller.line.into[place] for place in places]
                self._rescale(arrays, self._optimizers[optimizer], scale)
                self._apply(caller, optimizer, places, slices)
                self._progress[rank] = (done, calls + 1)
            self._give_weights(caller.line, places)

    def _on_step(
        self,
        caller: Caller,
        *,
        rank: int,
        steps: int,
        counted: tuple[int, list[np.ndarray] | None],
        statistics: bool,
        weights: bool,
    ) -> dict[str, Any]:
        """End a worker's next step, of an epoch, and what its rows have counted, if any; return all that is counted."""
        epoch, counts = counted
        with self._lock:
            if steps > self._progress_of(rank)[0]:
                self._progress[rank] = (steps, 0)
                if counts is not None:
                    self._count(epoch, counts)
                    self._num_steps += 1
                    self._moved.notify_all()
                if statistics:
                    self._statistics[rank] = [array.copy() for array in caller.line.into[self._after_slots :]]
                if self._counts.changes and rank >= self._counts.at(steps):  # it leaves: the others' means go on
                    self._statistics.pop(rank, None)
            if weights:
                self._give_weights(caller.line)
            return {
                "counted": self._counted.get(epoch),  # of all workers: this one's last batch may have had no rows
                "scales": [scale_of(optimizer) for optimizer in self._optimizers],
                "stop": self._stop,
                "version": self._version,
                "counts": self._counts,
            }

    def _on_weights(self, caller: Caller, *, seen: int, wait_s: float) -> dict[str, Any]:
        """Weights as they are now, and moving averages as means over the workers; after another step than was seen."""
        if not self._ready.wait(wait_s):
            return {"steps": -1, "version": 0}
        with self._moved:
            self._moved.wait_for(lambda: self._num_steps != seen, wait_s)
            self._give_weights(caller.line)
            self._give_statistics(caller.line)
            return {"steps": self._num_steps, "version": self._version}

    def _on_set(self, caller: Caller, *, places: Sequence[int]) -> None:
        """Take over what a callback has set; of weights these go back, as they are then.

        Others stay on the line as the worker's model has them: it checks that its steps leave alone what it was given.
        """
        with self._lock:
            self._take(caller.line, places)
            self._give_weights(caller.line, [place for place in places if place < self._num_weights])

    def _on_set_others(self, _: Caller, *, values: list[np.ndarray]) -> None:
        """Take over what a callback has set that no server has."""
        with self._lock:
            self._others, self._version = values, self._version + 1

    def _on_others(self, _: Caller) -> dict[str, Any]:
        """Give what a callback has set that no server has to the other workers."""
        with self._lock:
            return {"values": self._others, "version": self._version}

    def _on_everything(self, caller: Caller) -> dict[str, Any]:
        """Return all that a checkpoint holds, of one moment."""
        with self._lock:
            caller.line.put(0, map(value_of, self._variables))
            self._give_statistics(caller.line)
            counted = {epoch: list(map(np.array, arrays)) for epoch, arrays in self._counted.items()}
            return {"progress": dict(self._progress), "counted": counted, "num_steps": self._num_steps}

    def _on_end(self, _: Caller, *, rank: int, stop: bool) -> None:
        """Note that a worker has gone through its batches, or that the first one's callbacks end training."""
        with self._lock:
            self._ended.add(rank)
            self._stop = self._stop or stop
            self._moved.notify_all()

    def _on_ended(self, _: Caller, *, known: set[int], wait_s: float) -> dict[str, Any]:
        """Return which workers have, and how far the others are; as soon as others have than are known."""
        with self._moved:
            self._moved.wait_for(lambda: self._ended != known, wait_s)
            return {"ended": set(self._ended), "steps": {rank: steps for rank, (steps, _) in self._progress.items()}}

    # With the lock held

    def _progress_of(self, rank: int) -> tuple[int, int]:
        return self._progress.get(rank, (0, 0))

    def _apply(self, caller: Caller, number: int, places: tuple[int, ...], slices: dict[int, Gradient]) -> None:
        key = (number, places, tuple(slices))
        if key not in caller.applying:
            caller.applying[key] = self._backend.applying(
                self._optimizers[number],
                [self._variables[place] for place in places],
                [None if place in slices else caller.line.into[place] for place in places],
            )
        caller.applying[key]([slices[place] for place in places if place in slices])

    def _count(self, epoch: int, arrays: list[np.ndarray]) -> None:
        known = self._counted.get(epoch)
        self._counted[epoch] = arrays if known is None else [a + b for a, b in zip(known, arrays, strict=True)]

    def _rescale(self, gradients: Sequence[np.ndarray], optimizer: Any, scale: float | None) -> None:
        """Gradients of a loss that was scaled otherwise than the next one is to be: another worker came between."""
        now = scale_of(optimizer)
        if now is not None and scale is not None and now != scale:
            with np.errstate(over="ignore"):  # infinity is seen, and lowers the scale
                for gradient in gradients:
                    np.multiply(gradient, now / scale, out=gradient)

    def _give_weights(self, line: Channel, places: Sequence[int] | None = None) -> None:
        for place in range(self._num_weights) if places is None else places:
            line.put(place, [value_of(self._variables[place])])

    def _give_statistics(self, line: Channel) -> None:
        statistics = list(self._statistics.values())
        means = (
            [np.mean(arrays, axis=0) for arrays in zip(*statistics, strict=True)]
            if statistics
            else self._first_statistics
        )
        line.put(self._after_slots, means)

    def _take(self, line: Channel, places: Sequence[int]) -> None:
        """Take over what has come in these places; moving averages are then those of all workers."""
        for place in places:
            if place < self._after_slots:
                variable = self._variables[place]
                variable.assign(keras.ops.cast(np.array(line.into[place]), variable.dtype))
            else:
                number, value = place - self._after_slots, line.into[place].copy()
                for known in (self._first_statistics, *self._statistics.values()):
                    known[number] = value
