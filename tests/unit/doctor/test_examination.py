"""Which connections the doctor tries."""

from __future__ import annotations

import pytest

from dask_train.doctor.examination import _ring


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
