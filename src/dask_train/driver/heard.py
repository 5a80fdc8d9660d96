"""What agents, the scheduler and other clients tell a driver: as events of its run, or questions that are answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from dask_train.collections import check_data
from dask_train.driver.computing import LOOKS, while_computed
from dask_train.driver.course import Course
from dask_train.driver.dispatch import Dispatch
from dask_train.errors import ClosedError, DataError
from dask_train.process import messages
from dask_train.process.messages import Message, RoleProcess, fields_of
from dask_train.run import events

# How often a role's progress is noted; reports may come thousands a second.
PROGRESS_S = 1.0


class Heard:
    """Notes what was heard of agents, and when."""

    def __init__(self, course: Course, dispatch: Dispatch) -> None:
        self._course, self._dispatch = course, dispatch
        self._awaits: dict[RoleProcess, bool] = {}  # which attempt of a role awaits the client

    def told(self, message: Message, of: RoleProcess | None) -> None:
        """One message of an agent, the scheduler or another client; by this clock, as all deadlines are."""
        match message:
            case messages.WorkerLost():
                self._dispatch.worker_lost(message.address)
                self._course.happened(_event(message, self._course.now()))
            case messages.Stop():
                self._course.happened(events.StopAsked(time=self._course.now(), reason=message.reason))
            case messages.DataFailed() | messages.DataProgressed():
                self._course.happened(_event(message, self._course.now()))
            case _:
                assert of is not None
                if self._course.state.roles[of.key].attempt == of.attempt:
                    _HEARD[type(message)](self, of, message)

    def _happened(self, kind: type[events.RoleEvent], of: RoleProcess, **more: Any) -> None:
        self._course.happened(kind(time=self._course.now(), **of._asdict(), **more))

    # Where the role is

    def _turned(self, of: RoleProcess, message: Message) -> None:
        self._course.happened(_event(message, self._course.now(), of))

    def _ended(self, of: RoleProcess, message: messages.Ended) -> None:
        self._course.history.results[of.key] = message
        self._turned(of, message)

    def _failed(self, of: RoleProcess, message: messages.Failed) -> None:
        self._course.history.raised[of.key] = message
        self._turned(of, message)

    # What it does

    def _moved(self, of: RoleProcess, message: messages.Progress | messages.Reported | messages.Value) -> None:
        if self._course.history.moved(of.key, message, self._course.now(), PROGRESS_S):
            self._happened(events.Progressed, of)
        known = self._awaits.get(of, False)  # the state may be some events behind
        awaits = message.awaits_client if isinstance(message, messages.Progress) else known
        if awaits != known:
            self._awaits[of] = awaits
            self._happened(events.AwaitsClient, of, awaits=awaits)

    def _noted(self, of: RoleProcess, message: Message) -> None:
        self._course.history.told(of, message)

    # What it asks for

    def _data_set_wanted(self, of: RoleProcess, wanted: messages.DataSetWanted) -> None:
        self._course.spawn(self._open_data_set(of, wanted))

    async def _open_data_set(self, of: RoleProcess, wanted: messages.DataSetWanted) -> None:
        question = fields_of(wanted)
        try:
            async with self._waits(of, self._course.data.own_keys, messages.DataSetFound(**question, to_come=True)):
                number = await self._course.data.open(wanted.name, partial(check_data, sparse=True))
            self._course.history.files_skipped(self._course.data.num_skipped())
        except DataError as error:
            self._dispatch.answer(of, messages.DataSetFound(**question, error=str(error)))
        else:
            self._dispatch.tell_of(of, number, self._course.data.opened(number))
            self._dispatch.answer(of, messages.DataSetFound(**question, number=number))

    def _group_wanted(self, of: RoleProcess, wanted: messages.GroupWanted) -> None:
        self._course.spawn(self._open_group(of, wanted))

    async def _open_group(self, of: RoleProcess, wanted: messages.GroupWanted) -> None:
        question, data = fields_of(wanted), self._course.data.by_role[of.role]

        try:
            async with self._waits(of, data.own_keys, messages.GroupComputed(**question, to_come=True)):
                schema, parts = await data.group(of.role, of.rank, wanted.stream, wanted.group, wanted.needed_from)
        except ClosedError as error:
            self._dispatch.answer(of, messages.GroupComputed(**question, error=str(error)))
        except DataError as error:
            self._course.history.driver_error = error.__cause__
            self._course.happened(events.DataLost(time=self._course.now(), error=str(error)))
        else:
            self._dispatch.answer(of, messages.GroupComputed(**question, schema=schema, parts=parts))

    def _waits(
        self, of: RoleProcess, keys: Callable[[], Sequence[Any]], to_come: Message
    ) -> AbstractAsyncContextManager[None]:
        """Tell a role that waits for data that Dask computes these keys, as long as it does: it has not stalled."""

        def tell() -> None:
            self._happened(events.Progressed, of)
            self._dispatch.answer(of, to_come)

        return while_computed(self._course.peer, keys, self._course.state.plan.progress_s / LOOKS, tell)

    def _stream_left(self, of: RoleProcess, message: messages.StreamLeft) -> None:
        self._course.data.by_role[of.role].left(of.role, of.rank, message.stream)


def _event(message: Message, time: float, of: RoleProcess | None = None) -> events.Event:
    """Return the event that a message is, with what the message says of the event's fields."""
    kind = EVENTS[type(message)]
    stamp = {"time": time, **(of._asdict() if of is not None else {})}
    names = [each.name for each in dataclasses.fields(kind) if each.name not in stamp]
    return kind(**stamp, **{name: getattr(message, name) for name in names})


# What becomes an event of the run, with its time and role.
EVENTS: dict[type[Message], type[events.Event]] = {
    messages.Ready: events.RoleReady,
    messages.Loaded: events.DataLoaded,
    messages.Started: events.RoleStarted,
    messages.Meets: events.RoleMeets,
    messages.CannotGoOn: events.RestartNeeded,
    messages.Ended: events.RoleEnded,
    messages.Failed: events.RoleFailed,
    messages.Exited: events.RoleExited,
    messages.WorkerLost: events.DaskWorkerLost,
    messages.DataProgressed: events.PartitionComputed,
    messages.DataFailed: events.DataLost,
}

_HEARD: dict[type[Message], Callable[[Heard, RoleProcess, Any], None]] = {
    messages.Ready: Heard._turned,
    messages.Loaded: Heard._turned,
    messages.Started: Heard._turned,
    messages.Meets: Heard._turned,
    messages.CannotGoOn: Heard._turned,
    messages.Ended: Heard._ended,
    messages.Failed: Heard._failed,
    messages.Exited: Heard._turned,
    messages.Progress: Heard._moved,
    messages.Reported: Heard._moved,
    messages.Value: Heard._moved,
    messages.Pictured: Heard._noted,
    messages.Notice: Heard._noted,
    messages.WentOn: Heard._noted,
    messages.Accounted: Heard._noted,
    messages.DataSetWanted: Heard._data_set_wanted,
    messages.GroupWanted: Heard._group_wanted,
    messages.StreamLeft: Heard._stream_left,
}
