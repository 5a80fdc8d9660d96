"""What a model process does: opens a model, then answers its Dask worker's tasks, one after another.

Rows come and go in shared memory that the Dask worker owns; over the socket go only small messages.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
import time
from typing import Any

import numpy as np

from dask_train.frameworks.tensorflow.startup_noise import without_startup_noise
from dask_train.prediction.runners import Runner, opened
from dask_train.prediction.values import Call, views
from dask_train.role_process.frames import MAX_DESCRIPTORS, FrameReader, encode
from dask_train.role_process.role import told

# How often progress is told: a process that says nothing for a minute or more has stalled.
BEAT_S = 0.5


def serve(end: int) -> None:
    """Answer over the socket ``end`` until it is closed; never returns."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    talk = _Talk(socket.socket(fileno=end))
    start = talk.next()
    try:
        runner = _open(start)
    except BaseException as error:  # also SystemExit of a module that the model needs
        talk.say("failed", **told(error))
        os._exit(1)
    slots = [[_Memory(descriptor) for descriptor in pair] for pair in start["slots"]]
    talk.say("ready")
    while True:
        message = talk.next()
        try:
            talk.say("done", **_answer(runner, message, slots[message["slot"]], talk.beat))
        except Exception as error:
            talk.say("failed", **told(error))


def _open(start: dict[str, Any]) -> Runner:
    descriptor, columns = start["model"], start["arrays"]
    size = max(1, os.fstat(descriptor).st_size)
    arrays: list[np.ndarray] = []
    if os.fstat(descriptor).st_size:
        memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
        arrays = [np.ndarray(shape, dtype, memory, at) for dtype, shape, at in columns]
    os.close(descriptor)
    with without_startup_noise():
        return opened(start["kind"], start["header"], arrays, start["num_threads"])


def _answer(runner: Runner, message: dict[str, Any], slot: list[_Memory], beat: Any) -> dict[str, Any]:
    call: Call = message["call"]
    num_rows = message["num_rows"]
    columns = slot[0].views(call.columns, num_rows)
    if call.verb == "evaluate":
        return {"counted": runner.evaluate(call, columns, beat)}
    runner.predict(call, columns, slot[1].views(call.outputs, num_rows), beat)
    return {}


class _Memory:
    """A file in memory that the Dask worker lets grow, mapped as large as it is."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mapped: mmap.mmap | None = None

    def views(self, columns: Any, num_rows: int) -> list[np.ndarray]:
        size = os.fstat(self._descriptor).st_size
        if size and (self._mapped is None or len(self._mapped) != size):
            self._mapped = mmap.mmap(self._descriptor, size)  # the old map goes with the last array on it
        return views(self._mapped, columns, num_rows)


class _Talk:
    """This process's end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._reader = FrameReader()
        self._told = 0.0

    def next(self) -> dict[str, Any]:
        """The next message; descriptors come with the first."""
        came: list[int] = []
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._end, 1 << 16, MAX_DESCRIPTORS)
            if not data:
                os._exit(0)
            came += descriptors
            for message in self._reader.feed(data):
                if came:
                    message["model"], rest = came[0], came[1:]
                    message["slots"] = [rest[at : at + 2] for at in range(0, len(rest), 2)]
                return message

    def say(self, kind: str, **message: Any) -> None:
        """Send a message."""
        try:
            self._end.sendall(encode({"kind": kind, **message}))
        except OSError:
            os._exit(0)  # the Dask worker is gone

    def beat(self) -> None:
        """Tell that a batch is done, now and then."""
        now = time.monotonic()
        if now - self._told > BEAT_S:
            self._told = now
            self.say("beat")
