"""The torch adapter, in processes of its own: this one never imports torch, as others import TensorFlow here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, ClassVar

import pytest

from dask_train.frameworks.torch.adapter import TorchFramework, TorchrunFramework
from dask_train.testing import FrameworkTests, RoleProcesses, RoleSession


class TestTorch(FrameworkTests):
    counts: ClassVar = {"chief": 1, "worker": 1, "scorer": 1}
    refused = (
        ({"worker": 2, "ps": 1}, r"ps=1 with framework='torch': PyTorch has no parameter server"),
        ({"scorer": 1}, "no role that trains, only scorer"),
    )
    loads = ("torch", "tensorflow")
    waits = (("chief", 0), ("worker", 0))

    def framework(self) -> TorchFramework:
        return TorchFramework()

    @staticmethod
    def together(session: RoleSession) -> Any:
        import os

        import torch
        import torch.distributed as dist

        if session.me.role == "scorer":
            return dist.is_initialized(), None, None, None
        numbers = torch.full((3,), 1.0 + dist.get_rank())
        dist.all_reduce(numbers)
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "GLOO_SOCKET_IFNAME")
        return numbers.tolist(), dist.get_backend(), [os.environ.get(name) for name in names], torch.get_num_threads()

    def check_together(self, values: Any) -> None:
        assert values == {
            ("chief", 0): ([3.0] * 3, "gloo", ["0", "2", "0", "2", "127.0.0.1", "lo"], 1),
            ("worker", 0): ([3.0] * 3, "gloo", ["1", "2", "1", "2", "127.0.0.1", "lo"], 1),
            ("scorer", 0): (False, None, None, None),
        }


def die_or_leave(session: RoleSession) -> str:
    """Worker 1 dies in mid-run; the other is told so by its next collective, and leaves."""
    import os

    import torch
    import torch.distributed as dist

    if session.me.rank:
        os._exit(1)
    try:
        while True:
            dist.all_reduce(torch.ones(3))
    except RuntimeError as error:
        return type(error).__name__


def test_who_outlives_a_peer_leaves_without_hanging():
    with RoleProcesses(TorchFramework(), {"worker": 2}, lambda _: die_or_leave) as processes:
        addresses = processes.addresses()
        for rank in (0, 1):
            processes.meet(("worker", rank), addresses, timeout_s=60.0)
        answer = processes.answer(("worker", 0))
    assert answer.error is None
    assert answer.value
    assert answer.took_s < 60, "sooner than by a deadline"


def collectives_may_take(session: RoleSession) -> float:
    """How long torch lets a collective take, in seconds."""
    import torch
    import torch.distributed as dist

    return dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def test_a_group_of_one_and_its_collectives_may_take_longer_than_the_launch():
    with RoleProcesses(TorchFramework(), {"worker": 1}, lambda _: collectives_may_take) as processes:
        processes.meet(("worker", 0), processes.addresses(), timeout_s=60.0)
        answer = processes.answer(("worker", 0))
    assert answer.error is None
    assert answer.value == 1800


def refuse_text(session: RoleSession) -> str:
    import numpy as np

    from dask_train.errors import DataError

    try:
        session.framework.to_batch((np.array(["a"]),))
    except DataError as error:
        return str(error)
    return ""


def test_text_is_refused_with_its_dtype():
    with RoleProcesses(TorchFramework(), {"worker": 1}, lambda _: refuse_text) as processes:
        processes.meet(("worker", 0), processes.addresses(), timeout_s=60.0)
        assert "Columns of <U1 can't all become torch tensors" in processes.answer(("worker", 0)).value


def test_who_agrees_and_who_can_be_replaced():
    framework = TorchFramework()
    assert framework.agrees_every_step({"worker": 2})
    assert framework.agrees_every_step({"chief": 1, "worker": 1})
    assert not framework.agrees_every_step({"worker": 1, "scorer": 1})
    assert [framework.can_replace(role) for role in ("chief", "worker", "scorer")] == [False, False, True]


def sum_of_ranks(session: RoleSession) -> float:
    import torch
    import torch.distributed as dist

    rank = torch.tensor(float(dist.get_rank()))
    dist.all_reduce(rank)
    return float(rank)


def test_a_group_at_an_ipv6_address():
    with RoleProcesses(TorchFramework(), {"worker": 2}, lambda _: sum_of_ranks, host="::1") as processes:
        addresses = processes.addresses()
        for rank in (0, 1):
            processes.meet(("worker", rank), addresses, timeout_s=60.0)
        answers = [processes.answer(("worker", rank)) for rank in (0, 1)]
    assert addresses["worker"][0].startswith("[::1]:")
    assert [answer.value for answer in answers] == [1.0, 1.0], answers


def make_groups(session: RoleSession) -> tuple[list[str], list[int], list[float]]:
    """What is said of a group while it is up, and the sums of groups that are made one after the other."""
    import os

    import torch
    import torch.distributed as dist

    sums: list[float] = []
    hints: list[str] = []
    assert session.framework.pulse() == 0
    remarks = [len(session.framework.remarks(session.me))]
    torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()
    remarks.append(len(session.framework.remarks(session.me)))
    os.environ["MASTER_PORT"] = "1"  # as many loops set one of their own
    for backend in ("gloo", "gloo", None):
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group(backend)
        rank = torch.tensor(float(dist.get_rank()) + len(sums))
        dist.all_reduce(rank)
        sums.append(float(rank))
        assert session.framework.pulse() == 1
    remarks.append(len(session.framework.remarks(session.me)))
    for arguments in ({}, {"rank": 0, "world_size": 1}, {"rank": 0, "world_size": 1}):
        try:
            dist.init_process_group("gloo", **arguments)
        except ValueError as error:
            hints.append(session.framework.hint(error) or str(error))
        if arguments and dist.is_initialized():
            dist.destroy_process_group()
    return hints, remarks, sums


@pytest.mark.parametrize("framework", [TorchFramework(), TorchrunFramework()])
def test_a_loop_may_make_the_group_itself_and_make_it_again(framework: TorchFramework) -> None:
    with RoleProcesses(framework, {"worker": 2}, lambda _: make_groups) as processes:
        addresses = processes.addresses()
        for rank in (0, 1):
            processes.meet(("worker", rank), addresses, timeout_s=60.0)
        answers = [processes.answer(("worker", rank)) for rank in (0, 1)]
    for answer, told in zip(answers, ([0, 1, 0], [0, 0, 0]), strict=True):
        assert answer.error is None
        (up, still_up, smaller), numbers, sums = answer.value
        assert (numbers, sums) == (told, [1.0, 3.0, 5.0])
        assert up == still_up == framework.hint(ValueError("trying to initialize the default process group twice!"))
        assert "The run has made the process group" in up
        assert "rank 0 of 1" in smaller


_TWICE = """
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.torch.adapter import TorchFramework, TorchrunFramework
from dask_train.roles import AddressBook

me = RoleInfo(role="worker", rank=0, counts={"worker": 1}, host="127.0.0.1", num_threads=1)
framework = TorchFramework()
for _ in range(2):
    with framework.rendezvous(me, AddressBook(worker=[framework.prepare(me)]), 10.0):
        import torch.distributed as dist
        assert dist.is_initialized()
    assert not dist.is_initialized()
"""


def test_a_group_is_left_and_another_can_be_met():
    subprocess.run([sys.executable, "-c", _TWICE], check=True, timeout=60)
