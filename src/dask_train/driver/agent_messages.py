"""What agents, the scheduler and other clients tell a driver: as events of its run, or questions that are answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from dask_train.collections import check_data
from dask_train.driver.computing import LOOKS, while_computed
from dask_train.driver.dispatch import Dispatch
from dask_train.driver.run_context import RunContext
from dask_train.errors import ClosedError, DataError
from dask_train.process import messages
from dask_train.process.messages import fields_of
from dask_train.run.events import AwaitsClient, Progressed
from dask_train.run.messages import (
    CannotGoOn,
    DataFailed,
    DataProgressed,
    Ended,
    Exited,
    Failed,
    Loaded,
    Meets,
    Message,
    Ready,
    RoleProcess,
    Shared,
    Started,
    Stop,
    WorkerLost,
)
from dask_train.run.state import ALIVE, RolePhase

# How often a role's progress is noted; reports may come thousands a second.
PROGRESS_S = 1.0


class AgentMessages:
    """Handles the messages of agents: as events of the run, records in its history, or questions to answer."""

    def __init__(self, context: RunContext, dispatch: Dispatch) -> None:
        self._context, self._dispatch = context, dispatch
        self._awaits: dict[RoleProcess, bool] = {}  # which attempt of a role awaits the client

    def handle(self, message: Message, of: RoleProcess | None) -> None:
        """Handle a message of an agent, the scheduler or another client."""
        match message:
            case WorkerLost():
                self._dispatch.worker_lost(message.address)
                self._context.happened(message)
            case Stop():
                self._context.happened(message)
            case DataFailed():
                if of is None or self._reads(of):
                    self._context.happened(message)
            case _:
                assert of is not None
                is_account = isinstance(message, messages.Accounted)  # comes late of one that was frozen, and replaced
                if is_account or self._context.state.roles[of.key].attempt == of.attempt:
                    HANDLERS[type(message)](self, of, message)

    def _reads(self, of: RoleProcess) -> bool:
        """Return whether a role process still reads; the data of one that has ended, or is killed, is released."""
        role = self._context.state.roles[of.key]
        return role.attempt == of.attempt and role.phase in ALIVE and role.phase is not RolePhase.KILLED

    # Where the role is

    def _turned(self, of: RoleProcess, message: Message) -> None:
        self._context.happened(message, of)

    def _ended(self, of: RoleProcess, message: Ended) -> None:
        self._context.history.results[of.key] = message
        self._turned(of, Ended())  # the event log keeps no results

    def _failed(self, of: RoleProcess, message: Failed) -> None:
        self._context.history.raised[of.key] = message
        self._turned(of, message)

    # What it does

    def _moved(self, of: RoleProcess, message: messages.Progress | messages.Reported | messages.Value) -> None:
        if self._context.history.moved(of.key, message, self._context.now(), PROGRESS_S):
            self._context.happened(Progressed(), of)
        known = self._awaits.get(of, False)  # the state may be some events behind
        awaits = message.awaits_client if isinstance(message, messages.Progress) else known
        if awaits != known:
            self._awaits[of] = awaits
            self._context.happened(AwaitsClient(awaits=awaits), of)

    def _noted(self, of: RoleProcess, message: Message) -> None:
        self._context.history.record(of, message)

    # What it asks for

    def _data_set_wanted(self, of: RoleProcess, wanted: messages.DataSetWanted) -> None:
        self._context.spawn(self._open_data_set(of, wanted))

    async def _open_data_set(self, of: RoleProcess, wanted: messages.DataSetWanted) -> None:
        question = fields_of(wanted)
        try:
            async with self._waits(of, self._context.data.own_keys, messages.DataSetFound(**question, to_come=True)):
                number = await self._context.data.open(wanted.name, partial(check_data, sparse=True))
            self._context.history.files_skipped(self._context.data.num_skipped())
        except DataError as error:
            self._dispatch.answer(of, messages.DataSetFound(**question, error=str(error)))
        else:
            if self._context.state.roles[of.key].attempt != of.attempt:  # it was replaced, and may wait for room
                return
            self._dispatch.tell_of(of, number, self._context.data.data_set(number))
            self._dispatch.answer(of, messages.DataSetFound(**question, number=number))

    def _group_wanted(self, of: RoleProcess, wanted: messages.GroupWanted) -> None:
        self._context.spawn(self._open_group(of, wanted))

    async def _open_group(self, of: RoleProcess, wanted: messages.GroupWanted) -> None:
        question, data = fields_of(wanted), self._context.data.by_role[of.role]

        try:
            async with self._waits(of, data.own_keys, messages.GroupComputed(**question, to_come=True)):
                schema, parts = await data.group(of.role, of.rank, wanted.stream, wanted.group, wanted.needed_from)
        except ClosedError as error:
            self._dispatch.answer(of, messages.GroupComputed(**question, error=str(error)))
        except DataError as error:
            self._context.history.driver_error = error.__cause__
            self._context.happened(DataFailed(error=str(error)))
        else:
            self._dispatch.answer(of, messages.GroupComputed(**question, schema=schema, parts=parts))

    def _waits(
        self, of: RoleProcess, keys: Callable[[], Sequence[Any]], to_come: Message
    ) -> AbstractAsyncContextManager[None]:
        """Tell a role that waits for data that Dask computes these keys, as long as it does: it has not stalled."""

        def tell() -> None:
            self._context.happened(Progressed(), of)
            self._dispatch.answer(of, to_come)

        return while_computed(self._context.peer, keys, self._context.state.plan.progress_s / LOOKS, tell)

    def _stream_left(self, of: RoleProcess, message: messages.StreamLeft) -> None:
        self._context.data.by_role[of.role].left(of.role, of.rank, message.stream)


HANDLERS: dict[type[Message], Callable[[AgentMessages, RoleProcess, Any], None]] = {
    **dict.fromkeys((Ready, Loaded, DataProgressed, Started, Meets, Shared, CannotGoOn, Exited), AgentMessages._turned),
    Ended: AgentMessages._ended,
    Failed: AgentMessages._failed,
    messages.Progress: AgentMessages._moved,
    messages.Reported: AgentMessages._moved,
    messages.Value: AgentMessages._moved,
    messages.Pictured: AgentMessages._noted,
    messages.Notice: AgentMessages._noted,
    messages.WentOn: AgentMessages._noted,
    messages.Accounted: AgentMessages._noted,
    messages.DataSetWanted: AgentMessages._data_set_wanted,
    messages.GroupWanted: AgentMessages._group_wanted,
    messages.StreamLeft: AgentMessages._stream_left,
}
