"""A parameter server: holds weights and the user's optimizer, takes gradients as they come, gives weights."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from dask_train.agreement.dialling import listeners
from dask_train.agreement.layout import Slot
from dask_train.agreement.lines import Line, Listener
from dask_train.errors import LaunchError
from dask_train.fit_roles.backends import Backend, backend_of
from dask_train.fit_roles.models import build, made
from dask_train.fit_roles.shards import shards_of, slot_of
from dask_train.fit_roles.task import FitTask
from dask_train.fit_roles.weights import scale_of, statistics_of, value_of
from dask_train.session import Session


def serve_parameters(task: FitTask, session: Session) -> None:
    """Serve until the run ends."""
    server = ParameterServer(task, session, backend_of(keras.backend.backend()))
    try:
        session.wait_until_stopped()
        server.wait_until_alone(_LINGER_S)
    finally:
        server.close()


# How long a server that is to stop serves those who still end; the run's own deadline is mostly shorter.
_LINGER_S = 30.0


class ParameterServer:
    """One of them; a thread for each worker that has dialled, one at a time in what changes weights.

    Notes
    -----
    A worker's steps are numbered, and one that was applied is not applied again: a worker that takes another's place
    goes on after the last one. What workers have counted, rows and metrics, is added up here under the same lock, so
    counts are exact.
    """

    def __init__(self, task: FitTask, session: Session, backend: Backend) -> None:
        self._session, self._patience_s = session, task.patience_s
        self._model = model = made(task.header, task.arrays)
        build(model, task.layout, ())
        shard = shards_of(model, session.size)[session.rank]
        self._weights = [model.trainable_variables[place] for place in shard.weights]
        self._slots = [model.optimizer.variables[place] for place in shard.slots]
        self._backend = backend
        self._lock = threading.Lock()
        self._hung_up = threading.Condition()
        self._num_lines = 0
        self._ready = threading.Event()
        self._steps: dict[int, int] = {}  # by worker
        self._counted: dict[int, list[np.ndarray]] = {}  # by epoch
        self._statistics: dict[int, list[np.ndarray]] = {}  # by worker
        self._first_statistics = [value_of(variable) for variable in statistics_of(model)]
        self._ended: set[int] = set()
        self._num_applied = 0
        self._remembered: Any = None
        self._slot: Slot = slot_of(model, shard)
        self._listeners = listeners(session.peers["ps"][session.rank], self._slot, task.credentials(session))
        for listener in self._listeners:
            threading.Thread(target=self._listen, args=(listener,), name="dask-train-lines", daemon=True).start()

    def wait_until_alone(self, timeout_s: float) -> None:
        """Until every worker has hung up, or that long."""
        with self._hung_up:
            self._hung_up.wait_for(lambda: not self._num_lines, timeout_s)

    def close(self) -> None:
        """Answer no more."""
        for listener in self._listeners:
            listener.close()

    def _listen(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:  # closed
                return
            work = partial(self._answer, listener, connection)
            threading.Thread(target=work, name="dask-train-line", daemon=True).start()

    def _answer(self, listener: Listener, connection: socket.socket) -> None:
        try:
            line = listener.answer(connection)
        except (EOFError, OSError, LaunchError):  # it has gone, or has no business here
            connection.close()
            return
        with self._hung_up:
            self._num_lines += 1
        self._serve(line)

    def _serve(self, line: Line) -> None:
        apply: Callable[[], None] | None = None
        gradients = line.into[: len(self._weights)]
        try:
            while True:
                order, told = line.receive(None)
                if order == "step" and told["gradients"] and apply is None:
                    apply = self._backend.applying(self._model.optimizer, self._weights, gradients)
                line.send(getattr(self, f"_on_{order}")(line, apply, **told))
        except (EOFError, OSError):  # the worker has ended
            return
        finally:
            line.close()
            with self._hung_up:
                self._num_lines -= 1
                self._hung_up.notify_all()

    # What workers ask; each is called with the line, and what applies its gradients

    def _on_begin(self, line: Line, _: Any, *, rank: int) -> dict[str, Any]:
        """A worker begins: with the steps that are known of it; the first one may have to bring the weights."""
        if rank != 0 and not self._ready.wait(self._patience_s):
            return {"ready": False, "steps": 0, "remembered": None}
        if self._ready.is_set():
            with self._lock:
                self._give_weights(line)
        return {
            "ready": self._ready.is_set(),
            "steps": self._steps.get(rank, 0),
            "remembered": self._remembered if rank == 0 else None,
        }

    def _on_remember(self, _line: Line, _: Any, *, value: Any) -> None:
        """What the first worker would take with it."""
        self._remembered = value

    def _on_bring(self, line: Line, _: Any, *, steps: dict[int, int], counted: dict[int, list[np.ndarray]]) -> None:
        """Weights, optimizer and counts to begin with."""
        with self._lock:
            self._take(line, everything=True)
            self._steps, self._counted = dict(steps), dict(counted)
            self._ready.set()

    def _on_step(  # noqa: PLR0913 - what servers.step tells
        self,
        line: Line,
        apply: Callable[[], None] | None,
        *,
        rank: int,
        steps: int,
        gradients: bool,
        rate: float | None,
        scale: float | None,
        counted: tuple[int, list[np.ndarray]] | None,
        statistics: bool,
    ) -> dict[str, Any]:
        """Gradients of a worker's next step, if it had rows; the new weights go back."""
        with self._lock:
            if rate is not None:
                self._model.optimizer.learning_rate = rate
            if steps > self._steps.get(rank, 0):
                if gradients:
                    assert apply is not None
                    self._rescale(line, scale)
                    apply()
                    self._num_applied += 1
                self._steps[rank] = steps
                if counted is not None:
                    self._count(*counted)
                if statistics:
                    self._statistics[rank] = [array.copy() for array in line.into[self._after_slots :]]
            self._give_weights(line)
            self._session.should_stop()  # tells the run that this goes on
            return {
                "applied": self._num_applied,
                "counted": None if counted is None else self._counted[counted[0]],
                "scale": scale_of(self._model.optimizer),
            }

    def _on_weights(self, line: Line, _: Any, *, statistics: bool) -> dict[str, Any]:
        """Weights as they are now; moving averages, too, as means over the workers."""
        if not self._ready.wait(self._patience_s):
            return {"applied": -1, "ended": 0}
        with self._lock:
            self._give_weights(line)
            if statistics:
                self._give_statistics(line)
            return {"applied": self._num_applied, "ended": len(self._ended)}

    def _on_set_weights(self, line: Line, _: Any) -> None:
        """Weights that a callback has set."""
        with self._lock:
            self._take(line, everything=False)

    def _on_everything(self, line: Line, _: Any) -> dict[str, Any]:
        """All that a checkpoint holds, of one moment."""
        with self._lock:
            self._give_weights(line)
            line.put(len(self._weights), map(value_of, self._slots))
            self._give_statistics(line)
            counted = {epoch: [array.copy() for array in arrays] for epoch, arrays in self._counted.items()}
            return {"steps": dict(self._steps), "counted": counted, "applied": self._num_applied}

    def _on_end(self, _line: Line, _: Any, *, rank: int) -> None:
        """A worker has gone through all of its batches."""
        with self._lock:
            self._ended.add(rank)

    # With the lock held

    @property
    def _after_slots(self) -> int:
        return len(self._weights) + len(self._slots)

    def _count(self, epoch: int, arrays: list[np.ndarray]) -> None:
        known = self._counted.get(epoch)
        self._counted[epoch] = arrays if known is None else [a + b for a, b in zip(known, arrays, strict=True)]

    def _rescale(self, line: Line, scale: float | None) -> None:
        """Gradients of a loss that was scaled otherwise than the next one is to be: another worker came between."""
        now = scale_of(self._model.optimizer)
        if now is not None and scale is not None and now != scale:
            with np.errstate(over="ignore"):  # infinity is seen, and lowers the scale
                for gradient in line.into[: len(self._weights)]:
                    np.multiply(gradient, now / scale, out=gradient)

    def _give_weights(self, line: Line) -> None:
        line.put(0, map(value_of, self._weights))

    def _give_statistics(self, line: Line) -> None:
        told = list(self._statistics.values())
        means = [np.mean(arrays, axis=0) for arrays in zip(*told, strict=True)] if told else self._first_statistics
        line.put(self._after_slots, means)

    def _take(self, line: Line, *, everything: bool) -> None:
        variables = [*self._weights, *(self._slots if everything else [])]
        for variable, array in zip(variables, line.into, strict=False):
            variable.assign(keras.ops.cast(np.array(array), variable.dtype))
        if everything:
            self._first_statistics = [array.copy() for array in line.into[self._after_slots :]]
