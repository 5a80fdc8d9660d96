"""One model process as its Dask worker's tasks see it: started, asked, ended; from any thread but the event loop's."""

from __future__ import annotations

import asyncio
import mmap
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from dask_train.cluster.on_worker.child import STACKS_S, role_environment
from dask_train.cluster.on_worker.memory_limit import num_oom_kills
from dask_train.cluster.on_worker.output import Output
from dask_train.config import PredictLimits
from dask_train.errors import PredictionError, StalledError
from dask_train.prediction.values import Call, ModelParts, offsets, views
from dask_train.role_process.frames import FrameReader, encode
from dask_train.role_process.life import STACKS_SIGNAL

# Two tasks may be on their way: the rows of one are copied while the model works on those of the other.
NUM_SLOTS = 2
# Pages stay warm between blocks up to this size, in bytes; making them costs twice what filling them again does.
KEEP_WARM_BYTES = 256 << 20
# How often those who wait look whether the process still lives.
LOOK_S = 0.5
# What errors show of a process's output, in bytes.
TAIL_BYTES = 2000
# A killed process is gone in milliseconds, unless the kernel writes its core.
GONE_S = 10.0


class ProcessLostError(Exception):
    """The process is gone.

    Attributes
    ----------
    served
        Whether it was at work for the caller, rather than for another task or none.
    """

    def __init__(self, why: str, *, served: bool) -> None:
        super().__init__(why)
        self.served = served


class ModelProcess:
    """See the module. It is made, and so started, in a task's thread.

    Parameters
    ----------
    parts
        The model.
    limits
        Deadlines.
    num_threads
        Of the process.
    loop
        The Dask worker's event loop, which forks: a parent-death signal comes with the end of the thread that forked.

    Raises
    ------
    PredictionError
        The model can't be opened there.
    ProcessLostError
        It died before the model was ready.
    StalledError
        The model was not ready in time.
    """

    def __init__(
        self, parts: ModelParts, limits: PredictLimits, num_threads: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.name, self._limits = parts.name, limits
        self._output = Output(f"dask-train-model-{parts.name[:40]}")
        self._stacks = os.memfd_create("dask-train-stacks", os.MFD_CLOEXEC)
        self._slots = [_Slot(number) for number in range(NUM_SLOTS)]
        self._free: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._turn = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False
        self._why = ""
        self._moved = time.monotonic()
        self._reader = FrameReader()
        self._oom_kills = num_oom_kills()
        self._end, theirs = socket.socketpair()
        lifeline_end, self._lifeline = os.pipe()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = self._fork(parts, num_threads, loop, lifeline_end, theirs)
        finally:
            theirs.close()
            os.close(lifeline_end)
            if self._process is None:
                self.end("it was not started")
        try:
            self._open(parts, num_threads)
        except BaseException:
            self.end("its model could not be opened")
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid if self._process is not None else 0

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._ended

    def _fork(
        self, parts: ModelParts, num_threads: int, loop: Any, lifeline_end: int, theirs: socket.socket
    ) -> subprocess.Popen[bytes]:
        numbers = [os.getpid(), lifeline_end, self._stacks, theirs.fileno()]
        command = [sys.executable, "-P", "-m", "dask_train.prediction", parts.name, *map(str, numbers)]

        async def fork() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output.descriptor,
                stderr=self._output.descriptor,
                pass_fds=numbers[1:],
                env={**role_environment(os.environ, num_threads, sys.path), **parts.environment},
                start_new_session=True,  # a Ctrl-C in the terminal is the client's to handle
            )

        forking = asyncio.run_coroutine_threadsafe(fork(), loop)
        try:
            return forking.result(self._limits.launch_s)
        except TimeoutError:
            forking.cancel()
            raise StalledError(
                f"The Dask worker did not start a process for model {parts.name!r} within {self._limits.launch_s:g} s.",
                "Something blocks its event loop, such as a task that holds the GIL.",
                "Raise train.launch.timeout, or see what the Dask worker does with client.call_stack().",
            ) from None

    def _open(self, parts: ModelParts, num_threads: int) -> None:
        """Hand the model over: one copy, into memory that goes when the process has made its variables of it."""
        descriptor, places = _packed(parts.arrays)
        start = {"kind": parts.kind, "header": parts.header, "arrays": places, "num_threads": num_threads}
        data = encode(start)
        self._end.settimeout(self._limits.launch_s)
        try:
            descriptors = [descriptor, *(number for slot in self._slots for number in slot.descriptors)]
            socket.send_fds(self._end, [data[:1]], descriptors)
            self._end.sendall(data[1:])
            answer = self._receive(self._limits.launch_s, "to open its model", "train.launch.timeout")
        except OSError as error:
            raise self._lost(served=True) from error
        finally:
            os.close(descriptor)
        if answer["kind"] == "failed":
            raise PredictionError(
                f"Model {parts.name!r} can't be opened on the Dask worker: {answer['error']}",
                change="See that the Dask workers have the same versions and modules as the client: dask train doctor.",
            ) from _cause(answer)

    # Asking

    def ask(self, call: Call, arrays: Sequence[np.ndarray], where: str) -> Any:
        """What the model says of a block.

        Parameters
        ----------
        call
            What is asked.
        arrays
            ``(num_rows, *row_shape)`` each; copied once, into the shared memory, in the dtypes of the call.
        where
            How errors call the block.

        Returns
        -------
        list
            New arrays, of which there is one copy from the shared memory; or what metrics have counted.

        Raises
        ------
        PredictionError
            The model raised.
        ProcessLostError
            The process is gone.
        StalledError
            It did nothing for too long.
        """
        num_rows = len(arrays[0])
        slot = self._next_slot(where)
        try:
            slot.fill(call, arrays)
            with self._my_turn(where):
                if self._ended:
                    raise ProcessLostError(self._why, served=False)
                answer = self._answer({"call": call, "num_rows": num_rows, "slot": slot.number}, where)
            if answer["kind"] == "failed":
                raise PredictionError(
                    f"Model {self.name!r} failed on {where}: {answer['error']}", cause=answer["traceback"]
                ) from _cause(answer)
            return answer["counted"] if call.verb == "evaluate" else slot.read(call, num_rows)
        finally:
            slot.trim()
            self._free.put(slot)

    def _answer(self, message: dict[str, Any], where: str) -> dict[str, Any]:
        try:
            self._end.sendall(encode(message))
            return self._receive(self._limits.timeout_s, f"a batch of {where}", "train.predict.timeout")
        except OSError as error:
            raise self._lost(served=True) from error

    def _receive(self, patience_s: float, doing: str, setting: str) -> dict[str, Any]:
        self._moved = time.monotonic()
        self._end.settimeout(patience_s)
        while True:
            try:
                data = self._end.recv(1 << 18)
            except TimeoutError:
                raise self._stalled(patience_s, doing, setting) from None
            if not data:
                raise self._lost(served=True)
            self._moved = time.monotonic()
            for message in self._reader.feed(data):
                if message["kind"] != "beat":
                    return message

    def _next_slot(self, where: str) -> _Slot:
        while True:
            with suppress(queue.Empty):
                return self._free.get(timeout=LOOK_S)
            self._look(where)

    @contextmanager
    def _my_turn(self, where: str) -> Iterator[None]:
        while not self._turn.acquire(timeout=LOOK_S):
            self._look(where)
        try:
            yield
        finally:
            self._turn.release()

    def _look(self, where: str) -> None:
        """For those who wait: whoever is served ends a process that stalls, so a wait has that deadline, too."""
        if self._ended:
            raise ProcessLostError(self._why, served=False)
        if time.monotonic() - self._moved > 2 * self._limits.timeout_s + self._limits.launch_s:
            raise self._stalled(self._limits.timeout_s, f"the turn of {where}", "train.predict.timeout")

    # The end

    def end(self, why: str) -> None:
        """Kill the process, and all that it has started; nothing is left of it then. Again does no harm."""
        with self._ending:
            if self._ended:
                return
            self._ended, self._why = True, why
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(GONE_S)
            with suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads
            self._end.close()
            os.close(self._lifeline)
            os.close(self._stacks)
            for slot in self._slots:
                slot.close()
            self._output.close()

    def _lost(self, *, served: bool) -> ProcessLostError:
        """The error that tells how the process has ended."""
        status = None
        if self._process is not None and not self._ended:
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(GONE_S)
        why = self._why or self._how(status)
        self.end(why)
        return ProcessLostError(why, served=served)

    def _how(self, status: int | None) -> str:
        if status is None:
            how = f"process {self.pid} closed its connection and did not end"
        elif status >= 0:
            how = f"process {self.pid} exited with status {status}"
        elif status == -signal.SIGKILL and num_oom_kills() > self._oom_kills:
            how = f"process {self.pid} was killed by the kernel because the container's memory limit was reached"
        else:
            how = f"process {self.pid} was killed by {signal.Signals(-status).name}"
        return how + self._tail()

    def _tail(self) -> str:
        tail = self._output.since(0, TAIL_BYTES)[1].strip()
        return f"; the end of its output:\n{tail}\n" if tail else "; it had printed nothing"

    def _stalled(self, patience_s: float, doing: str, setting: str) -> StalledError:
        stacks = ""
        with suppress(ProcessLookupError, OSError):
            os.kill(self.pid, STACKS_SIGNAL)
            time.sleep(STACKS_S)
            stacks = os.pread(self._stacks, 1 << 16, 0).decode(errors="replace").strip()
        tail = self._tail()
        self.end(f"process {self.pid} was ended because it had stalled")
        return StalledError(
            f"Model {self.name!r} in process {self.pid} did nothing for {patience_s:g} s, {doing} awaited{tail}"
            + (f"; its stacks:\n{stacks}" if stacks else "."),
            "The model hangs, or a batch takes longer than that.",
            f"Pass a smaller batch_size, or raise {setting}.",
        )


class _Slot:
    """Shared memory for the rows of one block on their way in, and another for what comes out."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptors = [os.memfd_create(f"dask-train-{way}", os.MFD_CLOEXEC) for way in ("rows", "predictions")]
        self._mapped: list[mmap.mmap | None] = [None, None]
        self._lock = threading.Lock()  # a process may be ended while a task fills a slot of it

    def fill(self, call: Call, arrays: Sequence[np.ndarray]) -> None:
        num_rows = len(arrays[0])
        into = views(self._memory(0, offsets(call.columns, num_rows)[1]), call.columns, num_rows)
        for target, array in zip(into, arrays, strict=True):
            np.copyto(target, array, casting="same_kind")
        self._memory(1, offsets(call.outputs, num_rows)[1])

    def read(self, call: Call, num_rows: int) -> list[np.ndarray]:
        return [view.copy() for view in views(self._mapped[1], call.outputs, num_rows)]

    def _memory(self, which: int, size: int) -> mmap.mmap | None:
        with self._lock:
            mapped = self._mapped[which]
            if size and (mapped is None or len(mapped) < size):
                if not self.descriptors:
                    raise ProcessLostError("it was ended", served=False)
                os.ftruncate(self.descriptors[which], size)
                self._mapped[which] = mapped = mmap.mmap(self.descriptors[which], size)
            return mapped

    def trim(self) -> None:
        """Give large memory back."""
        with self._lock:
            for which, mapped in enumerate(self._mapped):
                if mapped is not None and len(mapped) > KEEP_WARM_BYTES and self.descriptors:
                    self._mapped[which] = None
                    os.ftruncate(self.descriptors[which], 0)

    def close(self) -> None:
        with self._lock:
            descriptors, self.descriptors = self.descriptors, []
        for descriptor in descriptors:
            os.close(descriptor)


def _packed(arrays: Sequence[np.ndarray]) -> tuple[int, list[tuple[str, tuple[int, ...], int]]]:
    """The arrays in a file in memory, and where each lies."""
    descriptor = os.memfd_create("dask-train-model", os.MFD_CLOEXEC)
    places, end = [], 0
    for array in arrays:
        places.append((array.dtype.str, tuple(array.shape), end))
        if array.nbytes:
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], end + written)
        end += -(-array.nbytes // 64) * 64
    os.ftruncate(descriptor, end)
    return descriptor, places


def _cause(answer: dict[str, Any]) -> BaseException | None:
    with suppress(Exception):  # it may be of a class that only the process could import
        return pickle.loads(answer["exception"]) if answer["exception"] else None  # noqa: S301 - our own process
    return None
