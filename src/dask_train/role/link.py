"""A role process's end of the socket pair: two threads, so that no call of a session waits for the agent."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import queue
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np

from dask_train.checkpoint.manifest import Cover
from dask_train.data.rows import Rows
from dask_train.data.stream import Stream
from dask_train.data.table import Table
from dask_train.errors import ClosedError, DataError, StalledError
from dask_train.process.messages import (
    Answer,
    DataSetWanted,
    GroupWanted,
    Mapped,
    Notice,
    Progress,
    Question,
    Reported,
    RowsWanted,
    StreamLeft,
    Value,
    WentOn,
)
from dask_train.role.time_spent import CLIENT, TimeSpent
from dask_train.run.messages import CannotGoOn, Meets, Message, Met, PeerLost, Resize, Shared, Stop
from dask_train.transport.frames import descriptors_of, encode, messages_from

# How often progress is sent; stalls are checked for in steps of a minute or more.
PROGRESS_INTERVAL_S = 0.5
# A role that asks for a value again within this time has awaited its client in between as well.
AWAITS_AGAIN_S = 4 * PROGRESS_INTERVAL_S
# Reports are sent in bundles of this many at most, so that a burst does not make one huge message.
BUNDLE = 500

M = TypeVar("M", bound=Message)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class SocketLink:
    """See :class:`dask_train.role.context.Link`."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Condition()
        self._frames: list[bytes] = []
        self._scores: list[dict[str, Any]] = []
        self._closing = False
        self._stopped = threading.Event()
        self.stop_reason = ""
        self.wanted_size = 0
        self.steps = 0
        self._rows = 0
        self.spent = TimeSpent()
        self.pulse: Callable[[], int] = int  # counts progress that is made without this link
        self._moves = 0
        self._doing = ""
        self._awaits_until = 0.0  # a role that asks for a value again and again awaits the client in between as well
        self._orders: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._met: queue.SimpleQueue[Met] = queue.SimpleQueue()
        self._lost: dict[int, int] = {}  # the last start of a training role whose process is gone, by its number
        self._values: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()  # None: the run stops
        self._asked: dict[int, queue.SimpleQueue[Answer]] = {}
        self._numbers = itertools.count()
        self._answer_timeout_s = 120.0
        self._writer = threading.Thread(target=self._write, name="dask-train-outbox", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name="dask-train-inbox", daemon=True).start()

    # Towards the agent

    def tell(self, message: Message) -> None:
        """Send one message, after everything before."""
        frame = encode(message)  # what can't be pickled is an error here, and not in the thread that sends
        with self._lock:
            self._frames.append(frame)
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
        self.tell(Stop(reason=reason))

    def send(self, value: bytes) -> None:
        """Send a value to the run's owner."""
        self.tell(Value(value=value))

    def notice(self, text: str) -> None:
        """Report what is out of the ordinary."""
        self.tell(Notice(text=text))

    def went_on(self, covers: Sequence[Cover]) -> None:
        """Tell with which batches the role's checkpoint was made."""
        self.tell(WentOn(covers=list(covers)))

    def moved(self, doing: str, *, batches: int = 0, rows: int = 0) -> None:
        """Note progress; the agent learns of it within half a second."""
        self._doing = doing
        self.steps += batches
        self._rows += rows
        self._moves += 1

    def note(self, doing: str) -> None:
        """Note what the role does now, which is no progress: it waits, or asks."""
        self._doing = doing

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
        try:
            self._write_until_closed()
        except Exception:  # a process that can't report, and works on, would have its result lost
            traceback.print_exc()
            os._exit(1)

    def _write_until_closed(self) -> None:
        sent_moves, sent_last = 0, ("", False)
        closing = False
        while not closing:
            with self._lock:
                if not (self._frames or self._scores or self._closing):
                    self._lock.wait(PROGRESS_INTERVAL_S)
                frames, self._frames = self._frames, []
                scores, self._scores = self._scores, []
                closing = self._closing
            moves, last = self._moves + self.pulse(), (self._doing, time.monotonic() < self._awaits_until)
            if moves != sent_moves or last != sent_last:
                doing, awaits = last
                self._send_progress(doing, moved=moves != sent_moves, awaits=awaits)
                sent_moves, sent_last = moves, last
            for start in range(0, len(scores), BUNDLE):
                self._send(encode(Reported(scores=scores[start : start + BUNDLE])))
            for frame in frames:
                self._send(frame)

    def _send_progress(self, doing: str, *, moved: bool, awaits: bool) -> None:
        progress = Progress(
            steps=self.steps,
            doing=doing,
            moved=moved,
            awaits_client=awaits,
            spent=self.spent.seconds(),
            busy_with=self.spent.busy_with,
            rows=self._rows,
            memory_bytes=own_memory_bytes(),
            cpu_s=time.process_time(),
        )
        self._send(encode(progress))

    def _send(self, frame: bytes) -> None:
        try:
            self._end.sendall(frame)
        except OSError:
            os._exit(1)  # the agent is gone

    # From the agent

    def expect(self, kind: type[M]) -> M:
        """Return the agent's next order, which has to be of that kind; the run's own deadlines end this process."""
        order = self._orders.get()
        assert isinstance(order, kind), (kind, order)
        return order

    def wait_until_stopped(self) -> None:
        """Sleep until the role is to stop; the run's own deadlines end this process."""
        self._stopped.wait()

    def receive(self, timeout_s: float | None) -> bytes:
        """Return the next value that was sent here. Meanwhile the run knows that it is the client that is waited for.

        Raises
        ------
        StalledError
            None has come within ``timeout_s``.
        ClosedError
            None will: the role is to stop.
        """
        try:
            value = self._values.get_nowait() if timeout_s == 0 else self._awaited(timeout_s)
        except queue.Empty:
            raise StalledError(f"No value was sent to this role within {timeout_s:g} s.") from None
        if value is None:
            self._values.put(None)  # for later calls
            raise ClosedError(f"No value comes any more: {self.stop_reason}.")
        self._awaits_until = 0.0
        self._moves += 1
        return value

    def _awaited(self, timeout_s: float | None) -> bytes | None:
        self._doing, self._awaits_until = "waiting for a value of the client's", math.inf
        try:
            with self.spent.on(CLIENT):
                return self._values.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
        finally:
            self._awaits_until = time.monotonic() + AWAITS_AGAIN_S

    def dataset(self, name: str) -> tuple[int, Table, Rows]:
        """Return a published data set, which the agent brings here."""
        answer = self._ask(DataSetWanted(name=name))
        assert answer.data is not None
        return answer.number, answer.data.table, self.mapped(answer.data)

    def rows_from_elsewhere(self, stream: Stream, partition: np.ndarray, row: np.ndarray) -> list[np.ndarray]:
        """Return rows that lie on other hosts, which the agent brings."""
        return list(self._ask(RowsWanted(stream=stream, partition=partition, row=row)).columns)

    def open_group(self, stream: Stream, group: int, needed_from: int) -> Rows:
        """Return a group of partitions, which the driver has computed by then or computes now."""
        answer = self._ask(GroupWanted(stream=stream, group=group, needed_from=needed_from))
        assert answer.data is not None
        return self.mapped(answer.data)

    def leave(self, stream: Stream) -> None:
        """Report that no more groups are needed."""
        self.tell(StreamLeft(stream=stream))

    def meet(self, address: str, size: int = 0, or_size: int = 0, *, joins: bool = False) -> Met:
        """Wait for the other training roles, which wait for this one.

        Parameters
        ----------
        address
            Where they reach it.
        size
            How many they are to be. Default: 0, as many as the run has, or as the others wait for.
        or_size
            How many they may be as well, if the others wait for that. Default: 0, there is no other number.
        joins
            Whether the others train, and come when they have ended what is in hand: they have the run's deadlines.

        Raises
        ------
        StalledError
            They do not within ``train.progress.timeout``.
        """
        self.tell(Meets(address=address, size=size, or_size=or_size))
        ends = time.monotonic() + self._answer_timeout_s
        try:
            while True:
                met = self._met.get(timeout=None if joins else max(0.0, ends - time.monotonic()))
                if met.error or address in met.addresses:  # else it answers an earlier call, just after its timeout
                    return met
        except queue.Empty:
            raise StalledError(
                f"The other training roles did not all come to a collective call within {self._answer_timeout_s:g} s.",
                "One hangs, is much slower than this one, or makes no such call.",
                "Let all make the same calls; see what they do with run.diagnose(), or raise train.progress.timeout.",
            ) from None

    def lost_attempt(self, peer: int) -> int:
        """Return the last start of a training role whose process is gone; -1 where none is."""
        return self._lost.get(peer, -1)

    def shared_among(self, size: int) -> None:
        """Report that the batches that are left are shared by as many of this role as were asked for."""
        self.tell(Shared(size=size))

    def start_all_again(self, why: str) -> NoReturn:
        """Let the run start all roles again, as this one can't continue, and wait for the end of this process."""
        self.tell(CannotGoOn(why=why))
        while True:
            self.stay()

    def _ask(self, question: Question) -> Answer:
        """Ask the agent for data; from any thread.

        Raises
        ------
        DataError
            It can't be had.
        StalledError
            It did not come within ``train.progress.timeout``, and was not said to be on its way.
        """
        answered: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        number = next(self._numbers)  # never used again: an answer may come when it is no longer awaited
        self._asked[number] = answered
        self.tell(dataclasses.replace(question, question=number))
        try:
            while (answer := answered.get(timeout=self._answer_timeout_s)).to_come:
                pass
        except queue.Empty:
            del self._asked[number]
            while not answered.empty():  # just too late
                _forget(answered.get())
            raise StalledError(
                f"The agent did not answer with {question.asks_for} within {self._answer_timeout_s:g} s."
            ) from None
        del self._asked[number]
        if answer.error:
            raise (StalledError if answer.stalled else DataError)(answer.error)
        return answer

    def mapped(self, data: Mapped) -> Rows:
        """Return the rows that a message brought descriptors for."""
        try:
            return Rows(data.table.schema, data.table.lengths, data.held, list(data.descriptors))
        finally:
            for descriptor in data.descriptors:
                os.close(descriptor)

    def wait_at_most(self, timeout_s: float) -> None:
        """Set the timeout of waits for the agent's answers."""
        self._answer_timeout_s = timeout_s

    def _read(self) -> None:
        try:
            for message in messages_from(self._end):
                self._take(message)
        except Exception:  # a process that hears nothing any more would wait for ever
            traceback.print_exc()
        os._exit(1)  # or the agent is gone

    def _take(self, message: Message) -> None:
        match message:
            case Stop():
                self.stop_reason = message.reason or "the run stops"
                self._stopped.set()
                self._values.put(None)
            case Value():
                self._values.put(message.value)
            case Met():
                self._met.put(message)
            case Resize():
                self.wanted_size = message.size
            case PeerLost():
                self._lost[message.peer] = max(message.lost_attempt, self.lost_attempt(message.peer))
            case Answer():
                if (answers := self._asked.get(message.question)) is not None:
                    answers.put(message)
                else:
                    _forget(message)
            case _:
                self._orders.put(message)


def _forget(answer: Answer) -> None:
    """Close what came with an answer that is no longer awaited."""
    for descriptor in descriptors_of(answer):
        os.close(descriptor)


def own_memory_bytes() -> int:
    """Memory of this process in bytes, without files and shared memory that it maps, as its data sets are.

    See proc_pid_statm(5): resident pages, less those of files and of shared memory. 0 if it can't be read.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:  # the user's code may have left no descriptor
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES
