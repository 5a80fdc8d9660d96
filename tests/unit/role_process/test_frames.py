"""Messages as bytes, and back."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_train.role_process.frames import FrameReader, encode

MESSAGES = st.lists(st.dictionaries(st.text(max_size=3), st.binary(max_size=50) | st.none(), max_size=3), max_size=5)


@given(MESSAGES, st.lists(st.integers(1, 40), min_size=1))
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
