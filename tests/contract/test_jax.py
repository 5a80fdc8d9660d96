"""The JAX adapter, in processes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from dask_train.frameworks.base import Framework
from dask_train.frameworks.jax.adapter import JaxFramework
from dask_train.frameworks.registry import find_framework
from dask_train.testing import FrameworkTests, RoleProcesses, RoleSession


@pytest.fixture(scope="class")
def all_digits() -> Iterator[None]:
    """Numbers of 64 bits stay what they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ENABLE_X64", "1")
        yield


@pytest.mark.usefixtures("all_digits")
class TestJax(FrameworkTests):
    counts: ClassVar = {"worker": 1, "scorer": 1}
    refused = (({"worker": 2, "ps": 1}, r"ps=1 with framework='jax': JAX has no parameter server"),)
    loads = ("jax",)
    gives = frozenset({"mesh"})

    def framework(self) -> Framework:
        return find_framework("jax")

    @staticmethod
    def together(session: RoleSession) -> Any:
        import jax

        mesh = session.mesh
        rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
        total = jax.jit(lambda x: x.sum(), in_shardings=rows)(jax.numpy.ones(8))
        return float(total), mesh.devices.tolist() == jax.local_devices(), jax.distributed.is_initialized()

    def check_together(self, values: Any) -> None:
        assert values == dict.fromkeys(values, (8.0, True, False))


@pytest.mark.usefixtures("all_digits")
class TestJaxDistributed(FrameworkTests):
    counts: ClassVar = {"chief": 1, "worker": 1, "scorer": 1}
    refused = (({"scorer": 1}, "no role that trains, only scorer"),)
    loads = ("jax",)
    gives = frozenset({"mesh"})
    waits = (("chief", 0), ("worker", 0))

    def framework(self) -> Framework:
        return find_framework("jax-distributed")

    @staticmethod
    def together(session: RoleSession) -> Any:
        import jax
        import numpy as np
        from jax.sharding import NamedSharding, PartitionSpec

        if session.me.role == "scorer":
            return jax.distributed.is_initialized()
        mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
        by_rank = NamedSharding(mesh, PartitionSpec("ranks"))
        mine = np.full(1, 1.0 + jax.process_index())
        everyones = jax.make_array_from_process_local_data(by_rank, mine)
        total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(everyones)
        return jax.process_index(), jax.process_count(), session.mesh.size, float(total)

    def check_together(self, values: Any) -> None:
        assert values == {("chief", 0): (0, 2, 1, 3.0), ("worker", 0): (1, 2, 1, 3.0), ("scorer", 0): False}

    @pytest.mark.slow
    def test_batches_keep_shape_dtype_and_values(self) -> None:
        """As without ``jax.distributed``."""
        super().test_batches_keep_shape_dtype_and_values()

    @pytest.mark.slow
    def test_a_peer_that_never_comes(self) -> None:
        """Of either role that waits, each by JAX's own deadlines."""
        super().test_a_peer_that_never_comes()


def test_what_a_loss_means() -> None:
    alone, together = JaxFramework(), JaxFramework(distributed=True)
    assert not alone.agrees_every_step({"worker": 2})
    assert together.agrees_every_step({"worker": 2})
    assert not together.agrees_every_step({"worker": 1, "scorer": 1})
    assert [each.can_replace("worker") for each in (alone, together)] == [True, False]
    assert [each.stays_until_the_end({"worker": 2}) for each in (alone, together)] == [False, True]
    assert not together.stays_until_the_end({"worker": 1, "scorer": 1})


def look_at_memory(session: RoleSession) -> list[Any]:
    import numpy as np

    from dask_train.data.buffers import empty_bytes
    from dask_train.errors import DataError

    rows = empty_bytes(256).view(np.float32)
    rows.flags.writeable = False
    (batch,) = session.framework.to_batch((rows,))
    found: list[Any] = [batch.unsafe_buffer_pointer() == rows.ctypes.data]
    for column in (np.array(["a"]), np.array([1 << 40])):
        try:
            session.framework.to_batch((column,))
        except DataError as error:
            found.append(str(error))
    return found


def test_batches_share_memory_and_what_has_no_place_is_refused() -> None:
    with RoleProcesses(JaxFramework(), {"worker": 1}, lambda _: look_at_memory) as processes:
        processes.meet(("worker", 0), processes.addresses(), timeout_s=20.0)
        is_shared, text, large = processes.answer(("worker", 0)).value
    assert is_shared
    assert "Columns of <U1 can't all become arrays of JAX" in text
    assert "whole numbers from 1099511627776 to 1099511627776, and JAX takes int32" in large


def die_or_wait(session: RoleSession) -> str:
    """Worker 1 dies in mid-run; the other is told so by its next sum."""
    import os

    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
    by_rank = NamedSharding(mesh, PartitionSpec("ranks"))
    total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))
    for step in range(1000):
        if session.me.rank and step == 3:
            os._exit(1)
        float(total(jax.make_array_from_process_local_data(by_rank, np.ones(1, np.float32))))
    return "went on"


@pytest.mark.slow
def test_who_outlives_a_peer_does_not_hang() -> None:
    with RoleProcesses(JaxFramework(distributed=True), {"worker": 2}, lambda _: die_or_wait) as processes:
        addresses = processes.addresses()
        for rank in (0, 1):
            processes.meet(("worker", rank), addresses, timeout_s=20.0)
        answer = processes.answer(("worker", 0))
    assert answer.error is not None
