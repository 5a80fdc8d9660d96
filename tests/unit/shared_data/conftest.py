"""What these tests share: a cluster in this process, in whose one pool nothing may be left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from distributed import Client

from dask_train.cluster.peer import Peer
from dask_train.cluster.plugin import ensure_plugin
from dask_train.data import pool as pool_module
from dask_train.shared_data.published import as_source, computed
from dask_train.shared_data.run_data import DataSetOnDask
from dask_train.shared_data.segments import SharedSegments


@pytest.fixture(scope="module")
def client(local_clusters: Callable[..., Any], own_pool: Callable[..., Any], plugins_by_name: None) -> Iterator[Client]:
    """A client of two Dask workers with a thread each, in this process."""
    with own_pool(0.05) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_module, "_pool", pool)
        with local_clusters() as make, Client(make(2, processes=False)) as client:
            yield client


@pytest.fixture
def peer(client: Client) -> Peer:
    """The client, of a scheduler that has the plug-in."""
    peer = Peer(client)
    peer.run(ensure_plugin, peer)
    return peer


@pytest.fixture
def shared(peer: Peer) -> Callable[..., SharedSegments]:
    """Puts a data set into shared memory: ``shared(X, y)``; it stays while somebody has what this gives."""

    def put(*data: Any) -> SharedSegments:
        source: Any = as_source("data", data[0] if len(data) == 1 else data)
        found: SharedSegments = peer.run(computed, peer, "data", DataSetOnDask(peer, "data", source))
        return found

    return put
