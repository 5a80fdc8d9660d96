"""Which device and backend a rank gets, what its environment says, and which interface carries its host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_train.frameworks.torch.environment import Seat, choose_backend, interface_of, variables_of


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
    places = [Seat(*place) for place in places]
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


def told(seats, name):
    return [variables_of(rank, seats, "[fe80::1]:4000").get(name, "") for rank in range(len(seats))]


CPUS = [Seat("a", "", 0), Seat("b", "", 0), Seat("a", "", 0)]
GPUS = [Seat("a", "", 2), Seat("b", "", 2), Seat("a", "", 2), Seat("b", "", 2)]
ROTATED = [Seat("a", "0,1", 2), Seat("a", "1,0", 2)]


@pytest.mark.parametrize(
    ("name", "cpus", "gpus", "rotated"),
    [
        ("RANK", "012", "0123", "01"),
        ("WORLD_SIZE", "333", "4444", "22"),
        ("LOCAL_RANK", "001", "0011", "00"),
        ("LOCAL_WORLD_SIZE", "212", "2222", "11"),
        ("GROUP_RANK", "010", "0101", "01"),
        ("NODE_RANK", "010", "0101", "01"),
        ("GROUP_WORLD_SIZE", "222", "2222", "22"),
        ("PL_TRAINER_DEVICES", "333", "2222", "11"),
        ("LT_NUM_NODES", "111", "2222", "22"),
    ],
)
def test_ranks_are_told_as_by_torchrun(name, cpus, gpus, rotated):
    assert ["".join(told(seats, name)) for seats in (CPUS, GPUS, ROTATED)] == [cpus, gpus, rotated]


def test_the_master_and_the_run_are_the_same_for_all():
    for name, value in (
        ("MASTER_ADDR", "fe80::1"),
        ("MASTER_PORT", "4000"),
        ("TORCHELASTIC_RUN_ID", "dask-train-4000"),
    ):
        assert told(CPUS, name) == [value] * 3


@pytest.mark.parametrize("seats", [[*GPUS, Seat("c", "", 2)], [Seat("a", "", 1)] * 2], ids=["uneven", "too few"])
def test_lightning_is_left_alone_where_its_nodes_would_be_uneven(seats):
    assert set(told(seats, "PL_TRAINER_DEVICES")) == {""}


def test_accelerate_is_told_that_there_are_cpus_only():
    assert told(CPUS, "ACCELERATE_USE_CPU") == ["true"] * 3
    assert told(GPUS, "ACCELERATE_USE_CPU") == [""] * 4
