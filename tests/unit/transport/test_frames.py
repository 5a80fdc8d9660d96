"""Messages as bytes, and back."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.transport.frames import MAX_DESCRIPTORS, Files, FrameReader, descriptors_of, encode, messages_from, send

MESSAGES = st.lists(st.binary(max_size=60) | st.none(), max_size=5)


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_however_the_stream_is_cut(messages, cuts):
    stream = b"".join(map(encode, messages))
    reader, found, position, turn = FrameReader(), [], 0, 0
    while position < len(stream):
        length = cuts[turn % len(cuts)]
        found += reader.feed(stream[position : position + length])
        position, turn = position + length, turn + 1
    assert found == messages
    assert reader.feed(b"") == []


def test_a_message_comes_when_it_is_complete():
    reader = FrameReader()
    data = encode({"kind": "progress"})
    assert reader.feed(data[:-1]) == []
    assert reader.feed(data[-1:] + data[:4]) == [{"kind": "progress"}]
    assert reader.feed(data[4:]) == [{"kind": "progress"}]


def test_arrays_do_not_hold_the_stream():
    reader = FrameReader()
    ((first,), (second,)) = (reader.feed(encode({"x": np.full(1000, value)})) for value in (1, 2))
    assert (first["x"].sum(), second["x"].sum()) == (1000, 2000)


@dataclass(frozen=True, kw_only=True)
class Brought:
    """A message with files."""

    text: str
    data: Files | None = None


def test_files_come_with_the_messages_that_bring_them(no_leaks):
    with no_leaks():
        ours, theirs = socket.socketpair()
        pipe = os.pipe()
        inodes = [os.fstat(end).st_ino for end in pipe]
        counts = (0, 1, MAX_DESCRIPTORS + 1, 2)
        messages = [
            Brought(text=str(count), data=Files(descriptors=[pipe[number % 2] for number in range(count)]))
            for count in counts
        ]
        sending = Thread(target=lambda: [send(ours, message) for message in [*messages, Brought(text="bare")]])
        sending.start()
        came = messages_from(theirs)
        for count in counts:
            message = next(came)
            assert message.text == str(count)
            found = [os.fstat(descriptor).st_ino for descriptor in descriptors_of(message)]
            assert found == [inodes[number % 2] for number in range(count)]
            for descriptor in descriptors_of(message):
                os.close(descriptor)
        assert next(came) == Brought(text="bare")
        sending.join(60)
        ours.close()
        assert list(came) == [], "the other side is gone"
        for end in (theirs.fileno(), *pipe):
            os.close(end)
        theirs.detach()


def test_files_that_can_not_be_opened_are_an_error(no_leaks, no_descriptors):
    """Rather than those of the message that follows, or none."""
    with no_leaks():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            send(ours, Brought(text="both", data=Files(descriptors=[0, 0])))
            with no_descriptors(), pytest.raises(OSError, match="too many open files"):
                next(messages_from(theirs))


@pytest.mark.parametrize("num_refusals", [3, 1000])
def test_files_wait_for_room_in_the_system_for_as_long_as_the_socket(no_leaks, monkeypatch, num_refusals):
    send_fds, refusals = socket.send_fds, [errno.ETOOMANYREFS] * num_refusals

    def refuse(*args):
        if refusals:
            raise OSError(refusals.pop(), "no room")
        return send_fds(*args)

    monkeypatch.setattr(socket, "send_fds", refuse)
    with no_leaks():
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.settimeout(60.0 if num_refusals == 3 else 0.1)
            if num_refusals == 3:
                send(ours, Brought(text="one", data=Files(descriptors=[0])))
                os.close(*descriptors_of(next(messages_from(theirs))))
            else:
                with pytest.raises(OSError, match="no room"):
                    send(ours, Brought(text="one", data=Files(descriptors=[0])))
