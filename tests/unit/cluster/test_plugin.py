"""Plug-ins on their way to a scheduler: each once, and with all the code that they need."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from typing import Any

from dask_train.cluster.plugin import ensure_plugin
from dask_train.tensorflow_network.plugin import ensure_networks_plugin


class DaskEnd:
    """A client, which knows the scheduler's id."""

    def __init__(self) -> None:
        self.scheduler_id = "s1"

    def scheduler_info(self) -> dict[str, str]:
        return {"id": self.scheduler_id}


class Peer:
    """Keeps what is sent to the scheduler."""

    is_client = True

    def __init__(self) -> None:
        self.dask_end = DaskEnd()
        self.sent: list[dict[str, Any]] = []

    async def call(self, handler: str, **message: Any) -> None:
        assert handler == "register_scheduler_plugin"
        self.sent.append(message)

    @property
    def names(self) -> list[str]:
        return [message["name"] for message in self.sent]


def both(peer: Any) -> None:
    async def ensure() -> None:
        await ensure_networks_plugin(peer)
        await ensure_plugin(peer)

    asyncio.run(ensure())


def test_each_is_sent_once_to_each_scheduler():
    peer = Peer()
    both(peer)
    both(peer)
    assert peer.names == ["dask-train-networks", "dask-train"]
    assert all(message["idempotent"] for message in peer.sent)
    peer.dask_end.scheduler_id = "s2"
    both(peer)
    assert peer.names == 2 * ["dask-train-networks", "dask-train"]


WITHOUT_DASK_TRAIN = """
import pickle, sys
sys.modules["dask_train"] = None
from distributed.multi_lock import MultiLockExtension
from types import SimpleNamespace
scheduler = SimpleNamespace(workers={}, plugins={}, handlers={"adaptive_target": int}, extensions={})
scheduler.extensions["multi_locks"] = MultiLockExtension(scheduler)
for data in pickle.load(sys.stdin.buffer):
    plugin = pickle.loads(data)
    plugin.start(scheduler)
    print(plugin.name, sum(name.startswith("train_") for name in scheduler.handlers) > 0)
"""


def test_a_scheduler_needs_no_dask_train():
    peer = Peer()
    both(peer)
    plugins = pickle.dumps([message["plugin"] for message in peer.sent])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DASK_TRAIN], input=plugins, capture_output=True, timeout=60, check=False
    )
    assert done.stdout.decode().split() == ["dask-train-networks", "True", "dask-train", "True"], done.stderr.decode()
