"""A model process as its Dask worker's tasks see it: opened and asked; from any thread but the event loop's."""

from __future__ import annotations

import os
import pickle
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dask_train.config import PredictLimits
from dask_train.errors import PredictionError, StalledError
from dask_train.predicting.model_memory import Slot, SlotClosedError, packed_arrays
from dask_train.predicting.server.messages import Answered, Ask, Beat, ModelFiles, ModelMessage, Open, Raised
from dask_train.predicting.server.runners import imports_of
from dask_train.predicting.server.values import Call, ModelParts, packed_texts
from dask_train.process.child import GONE_S, STACKS_S, Child, Starting
from dask_train.process.launch import Launch, Preload
from dask_train.transport.frames import FrameReader, send

# Two tasks may be on their way: the rows of one are copied while the model works on those of the other.
NUM_SLOTS = 2
# How often waiters check whether the process still lives.
LOOK_S = 0.5
# What errors show of a process's output, in bytes.
TAIL_BYTES = 2000


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


@dataclass(frozen=True)
class _TimeLimit:
    """Timeout of a wait for the process, what is awaited, and the name of the timeout's setting."""

    timeout_s: float
    doing: str
    setting: str


class ModelProcess:
    """A process that holds a model. It is made, and so started, in a task's thread.

    Parameters
    ----------
    parts
        The model.
    limits
        Deadlines.
    num_threads
        Of the process.
    starting
        Starts processes of the Dask worker.
    environment
        Variables that it has besides those of the Dask worker and of the model.

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
        self,
        parts: ModelParts,
        limits: PredictLimits,
        num_threads: int,
        starting: Starting,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name, self._limits = parts.name, limits
        self._slots = [Slot(number) for number in range(NUM_SLOTS)]
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in self._slots:
            self._free.put(slot)
        self._turn = threading.Lock()
        self._ending = threading.Lock()
        self._ended = False
        self._why = ""
        self._moved = time.monotonic()
        self._reader = FrameReader()
        self._child = Child(f"dask-train-model-{parts.name[:40]}")
        try:
            self._start(parts, num_threads, starting, environment or {})
            self._open(parts, num_threads)
        except BaseException:
            self.end("its model could not be opened")
            raise

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._ended

    def _start(self, parts: ModelParts, num_threads: int, starting: Starting, environment: Mapping[str, str]) -> None:
        template = self._limits.template
        launch = Launch(
            module="dask_train.predicting.server",
            arguments=(parts.name,),
            descriptors=self._child.inherited,
            output=self._child.output.descriptor,
            num_threads=num_threads,
            environment=parts.environment,
            preload=Preload(
                modules=template.imported(imports_of(parts)), environment=parts.environment, idle_s=template.idle_s
            ),
        ).with_environment(environment)
        try:
            self._child.start(launch, starting).result(self._limits.launch_s)
        except TimeoutError:
            raise StalledError(
                f"The Dask worker did not start a process for model {parts.name!r} within {self._limits.launch_s:g} s.",
                "Something blocks its event loop, such as a task that holds the GIL, or the framework's import hangs.",
                "Raise train.launch.timeout, or see what the Dask worker does with client.call_stack().",
            ) from None

    def _open(self, parts: ModelParts, num_threads: int) -> None:
        """Hand the model over: one copy, into memory that goes when the process has made its variables of it."""
        descriptor, places = packed_arrays(parts.arrays)
        slots = (number for slot in self._slots for number in slot.descriptors)
        files = ModelFiles(descriptors=(descriptor, *slots), places=places)
        order = Open(kind=parts.kind, header=parts.header, num_threads=num_threads, settings=parts.settings, data=files)
        limit = _TimeLimit(self._limits.launch_s, "to open its model", "train.launch.timeout")
        try:
            answer = self._answer(order, limit)
        finally:
            os.close(descriptor)
        if isinstance(answer, Raised):
            raise PredictionError(
                f"Model {parts.name!r} can't be opened on the Dask worker: {answer.error}",
                change="See that the Dask workers have the same versions and modules as the client: dask train doctor.",
            ) from _cause(answer)

    # Asking

    def ask(self, call: Call, arrays: Sequence[np.ndarray], where: str) -> Any:
        """Return what the model says of a block.

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
        images = packed_texts(where, call.columns, arrays)
        text_sizes = [image.nbytes for column, image in zip(call.columns, images, strict=True) if column.is_text]
        limit = _TimeLimit(self._limits.timeout_s, f"a batch of {where}", "train.predict.timeout")
        slot = self._next_slot(where)
        try:
            slot.fill(call, num_rows, images, text_sizes)
            with self._my_turn(where):
                if self._ended:
                    raise ProcessLostError(self._why, served=False)
                request = Ask(call=call, num_rows=num_rows, text_sizes=text_sizes, slot=slot.number)
                answer = self._answer(request, limit)
            if isinstance(answer, Raised):
                raise PredictionError(
                    f"Model {self.name!r} failed on {where}: {answer.error}", cause=answer.traceback
                ) from _cause(answer)
            assert isinstance(answer, Answered), answer
            return answer.counted if call.verb != "predict" else slot.read(call, num_rows)
        except SlotClosedError:
            raise ProcessLostError(self._why, served=False) from None
        finally:
            self._child.output.collect()  # or what a model prints would fill the memory
            slot.trim()
            self._free.put(slot)

    def _answer(self, message: ModelMessage, limit: _TimeLimit) -> ModelMessage:
        """Return what the process answers."""
        self._moved = time.monotonic()
        try:
            self._child.end.settimeout(limit.timeout_s)
            send(self._child.end, message)
            while True:
                data = self._child.end.recv(1 << 18)
                if not data:
                    raise self._lost()
                self._moved = time.monotonic()
                for answer in self._reader.feed(data):
                    if not isinstance(answer, Beat):
                        return cast("ModelMessage", answer)
        except TimeoutError:
            raise self._stalled(limit) from None
        except OSError as error:
            raise self._lost() from error

    def _next_slot(self, where: str) -> Slot:
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
        """Raise if the process has ended or stalled; the caller that is served ends a stalled one itself."""
        if self._ended:
            raise ProcessLostError(self._why, served=False)
        if time.monotonic() - self._moved > 2 * self._limits.timeout_s + self._limits.launch_s:
            raise self._stalled(_TimeLimit(self._limits.timeout_s, f"the turn of {where}", "train.predict.timeout"))

    # The end

    def end(self, why: str) -> None:
        """Kill the process, and all that it has started; nothing is left of it then. A second call does no harm."""
        with self._ending:
            if self._ended:
                return
            self._ended, self._why = True, why
            self._child.close()
            for slot in self._slots:
                slot.close()

    def _lost(self) -> ProcessLostError:
        """Return the error for callers that tells how the process has ended."""
        status = self._child.reap(GONE_S)
        if status is None:
            how = f"process {self.pid} closed its connection and did not end"
        else:
            how = self._child.how_it_ended(status)
        why = self._why or how + self._tail()
        self.end(why)
        return ProcessLostError(why, served=True)

    def _tail(self) -> str:
        tail = self._child.output.since(0, TAIL_BYTES)[1].strip()
        return f"; the end of its output:\n{tail}\n" if tail else "; it had printed nothing"

    def _stalled(self, limit: _TimeLimit) -> StalledError:
        before = self._child.ask_for_stacks()
        time.sleep(STACKS_S)
        stacks = self._child.stacks_since(before).strip()
        tail = self._tail()
        self.end(f"process {self.pid} was ended because it had stalled")
        return StalledError(
            f"Model {self.name!r} in process {self.pid} did nothing for {limit.timeout_s:g} s, {limit.doing} awaited"
            + tail
            + (f"; its stacks:\n{stacks}" if stacks else "."),
            "The model hangs, or a batch takes longer than that.",
            f"Pass a smaller batch_size, or raise {limit.setting}.",
        )


def _cause(raised: Raised) -> BaseException | None:
    with suppress(Exception):  # it may be of a class that only the process could import
        return pickle.loads(raised.exception) if raised.exception else None  # noqa: S301 - our own process
    return None
