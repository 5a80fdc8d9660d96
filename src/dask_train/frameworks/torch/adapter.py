"""PyTorch in a run: a ``torch.distributed`` process group over the chief and the workers, and batches as tensors."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from dask_train.errors import DataError, LaunchError
from dask_train.extras import install_command
from dask_train.frameworks.base import ALONE_S, TRAINING_ROLES, Framework, NumberedRows, RoleInfo
from dask_train.frameworks.fitting import FitFramework
from dask_train.frameworks.ports import address_of
from dask_train.frameworks.ranks import first_address, num_ranks, rank_of
from dask_train.frameworks.torch.environment import TORCH_IMPORTS
from dask_train.frameworks.torch.group import GroupPlace, process_group
from dask_train.frameworks.torch.meeting import Meetings, hint
from dask_train.roles import AddressBook
from dask_train.spelling import passed

LOOPBACK = "127.0.0.1"


class TorchFramework(Framework):
    """What users name ``framework="torch"``.

    While the user's function runs in a chief or a worker, the default process group is up, and the environment is as
    under ``torchrun`` (``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE``, ``GROUP_RANK``, ``NODE_RANK``,
    ``MASTER_ADDR``, ``MASTER_PORT``, ``TORCHELASTIC_RUN_ID``): ``torch.distributed.all_reduce`` and
    ``DistributedDataParallel`` need no set-up, and accelerate, transformers and Lightning find all ranks.
    ``LOCAL_RANK`` is an index among the devices that the process sees. The chief has rank 0, or worker 0 if there
    is no chief. Other roles, such as a scorer, are in no group.
    """

    name = "torch"
    makes_group = True
    imports = TORCH_IMPORTS
    views = None  # tensors are written to in place
    role_bytes = 300 << 20  # 200 just imported (PSS, torch 2.13, CPU)
    shared_bytes = 140 << 20  # a template takes 175, and an idle role 40 besides

    def __init__(self) -> None:
        self._port_holder: socket.socket | None = None
        self._meetings: Meetings | None = None

    def check(self, counts: Mapping[str, int]) -> None:
        """See :meth:`Framework.check <dask_train.frameworks.base.Framework.check>`."""
        if "ps" in counts:
            raise ValueError(
                f"ps={counts['ps']} with {passed('framework', 'torch')}: PyTorch has no parameter server; its workers "
                f"reduce gradients among themselves. Leave ps out, or use {passed('framework', 'tensorflow')}."
            )
        if not num_ranks(counts):
            raise ValueError(
                f"{passed('framework', 'torch')} with no role that trains, only {', '.join(counts) or 'none'}: its "
                "process group is made of the chief and the workers. Ask for worker=1 or more."
            )

    def agrees_every_step(self, counts: Mapping[str, int]) -> bool:
        """Return whether several train: a collective waits for all ranks, and fails when one is gone."""
        return num_ranks(counts) > 1

    def can_replace(self, role: str) -> bool:
        """Return whether a lost role can be replaced: not a rank, which can't join a live group."""
        return role not in TRAINING_ROLES

    def load(self, me: RoleInfo) -> None:
        """Import torch with this role's threads.

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
                change=f"Install it on every Dask worker: {install_command('torch')}.",
            ) from error
        torch.set_num_threads(me.num_threads)
        if torch.get_num_interop_threads() != me.num_threads:
            torch.set_num_interop_threads(me.num_threads)

    def prepare(self, me: RoleInfo) -> str:
        """Load torch; rank 0 binds the port of the group's store.

        It is bound and does not listen yet: a peer that came early would connect, and then wait in
        ``TCPStore`` for an answer without any deadline (torch 2.13, more than 10 minutes seen).
        """
        self.load(me)
        if me.role not in TRAINING_ROLES or rank_of(me):
            return ""
        self._port_holder = _bind()
        return address_of(me.host, self._port_holder)

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Form the process group of the roles that train; other roles do not wait and get nothing.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        if me.role not in TRAINING_ROLES:
            yield {}
            return
        place = GroupPlace(
            rank=rank_of(me),
            num_ranks=num_ranks(me.counts),
            host=me.host,
            store=first_address(peers, me.counts),
            port_holder=self._port_holder,
            makes_group=self.makes_group,
        )
        self._port_holder = None  # the store takes it over
        with process_group(place, timeout_s) as self._meetings:
            yield {}

    @contextmanager
    def alone(self, me: RoleInfo) -> Iterator[Mapping[str, Any]]:
        """Form a process group of one rank, whose store only this host reaches; torch keeps its threads.

        Raises
        ------
        ValueError
            There is a process group in this process, which would be taken down with this one.
        """
        from torch import distributed

        if distributed.is_available() and distributed.is_initialized():
            raise ValueError(
                f"This process has a process group of torch, and {me.role} {me.rank} would have one of its own here. "
                "Call torch.distributed.destroy_process_group() first."
            )
        self._port_holder = socket.create_server((LOOPBACK, 0), backlog=0)
        peers = AddressBook({me.role: [address_of(LOOPBACK, self._port_holder)]})
        try:
            with self.rendezvous(me, peers, ALONE_S) as extras:
                yield extras
        finally:
            self._meetings = None

    def hint(self, error: BaseException) -> str:
        """Return what to do about errors of loops that make the group themselves, or were made for another launcher."""
        return hint(error)

    def pulse(self) -> int:
        """Return how many collectives this rank has begun: a loop over data of its own needs not report."""
        return 0 if self._meetings is None else self._meetings.num_collectives()

    def remarks(self, me: RoleInfo) -> Sequence[str]:
        """Return one of rank 0, where several have trained, and none ever met another."""
        if self._meetings is None or rank_of(me) or not self._meetings.trained_apart():
            return ()
        return (
            f"Each of the {num_ranks(me.counts)} ranks has trained apart: rank 0 has used no collective of "
            "torch.distributed. If one model was meant, wrap it in DistributedDataParallel; in Lightning leave "
            "devices= and strategy= out, or pass strategy='ddp' and devices= of all ranks.",
        )

    def lack_of_device(self) -> str:
        """See :meth:`Framework.lack_of_device <dask_train.frameworks.base.Framework.lack_of_device>`."""
        import torch

        if torch.cuda.is_available():
            return ""
        return "torch.cuda.is_available() is False" if torch.version.cuda else f"torch {torch.__version__} has no CUDA"

    def empty(self, size: int) -> np.ndarray | None:
        """Pinned memory where there is CUDA, for ``non_blocking`` copies to the device."""
        import torch

        if not torch.cuda.is_available():
            return None
        pinned: np.ndarray = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned

    def dataset_of(self, rows: NumberedRows) -> Any:
        """Return a map-style ``torch.utils.data.Dataset``.

        Raises
        ------
        DataError
            torch has no such dtype.
        """
        from dask_train.frameworks.torch.rows_dataset import RowsDataset

        return RowsDataset(rows)

    def to_batch(self, arrays: tuple[np.ndarray, ...]) -> Any:
        """Tensors on the arrays' own memory; copied once where their byte order is not this machine's.

        Raises
        ------
        DataError
            torch has no such dtype: text, dates, objects.
        """
        import torch

        try:
            return tuple(torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False)) for array in arrays)
        except TypeError as error:
            raise DataError(
                f"Columns of {', '.join(str(array.dtype) for array in arrays)} can't all become torch tensors: {error}",
                change="Turn text, dates and categories into numbers before the run.",
            ) from error


class TorchrunFramework(TorchFramework):
    """What users name ``framework="torchrun"``: all but the process group, for loops that make it themselves.

    ``torch.distributed.init_process_group()`` meets the other ranks through the run's own store.
    """

    name = "torchrun"
    makes_group = False


def _bind() -> socket.socket:
    """Return a socket that has a port of all interfaces to itself."""
    holder = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
    if holder.family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    holder.bind(("", 0))
    return holder


class TorchFitFramework(FitFramework):
    """The adapter of ``fit`` for torch modules; ``in_place`` as of :class:`FitFramework`."""

    name = "torch"
    imports = TORCH_IMPORTS

    def __init__(self, *, in_place: bool = False) -> None:
        super().__init__(TorchFramework(), in_place=in_place)
