"""Which backend and device a rank gets, and which interface carries its host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.frameworks.torch.group import choose_backend, interface_of


@pytest.mark.parametrize(
    ("places", "backend", "devices"),
    [
        ([("a", "", 0)], "gloo", [0]),
        ([("a", "", 0), ("a", "", 0), ("b", "", 0)], "gloo", [0, 1, 0]),
        ([("a", "", 2), ("a", "", 2), ("b", "", 2)], "nccl", [0, 1, 0]),
        ([("a", "0,1", 2), ("a", "1,0", 2)], "nccl", [0, 0]),  # as dask-cuda gives them
        ([("a", "", 1), ("a", "", 1)], "gloo", [0, 0]),  # two ranks on one device
        ([("a", "", 1), ("b", "", 0)], "gloo", [0, 0]),  # one host without
    ],
)
def test_backend_and_devices(places, backend, devices):
    assert [choose_backend(places, rank) for rank in range(len(places))] == [(backend, device) for device in devices]


def test_the_interface_that_carries_a_host():
    def carried(*addresses):
        return [SimpleNamespace(address=address) for address in addresses]

    interfaces = {"lo": carried("127.0.0.1", "::1"), "eth0": carried("10.1.2.3", "fe80::1%eth0")}
    assert interface_of("127.0.0.1", interfaces) == "lo"
    assert interface_of("10.1.2.3", interfaces) == "eth0"
    assert interface_of("fe80::1", interfaces) == "eth0"
    assert interface_of("10.9.9.9", interfaces) == ""
    assert interface_of("", {}) == ""
