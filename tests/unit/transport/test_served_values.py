"""Values that one process serves come to another as they are, to nobody else, and as long as they are served."""

from __future__ import annotations

import errno
import gc
import socket
import weakref

import numpy as np
import pandas as pd
import pytest

from dask_train.errors import LaunchError
from dask_train.transport.connections import Credentials
from dask_train.transport.served_values import PIECE_BYTES, ServedValues, ValueReader, packed, unpacked

KNOWN = Credentials(key=b"known")
X = np.arange(60.0).reshape(12, 5)
VALUES = {
    "array": X,
    "columns first": np.asfortranarray(X),
    "some rows of it": np.asfortranarray(X)[3:7],
    "read only": np.broadcast_to(X[0], (3, 5)),
    "no rows": X[:0],
    "a number": np.float32(3),
    "texts": np.array(["a", "bc", None], object),
    "records": np.zeros(3, [("a", "i4"), ("b", "f8")]),
    "times": np.arange(3).astype("M8[s]"),
    "several pieces": np.arange(PIECE_BYTES // 4, dtype="i4").reshape(2, -1).repeat(2, axis=0),
}
FRAME = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(list("xyz") * 4), "c": list("abcd") * 3}, index=range(5, 17))


@pytest.fixture
def served(no_leaks):
    """Serves values; nothing is left of it."""
    servers = []

    def serve(*values):
        servers.append(ServedValues(values, "127.0.0.1", KNOWN))
        return servers[-1]

    with no_leaks():
        yield serve
        for server in servers:
            server.stop()
            server.join()


@pytest.mark.parametrize("name", VALUES)
def test_arrays_come_as_they_are(served, name):
    server = served(0, VALUES[name])
    with ValueReader(server.address, KNOWN, 10) as reader:
        found = reader.read(1)
    assert found.dtype == VALUES[name].dtype
    np.testing.assert_array_equal(found, VALUES[name])


def test_frames_come_as_they_are(served):
    server = served(FRAME, FRAME.iloc[3:6], FRAME.b)
    with ValueReader(server.address, KNOWN, 10) as reader:
        pd.testing.assert_frame_equal(reader.read(1), FRAME.iloc[3:6])
        pd.testing.assert_frame_equal(reader.read(0), FRAME)
        pd.testing.assert_series_equal(reader.read(2), FRAME.b)


def test_several_read_at_a_time(served, in_threads):
    server = served(X, X + 1)

    def read():
        with ValueReader(server.address, KNOWN, 10) as reader:
            return [reader.read(number).sum() for number in (0, 1, 0)]

    assert in_threads(read, read, read) == [[X.sum(), X.sum() + X.size, X.sum()]] * 3


def test_who_does_not_know_the_key_reads_nothing(served):
    with pytest.raises(LaunchError, match=r"does not know the run|No connection"):
        ValueReader(served(X).address, Credentials(key=b"other"), 10)


def test_what_was_stopped_serves_nothing_and_keeps_nothing(served):
    value = X.copy()
    gone, server = weakref.ref(value), served(value)
    del value
    with ValueReader(server.address, KNOWN, 10) as reader:
        assert reader.read(0).sum() == X.sum()
        server.stop()
        server.join()
        with pytest.raises((EOFError, OSError)):
            reader.read(0)
    gc.collect()
    assert gone() is None
    with pytest.raises(LaunchError):
        ValueReader(server.address, KNOWN, 0.3)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ECONNABORTED])
def test_it_serves_though_a_connection_could_not_be_accepted(served, monkeypatch, number):
    accept, failures = socket.socket.accept, [OSError(number, "for now")] * 2

    def accepts(self):
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", accepts)
    with ValueReader(served(X).address, KNOWN, 10) as reader:
        assert reader.read(0).sum() == X.sum()
    assert not failures


def test_a_value_that_there_is_not(served):
    with ValueReader(served(X).address, KNOWN, 10) as reader, pytest.raises((EOFError, OSError)):
        reader.read(1)


def test_the_memory_of_a_value_is_sent_not_copied():
    buffers = packed({"x": X})
    assert any(np.shares_memory(np.frombuffer(buffer), X) for buffer in buffers[1:])
    assert len(buffers[0]) < 1000
    np.testing.assert_array_equal(unpacked(buffers)["x"], X)
