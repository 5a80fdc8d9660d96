"""What a run's roles will take, with templates and without, and whether its data fits beside that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import dask
import pytest

from dask_train.errors import DataError
from dask_train.frameworks.base import Framework
from dask_train.shared_data.budget import RoleMemory, check_budget
from dask_train.worker.room import Room

MIB = 1 << 20


class Large(Framework):
    """Of 400 MiB a process, 300 are its imports."""

    imports = ("large",)
    role_bytes = 400 * MIB
    shared_bytes = 300 * MIB


class Small(Framework):
    """It has no template."""

    role_bytes = 50 * MIB


@pytest.mark.parametrize(
    ("framework", "idle", "num_roles", "num_workers", "expected"),
    [
        (Large(), "0", 4, 2, 1600),
        (Large(), "10 minutes", 4, 2, 1000),  # two templates
        (Large(), "10 minutes", 4, 1, 700),
        (Large(), "10 minutes", 2, 5, 800),  # not more templates than roles
        (Small(), "10 minutes", 4, 2, 200),
    ],
)
def test_what_roles_share_counts_once_a_dask_worker(framework, idle, num_roles, num_workers, expected):
    with dask.config.set({"train.template.idle": idle}):
        assert RoleMemory.of(framework, num_roles).on(num_workers) == expected * MIB


def check(rooms: list[Room], needed: int, roles: RoleMemory) -> None:
    async def on_workers(*_: Any, **__: Any) -> dict[str, Room]:
        return {f"tcp://10.0.0.1:{number}": each for number, each in enumerate(rooms)}

    peer: Any = SimpleNamespace(on_workers=on_workers, dask_end=SimpleNamespace(cluster=None))
    asyncio.run(check_budget(peer, {"worker": needed}, roles))


@pytest.mark.parametrize("contained", [True, False])
def test_a_template_that_is_there_is_not_counted_twice(contained):
    with dask.config.set({"train.template.idle": "10 minutes"}):
        roles = RoleMemory.of(Large(), 4)
    whole = 2000 * MIB
    before = Room(bytes=whole // 2, left=whole if contained else None)
    check([before] * 2, 1000 * MIB, roles)
    with pytest.raises(DataError, match=r"can take 1\.95 GiB, less 0\.98 GiB for 4 role processes"):
        check([before] * 2, 1001 * MIB, roles)
    # Templates of this framework are there by now, of which less is left in each Dask worker and in the container.
    for pids, taken in (((11, 12), 600), ((11, 11), 300)):  # one each, or one that they share
        there = [
            Room(
                bytes=whole // 2 - 300 * MIB,
                left=whole - taken * MIB if contained else None,
                templates={"large": 300 * MIB},
                template_pids={"large": pid},
            )
            for pid in pids
        ]
        check(there, 1000 * MIB, roles)
        with pytest.raises(DataError, match=r"can take 1\.95 GiB, less 0\.98 GiB for 4 role processes"):
            check(there, 1001 * MIB, roles)


def test_a_template_of_another_framework_takes_its_part():
    roles = RoleMemory.of(Small(), 1)
    other = Room(bytes=100 * MIB, left=None, templates={"large": 300 * MIB})
    check([other], 50 * MIB, roles)
    with pytest.raises(DataError, match=r"can take 100\.00 MiB"):
        check([other], 51 * MIB, roles)


def test_a_limit_that_is_set_is_of_data_alone():
    with dask.config.set({"train.template.idle": "10 minutes", "train.memory.limit": "100 MiB"}):
        roles = RoleMemory.of(Large(), 4)
        there = Room(bytes=100 * MIB, left=None, templates={"large": 300 * MIB})
        check([there] * 2, 200 * MIB, roles)
        with pytest.raises(DataError, match=r"2 Dask workers can take 200\.00 MiB"):
            check([there] * 2, 201 * MIB, roles)


def test_what_is_advised_is_not_what_was_done():
    room = Room(bytes=100 * MIB, left=None)

    async def on_workers(*_: Any, **__: Any) -> dict[str, Room]:
        return {"tcp://10.0.0.1:1": room}

    peer: Any = SimpleNamespace(on_workers=on_workers, dask_end=SimpleNamespace(cluster=None))
    sizes, roles = {"datasets validation": 101 * MIB}, RoleMemory.of(Small(), 0)
    with pytest.raises(DataError, match=r"data besides what is streamed takes .* limits\. Pass less of it, use"):
        asyncio.run(check_budget(peer, sizes, roles, streams=True))
    with pytest.raises(DataError, match=r"The run's data takes .* limits\. Pass streaming=True, use"):
        asyncio.run(check_budget(peer, sizes, roles))
