"""Each Dask worker has one plug-in of a kind, however many threads ask for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dask_train.cluster.worker_plugin import OwnPlugin


class Kept(OwnPlugin):
    name = "kept"
    made: list[Any] = []  # noqa: RUF012

    def __init__(self, dask_worker: Any) -> None:
        self.made.append(dask_worker)


def test_it_is_made_once_a_dask_worker(in_threads):
    callbacks: list[Any] = []
    loop = SimpleNamespace(add_callback=callbacks.append)
    first = SimpleNamespace(plugins={}, loop=loop)
    second = SimpleNamespace(plugins={"kept": "of an earlier version"}, loop=loop)
    found = in_threads(*(lambda: Kept.of(first) for _ in range(8)))
    assert len(set(map(id, found))) == 1
    assert Kept.of(second) is Kept.of(second) is not found[0]
    assert Kept.made == [first, second]
    assert first.plugins == {}, "the event loop may just go through them"
    for callback in callbacks:
        callback()
    assert first.plugins == {"kept": found[0]}, "Dask ends it with the Dask worker"
    assert second.plugins == {"kept": Kept.of(second)}
