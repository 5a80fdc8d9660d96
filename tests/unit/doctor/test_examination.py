"""Which connections the doctor tries."""

from __future__ import annotations

import asyncio

import pytest

from dask_train.doctor import device_probe, examination
from dask_train.doctor.examination import _ask_for_sights, _ring


@pytest.mark.parametrize(
    ("hosts", "pairs"),
    [
        ("", []),
        ("a", [("w0", "w0")]),
        ("aaa", [("w0", "w2")]),
        ("aabb", [("w0", "w2"), ("w2", "w0")]),
        ("abc", [("w0", "w2"), ("w1", "w0"), ("w2", "w1")]),
    ],
)
def test_each_host_is_reached_from_another(hosts, pairs):
    assert _ring({f"w{i}": {"host": host} for i, host in enumerate(hosts)}) == pairs


def test_few_connections_are_tried_in_a_large_cluster():
    assert len(_ring({f"w{i}": {"host": str(i)} for i in range(500)})) == 8


def test_one_dask_worker_of_each_host_with_gpus_is_asked_whether_frameworks_use_them(monkeypatch):
    asked = []

    class Peer:
        async def on_workers(self, see, timeout_s, *, workers):
            asked.extend(workers)
            if workers == ["w3"]:
                raise OSError("it is gone")
            return {workers[0]: {"torch": ""}}

    hosts = {"w0": ("a", ["H100"]), "w1": ("a", ["H100"]), "w2": ("b", []), "w3": ("c", ["H200"])}
    workers = {name: {"host": host, "gpus": gpus} for name, (host, gpus) in hosts.items()}
    found = asyncio.run(_ask_for_sights(Peer(), workers))
    assert (found, len(asked)) == ({"a": {"torch": ""}, "c": "it is gone"}, 2)


def test_this_machine_is_asked_only_where_it_has_gpus(monkeypatch):
    async def see(_):
        return {"torch": "it finds none"}

    monkeypatch.setattr(device_probe, "see", see)
    monkeypatch.setattr(examination.health_probe, "_gpus", lambda: ([], ""))
    assert examination.examine_here().sights == {}
    monkeypatch.setattr(examination.health_probe, "_gpus", lambda: (["H100"], ""))
    (found,) = examination.examine_here().sights.values()
    assert found == {"torch": "it finds none"}
