"""Two hosts of a cluster with TLS: what goes between them in ``fit`` and in collectives is encrypted, too."""

from __future__ import annotations

import gc
import json
import ssl

import dask.array as da
import keras
import numpy as np
import pytest

import dask_train as dt
from dask_train.transport import served_values

X = np.random.default_rng(0).normal(size=(300, 5)).astype("f4")
Y = (X[:, :3] * [1, 2, 3]).argmax(1)


@pytest.fixture(scope="module")
def cluster(hosts, make_certificates, no_leaks):
    with no_leaks(), hosts(2, tls=make_certificates()) as cluster:
        yield cluster


def connections():
    """The TCP connections of this process: their peers, and whether each is under TLS."""
    import socket

    found = []
    for one in gc.get_objects():
        if isinstance(one, socket.socket) and one.fileno() >= 0 and one.family == socket.AF_INET:
            try:
                found.append((one.getpeername()[0], isinstance(one, ssl.SSLSocket)))
            except OSError:
                continue  # it listens, or only holds a port
    return found


class Sockets(keras.callbacks.Callback):
    """Notes which TCP connections the first worker has while it trains, and whether each is under TLS."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        with open(self.path, "w") as file:
            json.dump(connections(), file)


def model():
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


@pytest.mark.parametrize("servers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_what_goes_between_hosts_is_encrypted(cluster, tmp_path, servers):
    data = da.from_array(X, chunks=(70, 5)), da.from_array(Y, chunks=70)
    trained, path = model(), tmp_path / "sockets"
    arguments = {"batch_size": 32, "epochs": 2, "shuffle": False}
    result = dt.fit(
        trained, *data, workers=2, ps=servers, client=cluster.client, callbacks=[Sockets(str(path))], **arguments
    )
    seen = json.loads(path.read_text())
    assert {peer for peer, _ in seen} & set(cluster.addresses), "the first worker has one to the other host"
    assert all(encrypted for _, encrypted in seen)
    assert result.ledger.trained == 600
    if not servers:
        alone = model()
        alone.fit(X, Y, verbose=0, **arguments)
        for one, other in zip(alone.get_weights(), trained.get_weights(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5)


def test_what_role_functions_do_together_is_encrypted(cluster):
    def worker(session):
        x = np.arange(30_000.0) * (session.rank + 1)
        totals = session.all_reduce([x, 1]), session.broadcast(x, root=1), session.all_gather(x[: 1 + session.rank])
        rows = session.all_reduce(sum(map(len, session.partitions())))
        return totals, rows, connections()

    found = dt.train(worker, roles={"worker": 3}, data=da.from_array(X, chunks=(70, 5)), client=cluster.client)
    for ((total, ranks), root, gathered), rows, seen in found.results["worker"]:
        np.testing.assert_array_equal(total, np.arange(30_000.0) * 6)
        np.testing.assert_array_equal(root, np.arange(30_000.0) * 2)
        assert (ranks, gathered.tolist(), rows) == (3, [0.0, 0.0, 2.0, 0.0, 3.0, 6.0], 300)
        assert all(encrypted for _, encrypted in seen)
    assert any(seen for _, _, seen in found.results["worker"])


def test_rows_of_the_client_come_to_other_hosts_encrypted(cluster, monkeypatch):
    """Straight from the client: each connection on which it serves rows is under TLS."""
    served, send = [], served_values._send

    def noted(connection, buffers):
        served.append((isinstance(connection, ssl.SSLSocket), sum(buffer.nbytes for buffer in buffers)))
        send(connection, buffers)

    monkeypatch.setattr(served_values, "_send", noted)
    rows = np.random.default_rng(1).random((40_000, 30))
    found = dt.train(
        lambda session: sum(float(part.sum()) for part in session.partitions()),
        roles={"worker": 2},
        data=rows,
        client=cluster.client,
        progress=False,
    )
    assert sum(found.results["worker"]) == pytest.approx(rows.sum())
    assert all(encrypted for encrypted, _ in served)
    assert sum(sent for _, sent in served) >= rows.nbytes
