"""``fit`` over two hosts of a cluster with TLS: what goes between them is encrypted, too."""

from __future__ import annotations

import gc
import json
import ssl

import dask.array as da
import keras
import numpy as np
import pytest

import dask_train as dt

X = np.random.default_rng(0).normal(size=(300, 5)).astype("f4")
Y = (X[:, :3] * [1, 2, 3]).argmax(1)


@pytest.fixture(scope="module")
def cluster(hosts, make_certificates, no_leaks):
    with no_leaks(), hosts(2, tls=make_certificates()) as cluster:
        yield cluster


class Sockets(keras.callbacks.Callback):
    """Notes which TCP connections the first worker has while it trains, and whether each is under TLS."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        import socket

        found = []
        for one in gc.get_objects():
            if isinstance(one, socket.socket) and one.fileno() >= 0 and one.family == socket.AF_INET:
                try:
                    found.append((one.getpeername()[0], isinstance(one, ssl.SSLSocket)))
                except OSError:
                    continue  # it listens, or only holds a port
        with open(self.path, "w") as file:
            json.dump(found, file)


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
    connections = json.loads(path.read_text())
    assert {peer for peer, _ in connections} & set(cluster.addresses), "the first worker has one to the other host"
    assert all(encrypted for _, encrypted in connections)
    assert result.ledger.trained == 600
    if not servers:
        alone = model()
        alone.fit(X, Y, verbose=0, **arguments)
        for one, other in zip(alone.get_weights(), trained.get_weights(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5)
