"""PyTorch in a run: a ``torch.distributed`` process group over the chief and the workers, and batches as tensors."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.errors import DataError, LaunchError
from dask_train.frameworks.base import TRAINING_ROLES, Framework, Me
from dask_train.frameworks.torch.group import Place, process_group
from dask_train.roles import AddressBook


class TorchFramework(Framework):
    """What users name ``framework="torch"``.

    While the user's function runs in a chief or a worker, the default process group is up, and the environment has
    ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``MASTER_ADDR`` and ``MASTER_PORT`` as under ``torchrun``:
    ``torch.distributed.all_reduce`` and ``DistributedDataParallel`` need no set-up. ``LOCAL_RANK`` is an index among
    the devices that the process sees. The chief has rank 0, or worker 0 where there is no chief. Other roles, such as
    a scorer, are in no group.
    """

    name = "torch"
    views = None  # tensors are written to in place
    role_bytes = 300 << 20  # 200 just imported (PSS, torch 2.13, CPU)

    def __init__(self) -> None:
        self._port_holder: socket.socket | None = None

    def check(self, counts: Mapping[str, int]) -> None:
        """See :meth:`Framework.check <dask_train.frameworks.base.Framework.check>`."""
        if "ps" in counts:
            raise ValueError(
                f"ps={counts['ps']} with framework='torch': PyTorch has no parameter server; its workers reduce "
                "gradients among themselves. Leave ps out, or use framework='tensorflow'."
            )
        if not _num_ranks(counts):
            raise ValueError(
                f"framework='torch' with no role that trains, only {', '.join(counts) or 'none'}: its process group "
                "is made of the chief and the workers. Ask for worker=1 or more."
            )

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """True where several train: a collective waits for all ranks, and fails when one is gone."""
        return _num_ranks(counts) > 1

    def can_replace(self, role: str) -> bool:
        """A rank can't join a group again that goes on; a role outside the group, such as a scorer, can."""
        return role not in TRAINING_ROLES

    def prepare(self, me: Me) -> str:
        """Import torch with this role's threads; rank 0 binds the port of the group's store.

        It is bound and does not listen yet: a peer that came early would connect, and then wait in
        ``TCPStore`` for an answer without any deadline (torch 2.13, more than 10 minutes seen).

        Raises
        ------
        LaunchError
            torch can't be imported.
        """
        try:
            import torch
        except ImportError as error:
            raise LaunchError(
                f"torch can't be imported for {me.role} {me.rank}: {error}.",
                change="Install it on every Dask worker: pip install 'dask-train[torch]'.",
            ) from error
        torch.set_num_threads(me.num_threads)
        if torch.get_num_interop_threads() != me.num_threads:
            torch.set_num_interop_threads(me.num_threads)
        if me.role not in TRAINING_ROLES or _rank(me):
            return ""
        self._port_holder = _bind()
        host = f"[{me.host}]" if ":" in me.host else me.host
        return f"{host}:{self._port_holder.getsockname()[1]}"

    @contextmanager
    def rendezvous(self, me: Me, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """The process group of the roles that train; other roles wait for nobody and get nothing.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        if me.role not in TRAINING_ROLES:
            yield {}
            return
        first = next(role for role in TRAINING_ROLES if role in me.counts)
        place = Place(
            rank=_rank(me),
            num_ranks=_num_ranks(me.counts),
            host=me.host,
            store=peers.task_address(first, 0),
            port_holder=self._port_holder,
        )
        self._port_holder = None  # the store takes it over
        with process_group(place, timeout_s):
            yield {}

    def empty(self, size: int) -> np.ndarray | None:
        """Pinned memory where there is CUDA, for ``non_blocking`` copies to the device."""
        import torch

        if not torch.cuda.is_available():
            return None
        pinned: np.ndarray = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Tensors on the arrays' own memory.

        Raises
        ------
        DataError
            torch has no such dtype: text, dates, objects.
        """
        import torch

        try:
            return tuple(torch.from_numpy(array) for array in arrays)
        except TypeError as error:
            raise DataError(
                f"Columns of {', '.join(str(array.dtype) for array in arrays)} can't all become torch tensors: {error}",
                change="Turn text, dates and categories into numbers before the run.",
            ) from error


def _num_ranks(counts: Mapping[str, int]) -> int:
    return sum(counts.get(role, 0) for role in TRAINING_ROLES)


def _rank(me: Me) -> int:
    """The rank among all that train: chiefs first."""
    return me.rank + (0 if me.role == "chief" else me.counts.get("chief", 0))


def _bind() -> socket.socket:
    """A socket that has a port of all interfaces to itself."""
    holder = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    if holder.family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("", 0))
    return holder
