"""What a model process does: opens a model, then answers its Dask worker's tasks, one after another.

Rows come and go in shared memory that the Dask worker owns; over the socket go only small messages.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_train.data.text import unpacked
from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.predicting.server.messages import Answered, Ask, Beat, ModelMessage, ModelOpened, Open, Raised
from dask_train.predicting.server.runners import Runner, load_runner
from dask_train.predicting.server.values import views
from dask_train.role.main import error_fields
from dask_train.transport.frames import messages_from, send

# How often progress is reported: a process that says nothing for a minute or more has stalled.
BEAT_S = 0.5


def serve(end: int) -> None:
    """Answer over the socket ``end`` until it is closed; never returns."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    server = _Server(socket.socket(fileno=end))
    for message in messages_from(server.end):
        _OBEYED[type(message)](server, message)
    os._exit(0)  # the Dask worker is gone, or needs this process no more


class _Server:
    """A model, and this process's end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._beat_at = 0.0
        self._runner: Runner
        self._slots: list[tuple[_ModelMemory, _ModelMemory]] = []

    def open(self, order: Open) -> None:
        try:
            arrays, *slots = order.data.descriptors
            self._slots = [
                (_ModelMemory(rows), _ModelMemory(out)) for rows, out in zip(slots[::2], slots[1::2], strict=True)
            ]
            order.settings.apply()  # before code of the user's is imported
            with without_startup_noise():
                self._runner = load_runner(order.kind, order.header, _mapped(arrays, order), order.num_threads)
        except BaseException as error:  # also SystemExit of a module that the model needs
            self._say(Raised(**error_fields(error)))
            os._exit(1)
        self._say(ModelOpened())

    def answer(self, request: Ask) -> None:
        try:
            answer: ModelMessage = self._answer(request)
        except Exception as error:
            answer = Raised(**error_fields(error))
        self._say(answer)

    def _answer(self, request: Ask) -> Answered:
        call, num_rows = request.call, request.num_rows
        rows, out = self._slots[request.slot]
        columns = [
            unpacked(view, np.arange(num_rows), column.row_shape) if column.is_text else view
            for column, view in zip(call.columns, rows.views(call.columns, num_rows, request.text_sizes), strict=True)
        ]
        if call.verb != "predict":
            count = self._runner.evaluate if call.verb == "evaluate" else self._runner.logs
            return Answered(counted=count(call, columns, self._beat))
        self._runner.predict(call, columns, out.views(call.outputs, num_rows), self._beat)
        return Answered()

    def _beat(self) -> None:
        """Report that a batch is done, now and then."""
        now = time.monotonic()
        if now - self._beat_at > BEAT_S:
            self._beat_at = now
            self._say(Beat())

    def _say(self, message: ModelMessage) -> None:
        try:
            send(self.end, message)
        except OSError:
            os._exit(0)  # the Dask worker is gone


_OBEYED: dict[type[ModelMessage], Callable[[_Server, Any], None]] = {Open: _Server.open, Ask: _Server.answer}


def _mapped(descriptor: int, order: Open) -> list[np.ndarray]:
    """Return the model's arrays, in memory that goes with the last of them."""
    size = os.fstat(descriptor).st_size
    memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ) if size else b""
    os.close(descriptor)
    return [np.ndarray(shape, dtype, memory, at) for dtype, shape, at in order.data.places]


class _ModelMemory:
    """A file in memory that the Dask worker lets grow, mapped as large as it is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapped: mmap.mmap | None = None

    def views(self, columns: Any, num_rows: int, text_sizes: Any = ()) -> list[np.ndarray]:
        size = os.fstat(self._descriptor).st_size
        if size and (self._mapped is None or len(self._mapped) != size):
            self._mapped = mmap.mmap(self._descriptor, size)  # the old map goes with the last array on it
        return views(self._mapped, columns, num_rows, text_sizes)
