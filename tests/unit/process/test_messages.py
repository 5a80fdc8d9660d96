"""Messages on their way: plain through the scheduler, understood at its ends, each by somebody."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from distributed.protocol import dumps, loads

from dask_train.data.stream import Stream
from dask_train.driver.agent_messages import HANDLERS
from dask_train.process import messages
from dask_train.process.messages import Answer, CallFunction, GroupComputed, Mapped, all_messages, from_plain, to_plain
from dask_train.run.messages import DataFailed, DataProgressed, Message, RoleProcess, StartProcess, Stop, WorkerLost
from dask_train.transport.frames import descriptors_of, with_descriptors
from dask_train.worker.agent import _OBEYED

OF = RoleProcess("worker", 3, 1)
# Of each field that goes through the scheduler a value as it is there.
FIELDS: dict[str, Any] = {
    "account": ((1, 2), (3, 4)),
    "covers": (("run", "worker", ((1, 2),)),),
    "keys": (("x-1", 0), "y"),
    "parts": ((3, ("x-1", 0), ("tcp://a:1",)),),
    "where": (("tcp://a:1", "tcp://b:1"), ()),
    "peers": {"worker": ("h:1", "h:2")},
    "scores": ({"loss": 0.5, "rank": 1},),
    "stream": Stream(0, 1, 2, "partition", 7),
}
BY_TYPE: dict[str, Any] = {"str": "text", "int": 7, "float": 0.5, "bool": True, "bytes": b"\0\xff"}
# Between an agent and its role processes alone.
LOCAL = {messages.BeginRole, messages.CallFunction, messages.Answer, messages.RowsWanted}
ROOTS = {messages.Question}
# What the three parties take without a table: of no role, or before there is a process.
BESIDE = {
    WorkerLost, DataProgressed, DataFailed, messages.DataSetPlaces,
    StartProcess, Stop,
}  # fmt: skip


def made(kind: type[Message]) -> Message:
    """A message with something in each field."""
    return kind(**{each.name: FIELDS.get(each.name, BY_TYPE.get(str(each.type))) for each in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", sorted(set(all_messages()) - LOCAL - ROOTS, key=str))
def test_messages_come_through_the_scheduler_as_they_were(kind):
    message = made(kind)
    plain = loads(dumps(to_plain(message, OF)))  # as Dask sends it
    assert from_plain(plain) == (message, OF)
    assert plain == from_msgpack(plain), "nothing that a scheduler would have to import"
    assert from_plain(to_plain(message)) == (message, None)


def from_msgpack(plain: Any) -> Any:
    import msgpack

    return msgpack.unpackb(msgpack.packb(plain), use_list=False, strict_map_key=False)


def test_each_message_is_understood_by_somebody():
    known = set(HANDLERS) | set(_OBEYED) | LOCAL | ROOTS | BESIDE
    assert set(all_messages()) == known


def test_messages_are_values():
    for kind in all_messages():
        assert dataclasses.is_dataclass(kind)
        with pytest.raises(dataclasses.FrozenInstanceError):
            object.__new__(kind).anything = 1


@pytest.mark.parametrize("kind", [CallFunction, Answer])
def test_descriptors_get_the_numbers_of_the_other_side(kind):
    data = Mapped(table=None, held=None, descriptors=[5, 6])
    message = made(kind)
    message = dataclasses.replace(message, data=data)
    assert descriptors_of(message) == [5, 6]
    assert descriptors_of(with_descriptors(message, [8, 9])) == (8, 9)
    bare = dataclasses.replace(message, data=None)
    assert descriptors_of(bare) == ()
    assert with_descriptors(bare, []) is bare


def test_an_answer_repeats_the_question():
    wanted = messages.GroupWanted(question=4, stream=FIELDS["stream"], group=2, needed_from=1)
    computed = GroupComputed(**messages.fields_of(wanted), schema=b"s")
    assert (computed.question, computed.stream, computed.group) == (4, FIELDS["stream"], 2)


def test_arrays_are_for_the_socket_alone():
    rows = messages.RowsWanted(stream=FIELDS["stream"], partition=np.arange(2), row=np.arange(2))
    assert rows.asks_for == "rows from other hosts"
