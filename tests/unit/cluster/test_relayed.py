"""Values of a client that come by way of the scheduler, piece by piece."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dask_train.cluster import relayed
from dask_train.errors import DataError
from dask_train.transport.served_values import unpacked

X = np.arange(1000.0)


class Cluster:
    """A client and a Dask worker, with the scheduler between them; counts the bytes that it passes on."""

    id = "client-1"

    def __init__(self, values):
        self.values, self.passed, self.handlers = values, [], {}
        self.address = "tcp://worker"

    def subscribe_topic(self, topic, handler):
        self.handlers[topic] = handler

    def log_event(self, topic, question):
        def answer():
            asyncio.run(relayed._answer(self, self.find, question))

        threading.Thread(target=answer).start()

    async def on_workers(self, function, *args, workers, on_error):
        assert (workers, on_error) == ([self.address], "ignore")
        self.passed.append(None if args[1] is None else len(args[1][2]))
        function(*args)

    def find(self, name, number):
        return self.values.get((name, number))


def test_pieces_are_put_together(monkeypatch, no_leaks):
    monkeypatch.setattr(relayed, "PIECE_BYTES", 3000)
    cluster = Cluster({("rows", 2): {"x": X, "empty": X[:0]}})
    with no_leaks():
        found = unpacked(relayed.ask(cluster, "client-1", "rows", 2))
    np.testing.assert_array_equal(found["x"], X)
    assert found["empty"].shape == (0,)
    assert max(cluster.passed) == 3000
    assert sum(cluster.passed) >= X.nbytes


def test_rows_that_change_between_two_pieces_are_told_of(monkeypatch):
    """Some versions of pandas put a frame's columns together where it is only read."""
    monkeypatch.setattr(relayed, "PIECE_BYTES", 3000)
    frame = pd.DataFrame({"a": X})
    for name in ("b", "c"):
        frame[name] = X
    cluster = Cluster({})

    cluster.find = lambda *_: frame.copy() if cluster.passed else frame  # a copy has its columns together
    with pytest.raises(DataError, match="Rows of the client client-1 have changed while they were sent"):
        relayed.ask(cluster, "client-1", "rows", 0)


def test_rows_that_are_gone_are_told_of():
    with pytest.raises(DataError, match="client-1 holds the rows no more") as raised:
        relayed.ask(Cluster({}), "client-1", "rows", 0)
    assert "Pass the rows again" in str(raised.value)


def test_a_client_that_does_not_answer_is_told_of(monkeypatch):
    monkeypatch.setattr(relayed, "PATIENCE_S", 0.05)
    silent = SimpleNamespace(address="tcp://worker", log_event=lambda *_: None)
    with pytest.raises(DataError, match=r"has not sent the rows that it holds within 0.05 s"):
        relayed.ask(silent, "client-1", "rows", 0)
    assert relayed._waiting == {}


def test_a_client_answers_once_however_often_it_is_asked_to():
    cluster = Cluster({})
    relayed.relay(cluster, cluster.find)
    (first,) = cluster.handlers.values()
    relayed.relay(cluster, cluster.find)
    assert list(cluster.handlers.items()) == [("dask-train-rows-client-1", first)]
