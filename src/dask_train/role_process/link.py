"""A role process's end of the socket pair: two threads, so that no call of a session waits for the agent."""

from __future__ import annotations

import itertools
import os
import queue
import socket
import threading
import time
from typing import Any

import numpy as np

from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.errors import ClosedError, DataError, StalledError
from dask_train.role_process.frames import MAX_DESCRIPTORS, FrameReader, encode

# How often progress is told; a stalled run is looked for in steps of a minute or more.
PROGRESS_INTERVAL_S = 0.5
# How often a role that waits for its client notes that it is alive.
RECEIVE_LOOK_S = 5.0
# Reports are sent in bundles of so many at most, so that a burst does not make one huge message.
BUNDLE = 500


class SocketLink:
    """See :class:`dask_train.session.Link`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Condition()
        self._frames: list[dict[str, Any]] = []
        self._scores: list[dict[str, Any]] = []
        self._closing = False
        self._stopped = threading.Event()
        self.stop_reason = ""
        self.steps = 0
        self._moves = 0
        self._doing = ""
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._values: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # None: the run stops
        self._asked: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._numbers = itertools.count()
        self._patience_s = 120.0
        self._writer = threading.Thread(target=self._write, name="dask-train-outbox", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="dask-train-inbox", daemon=True).start()

    # Towards the agent

    def tell(self, kind: str, **message: Any) -> None:
        """Send one message, after everything before."""
        with self._lock:
            self._frames.append({"kind": kind, **message})
            self._lock.notify()

    def report(self, scores: dict[str, Any]) -> None:
        """Send scores."""
        self._moves += 1
        with self._lock:
            self._scores.append(scores)
            if len(self._scores) == 1:
                self._lock.notify()

    def ask_to_stop(self, reason: str) -> None:
        """Ask the run to stop."""
        self.tell("stop", reason=reason)

    def send(self, value: bytes) -> None:
        """Send a value to whoever holds the run."""
        self.tell("value", value=value)

    def moved(self, doing: str, *, batches: int = 0) -> None:
        """Note progress; told within half a second."""
        self._doing = doing
        self.steps += batches
        self._moves += 1

    def stay(self) -> None:
        """Wait for the agent to end this process, which it does with the run."""
        threading.Event().wait()

    def close(self) -> None:
        """Send what is left, and return when the agent's kernel buffer has it."""
        with self._lock:
            self._closing = True
            self._lock.notify()
        self._writer.join()

    def _write(self) -> None:
        told = 0
        closing = False
        while not closing:
            with self._lock:
                if not (self._frames or self._scores or self._closing):
                    self._lock.wait(PROGRESS_INTERVAL_S)
                frames, self._frames = self._frames, []
                scores, self._scores = self._scores, []
                closing = self._closing
            if told != self._moves:
                told = self._moves
                self._send({"kind": "progress", "steps": self.steps, "doing": self._doing})
            for start in range(0, len(scores), BUNDLE):
                self._send({"kind": "scores", "scores": scores[start : start + BUNDLE]})
            for frame in frames:
                self._send(frame)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._end.sendall(encode(message))
        except OSError:
            os._exit(1)  # the agent is gone

    # From the agent

    def expect(self, kind: str) -> dict[str, Any]:
        """The next order of the agent, which has to be of that kind; the run's own deadlines end this process."""
        answer = self._answers.get()
        assert answer["kind"] == kind, (kind, answer["kind"])
        return answer

    def wait_until_stopped(self) -> None:
        """Sleep until the role is to stop; the run's own deadlines end this process."""
        self._stopped.wait()

    def receive(self, timeout_s: float | None) -> bytes:
        """The next value that was sent here; progress is noted meanwhile, as it is the client that is waited for.

        Raises
        ------
        StalledError
            None has come within ``timeout_s``.
        ClosedError
            None will: the role is to stop.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = RECEIVE_LOOK_S if deadline is None else min(RECEIVE_LOOK_S, deadline - time.monotonic())
            try:
                value = self._values.get(timeout=max(0.0, left_s))
            except queue.Empty:
                if deadline is not None and time.monotonic() >= deadline:
                    raise StalledError(f"No value was sent to this role within {timeout_s:g} s.") from None
                self.moved("waiting for a value")
                continue
            if value is not None:
                return value
            self._values.put(None)  # for those who ask again
            raise ClosedError(f"No value comes any more: {self.stop_reason}.")

    def dataset(self, name: str) -> tuple[int, Table, Rows]:
        """A published data set, which the agent brings here."""
        answer = self._ask("dataset", name=name)
        return answer["number"], answer["table"], self.mapped(answer)

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Rows that lie on other hosts, which the agent brings."""
        columns: list[np.ndarray] = self._ask("rows", stream=stream, partition=partition, row=row)["columns"]
        return columns

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Rows:
        """A group of partitions, which the driver has computed by then or computes now."""
        return self.mapped(self._ask("group", stream=stream, group=group, needed_from=needed_from))

    def leave(self, stream: Stream) -> None:
        """Tell that no more groups are needed."""
        self.tell("left", stream=stream)

    def _ask(self, kind: str, **question: Any) -> dict[str, Any]:
        """Ask the agent for data; from any thread.

        Raises
        ------
        DataError
            It can't be had.
        StalledError
            It did not come within ``train.progress.timeout``.
        """
        answered: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        number = next(self._numbers)  # never used again: an answer may come when nobody waits for it any more
        self._asked[number] = answered
        self.tell(kind, question=number, **question)
        try:
            answer = answered.get(timeout=self._patience_s)
        except queue.Empty:
            del self._asked[number]
            while not answered.empty():  # just too late
                _forget(answered.get())
            raise StalledError(f"The agent did not answer with {kind} within {self._patience_s:g} s.") from None
        del self._asked[number]
        if answer["error"]:
            raise DataError(answer["error"])
        return answer

    def mapped(self, answer: dict[str, Any]) -> Rows:
        """The rows that an answer brought descriptors for."""
        descriptors = answer["descriptors"]
        try:
            return Rows(answer["table"].schema, answer["table"].lengths, answer["held"], descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def wait_at_most(self, patience_s: float) -> None:
        """How long a wait for an answer may take."""
        self._patience_s = patience_s

    def _read(self) -> None:
        reader = FrameReader()
        came: list[int] = []  # descriptors come with or before the first byte of the message that they are for
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._end, 1 << 16, MAX_DESCRIPTORS)
            except OSError:
                data = b""
            if not data:
                os._exit(1)  # the agent is gone
            came += descriptors
            for message in reader.feed(data):
                if "num_descriptors" in message:
                    num = message.pop("num_descriptors")
                    message["descriptors"], came = came[:num], came[num:]
                if message["kind"] == "stop":
                    self.stop_reason = message["reason"] or "the run stops"
                    self._stopped.set()
                    self._values.put(None)
                elif message["kind"] == "value":
                    self._values.put(message["value"])
                elif "question" not in message:
                    self._answers.put(message)
                elif (asked := self._asked.get(message["question"])) is not None:
                    asked.put(message)
                else:
                    _forget(message)


def _forget(answer: dict[str, Any]) -> None:
    """Close what came with an answer for which nobody waits any more."""
    for descriptor in answer.get("descriptors", ()):
        os.close(descriptor)
