"""The model processes of one Dask worker: how many there are, for which models, and when they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from dask.utils import format_bytes
from distributed import Worker

from dask_train.cluster.devices import device_environment
from dask_train.cluster.worker_plugin import OwnPlugin
from dask_train.config import PredictLimits, TemplateSettings
from dask_train.errors import PredictionError, StalledError
from dask_train.predicting.model_process import LOOK_S, ModelProcess, ProcessLostError
from dask_train.predicting.server.runners import imports_of
from dask_train.predicting.server.values import Call, ModelParts
from dask_train.process.devices import DeviceUse
from dask_train.process.templates import name_of
from dask_train.worker.room import room, share_bytes
from dask_train.worker.templates import TemplateProcesses

# What a process takes besides its model, in bytes (PSS, idle; TensorFlow 2.21, torch 2.13, CPU).
FRAMEWORK_BYTES = dict.fromkeys(("torch", "torch-script", "torch-exported"), 300 << 20)
FRAMEWORK_BYTES_ELSE = 460 << 20
# The part of that which a template takes at least, for all that are forked of it.
SHARED = 0.5


class ModelProcesses(OwnPlugin):
    """The model processes of a Dask worker; a plug-in of the Dask worker, so that all end when it closes."""

    name = "dask-train-model-processes"

    def __init__(self, dask_worker: Worker) -> None:
        self._worker = dask_worker
        self._changed = threading.Condition()
        self._seats: dict[str, _Seat] = {}
        self._num_blocks = self._num_rows = 0
        self._closed = False

    def teardown(self, worker: Worker) -> None:  # noqa: ARG002 - as Dask calls it
        """End all, with the Dask worker."""
        with self._changed:
            self._closed = True
            seats, self._seats = list(self._seats.values()), {}
            self._changed.notify_all()
        for seat in seats:
            seat.end("the Dask worker closes")

    def numbers(self) -> dict[str, float]:
        """Return how many processes there are, and the blocks and rows that they have predicted; does not wait."""
        num_processes = sum(bool(seat.pid) for seat in list(self._seats.values()))
        return {
            "model_processes": num_processes,
            "predicted_blocks": self._num_blocks,
            "predicted_rows": self._num_rows,
        }

    def pids(self) -> dict[str, int]:
        """Return the process of each model, by the model's token."""
        with self._changed:
            return {token: seat.pid for token, seat in self._seats.items() if seat.pid}

    def ask(
        self, parts: ModelParts, limits: PredictLimits, call: Call, arrays: Sequence[np.ndarray], where: str
    ) -> Any:
        """Return what the model says of a block, in a process that is started if there is none.

        Raises
        ------
        PredictionError
            The model raised, can't be opened, or has no room; or each process died with the block.
        StalledError
            There was no process for too long, or it did nothing.
        """
        num_losses = 0
        while True:
            seat = self._take(parts.token, limits, where)
            try:
                answer = seat.process(self, parts, limits).ask(call, arrays, where)
            except ProcessLostError as error:
                num_losses += error.served
                if num_losses >= limits.attempts or self._closed:
                    raise PredictionError(
                        f"Model {parts.name!r}: {where} was tried {num_losses} times, and each time the process died. "
                        f"The last: {error}",
                        "A model that takes more memory with this block than there is, or native code that crashes.",
                        "Pass a smaller batch_size, give the Dask workers more memory, or make smaller partitions.",
                    ) from None
            else:
                with self._changed:
                    self._num_blocks += 1
                    self._num_rows += len(arrays[0]) if arrays else 0
                return answer
            finally:
                self._give_back(seat, limits)

    def _take(self, token: str, limits: PredictLimits, where: str) -> _Seat:
        """Take a seat for the model, once there is one: its own, a new one, or that of an unused model."""
        deadline = time.monotonic() + limits.timeout_s
        with self._changed:
            while token not in self._seats and len(self._seats) >= limits.processes:
                if self._drop_unused():
                    continue
                self._changed.wait(LOOK_S)
                if time.monotonic() > deadline:
                    raise StalledError(
                        f"{where} waited {limits.timeout_s:g} s for a model process; {len(self._seats)} of other "
                        f"models are all in use ({', '.join(seat.name for seat in self._seats.values())}).",
                        "More models predict on this Dask worker at a time than train.predict.processes lets.",
                        "Raise train.predict.processes or train.predict.timeout.",
                    )
            if self._closed:
                raise PredictionError(f"{where} can't be predicted: its Dask worker closes.")
            seat = self._seats.setdefault(token, _Seat(token))
            seat.users += 1
            return seat

    def _drop_unused(self) -> bool:
        unused = [seat for seat in self._seats.values() if not seat.users]
        if unused:
            oldest = min(unused, key=lambda seat: seat.used)
            del self._seats[oldest.token]
            oldest.end("its place was needed for another model")
        return bool(unused)

    def _give_back(self, seat: _Seat, limits: PredictLimits) -> None:
        with self._changed:
            seat.users -= 1
            seat.used = time.monotonic()
            self._changed.notify_all()
            is_unwatched = not (seat.users or seat.watched or self._closed)
            seat.watched |= is_unwatched
        if is_unwatched:
            loop = self._worker.loop.asyncio_loop
            with suppress(RuntimeError):  # the loop is closed, and the seat with it
                loop.call_soon_threadsafe(self._watch, seat, limits.idle_s, limits.idle_s)

    def _watch(self, seat: _Seat, idle_s: float, after_s: float) -> None:
        self._worker.loop.asyncio_loop.call_later(after_s, self._end_if_idle, seat, idle_s)

    def _end_if_idle(self, seat: _Seat, idle_s: float) -> None:
        """On the event loop; the end itself takes milliseconds, and is left to a thread."""
        with self._changed:
            if self._seats.get(seat.token) is not seat:
                return
            if seat.users:
                seat.watched = False
                return
            left_s = seat.used + idle_s - time.monotonic()
            if left_s > 0:
                self._watch(seat, idle_s, left_s)
                return
            del self._seats[seat.token]
        threading.Thread(target=seat.end, args=("it was unused",), name="dask-train-ending", daemon=True).start()

    def make(self, parts: ModelParts, limits: PredictLimits) -> ModelProcess:
        """Return a new process for a seat, where memory allows one.

        Raises
        ------
        PredictionError
            It does not.
        """
        self._check_room(parts, limits)
        num_threads = limits.threads or max(1, self._worker.state.nthreads)
        environment = device_environment(DeviceUse(num_sharing=0))  # with roles, and with other models
        return ModelProcess(parts, limits, num_threads, TemplateProcesses.of(self._worker).start, environment)

    def _check_room(self, parts: ModelParts, limits: PredictLimits) -> None:
        within_dask = limits.in_dask_limit
        with self._changed:
            while True:
                available = room(None, self._worker)
                needs = partial(_needed, parts, limits.template)
                needed = needs(available.templates)
                others = [seat for seat in self._seats.values() if seat.token != parts.token]
                sizes = [(seat.needs(available.templates), share_bytes(seat.pid)) for seat in others]
                used_bytes = sum(max(size) for size in sizes)
                unseen = sum(max(0, whole - own) for whole, own in sizes)  # of those that start
                left = available.bytes - used_bytes if within_dask else 1 << 62
                left = left if available.left is None else min(left, available.left - unseen)
                if needed <= left:
                    self._seats[parts.token].needs = needs
                    return
                if not self._drop_unused():
                    break
        raise PredictionError(
            f"A process for model {parts.name!r} takes {format_bytes(needed)}, and Dask worker {self._worker.address} "
            f"has {format_bytes(max(0, left))} left; its other model processes take {format_bytes(used_bytes)}.",
            "That is what its memory limit leaves before Dask writes results to disk, less its templates and shared "
            "memory, or what is left of its container's limit."
            if within_dask
            else "That is what is left of its container's limit.",
            "Use fewer Dask workers with more memory each, free what is persisted, or a smaller model"
            + ("; or set train.memory.limit, which leaves the container's limit alone." if within_dask else "."),
        )


def _needed(parts: ModelParts, template: TemplateSettings, templates: Mapping[str, int]) -> int:
    """Bytes that a model's process takes besides a template, which has taken its part if it is there."""
    framework = FRAMEWORK_BYTES.get(parts.kind, FRAMEWORK_BYTES_ELSE)
    shared = min(int(SHARED * framework), templates.get(name_of(template.imported(imports_of(parts))), 0))
    # The parts lie in the Dask worker already; the process holds them twice until its variables are made of them.
    return framework - shared + parts.nbytes + parts.opened_bytes


class _Seat:
    """The place of one model's process, also while there is none yet."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.users = 0
        self.used = time.monotonic()
        self.watched = False  # whether a later check looks if it is unused
        self.needs: Callable[[Mapping[str, int]], int] = lambda _: 0  # bytes that its process was let start with
        self._starting = threading.Lock()
        self._process: ModelProcess | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None and not self._process.ended else 0

    @property
    def name(self) -> str:
        return self._process.name if self._process is not None else "one that starts"

    def process(self, processes: ModelProcesses, parts: ModelParts, limits: PredictLimits) -> ModelProcess:
        """Return the process, started by the first caller; the others wait for as long as a start may take."""
        with self._starting:
            if self._process is None or self._process.ended:
                self._process = processes.make(parts, limits)
            return self._process

    def end(self, why: str) -> None:
        if self._process is not None:
            self._process.end(why)
