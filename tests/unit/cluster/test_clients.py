"""Which client is used, and what is none."""

from __future__ import annotations

import numpy as np
import pytest
from distributed import Client

import dask_train as dt
from dask_train.cluster import clients
from dask_train.cluster.clients import client_or_local, client_or_none

ADDRESS = "tcp://10.0.0.1:8786"


@pytest.mark.parametrize(
    "call",
    [
        lambda: client_or_none(ADDRESS),
        lambda: client_or_local(ADDRESS, 1),
        lambda: dt.train(lambda _: 1, roles={"worker": 1}, client=ADDRESS),
        lambda: dt.predict(lambda x: x, np.zeros((2, 2)), client=ADDRESS),
        lambda: dt.predict_to("there", lambda x: x, np.zeros((2, 2)), client=ADDRESS),
        lambda: dt.publish_dataset(np.zeros((2, 2)), name="x", client=ADDRESS),
        lambda: dt.get_dataset("x", client=ADDRESS),
        lambda: dt.list_datasets(client=ADDRESS),
        lambda: dt.unpublish_dataset("x", client=ADDRESS),
        lambda: dt.board("scores", client=ADDRESS),
    ],
)
def test_an_address_is_no_client(call):
    with pytest.raises(TypeError, match=r"client is 'tcp://10\.0\.0\.1:8786'; pass a distributed\.Client"):
        call()


def test_what_the_program_has_seeded_is_left_alone_from_the_first_call_on(monkeypatch):
    called = []
    monkeypatch.setattr(clients, "leave_to_program", lambda: called.append("left"))
    client_or_none(None)
    assert called == ["left"]
    monkeypatch.setattr(clients, "start_local_cluster", lambda _: called.append("started"))
    monkeypatch.setattr(clients, "Client", lambda _: "client")
    assert client_or_local(None, 1) == "client"
    assert called == ["left", "left", "started", "left"]


def test_without_any_there_is_none():
    assert client_or_none(None) is None


@pytest.mark.parametrize("status", ["closing", "closed"])
def test_a_closed_client_is_refused_in_words(status):
    client = Client.__new__(Client)
    client.status = status
    with pytest.raises(ValueError, match=f"client is {status}"):
        client_or_local(client, 1)
