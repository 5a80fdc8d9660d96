"""What MLflow takes: names of some letters, and a server that is there; on a cluster it is used whole."""

from __future__ import annotations

import socket

import pytest

from dask_train.logging import mlflow


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("val_loss", "val_loss"),
        ("lr: a/b-c.d e", "lr: a/b-c.d e"),
        ("f(x)=[1,2]", "f_x___1_2_"),
        ("x" * 300, "x" * 250),
    ],
)
def test_names(name, taken):
    assert mlflow._name(name) == taken


def test_a_server_that_is_not_there_is_seen_at_once(no_leaks):
    with no_leaks(), socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(OSError, match="refused"):
            mlflow._check_reached(uri)
        bound.listen()
        mlflow._check_reached(f"{uri}/below")


@pytest.mark.parametrize("uri", ["file:///tmp/runs", "sqlite:///runs.db", "databricks", "/runs"])
def test_what_is_no_server_is_not_asked(uri, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    mlflow._check_reached(uri)
