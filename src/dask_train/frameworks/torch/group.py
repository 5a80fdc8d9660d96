"""The process group of one rank: meeting at the store, choosing device and backend, leaving without hanging."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psutil

from dask_train.compat.torch import set_timeout
from dask_train.errors import LaunchError
from dask_train.frameworks.environment import environment_restored
from dask_train.frameworks.torch.environment import Seat, choose_backend, interface_of, variables_of
from dask_train.frameworks.torch.meeting import Meetings

# How long leaving a group may take. Gloo needs 15 ms; NCCL may wait for a peer that is gone.
LEAVE_S = 5.0

# How often a rank tries whether the store of rank 0 answers yet.
RETRY_S = 0.05


@dataclass(frozen=True, kw_only=True)
class GroupPlace:
    """One rank's place in its group.

    Attributes
    ----------
    rank, num_ranks
        Its number, and of how many.
    host
        The address of its host.
    store
        ``host:port`` of the store, which rank 0 serves.
    port_holder
        In rank 0 the socket that is bound to the store's port, and does not listen yet.
    makes_group
        Whether the group is made here, or by the loop.
    """

    rank: int
    num_ranks: int
    host: str
    store: str
    port_holder: socket.socket | None
    makes_group: bool = True


@contextmanager
def process_group(place: GroupPlace, timeout_s: float) -> Iterator[Meetings]:
    """Form the default process group while it lasts; afterwards the environment is as it was.

    ``init_process_group()`` of a loop that makes the group, or that makes it once more, meets at the same store.

    Raises
    ------
    LaunchError
        A rank did not come within ``timeout_s``, or can't be reached.
    """
    hook = sys.excepthook  # torch puts one there that writes the rank before each line
    deadline = time.monotonic() + timeout_s
    with environment_restored():
        store = None
        try:
            store = _join_or_explain(place, timeout_s)
            meetings = Meetings(store, place.rank, place.num_ranks, makes_group=place.makes_group)
            with meetings.instead_of_torchs():
                yield meetings
        finally:
            _leave()
            sys.excepthook = hook
            if store is not None and place.port_holder is not None:
                _wait_until_met(store, place, deadline)


def _join_or_explain(place: GroupPlace, timeout_s: float) -> Any:
    try:
        return _join(place, timeout_s)
    except (RuntimeError, OSError) as error:  # torch's DistError is a RuntimeError
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LaunchError(
            f"Rank {place.rank} of {place.num_ranks} could not meet the others at {place.store} within "
            f"{timeout_s:g} s: {said}.",
            "A rank did not start or was lost, or a firewall lies between the hosts of the Dask workers.",
            "Look at the other roles' logs, open the ports between the hosts, or allow a longer launch.",
        ) from error


def _join(place: GroupPlace, timeout_s: float) -> Any:
    """Return the store at which the ranks have met, and a group of them where the loop makes none itself."""
    deadline = time.monotonic() + timeout_s
    store = _open_store(place, timeout_s)
    seats = _tell_each_other(store, place, deadline)
    _set_environment(place, seats)
    if place.makes_group:
        _make_group(store, place, seats, deadline)
    return store


def _make_group(store: Any, place: GroupPlace, seats: Sequence[Seat], deadline: float) -> None:
    import torch.distributed as dist

    backend, device = choose_backend(seats, place.rank)
    if backend == "nccl":
        import torch

        torch.cuda.set_device(device)
    left = timedelta(seconds=max(deadline - time.monotonic(), 1.0))
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.num_ranks, timeout=left)
    # A collective may take as long as torch lets it: which step is too slow is for the run to judge, not the launch.
    constants = dist.constants
    usual = constants.default_pg_nccl_timeout if backend == "nccl" else constants.default_pg_timeout
    set_timeout(usual)


def _open_store(place: GroupPlace, timeout_s: float) -> Any:
    from torch.distributed import TCPStore

    host, _, port = place.store.rpartition(":")
    host, within = host.strip("[]"), timedelta(seconds=timeout_s)
    if place.port_holder is None:
        _wait_for_store(host, int(port), time.monotonic() + timeout_s)
        return TCPStore(host, int(port), place.num_ranks, False, within, wait_for_workers=False)
    place.port_holder.listen(place.num_ranks + 16)
    descriptor = place.port_holder.detach()  # the store closes it
    return TCPStore(host, int(port), place.num_ranks, True, within, wait_for_workers=False, master_listen_fd=descriptor)


def _wait_for_store(host: str, port: int, deadline: float) -> None:
    """Wait until rank 0 listens: ``TCPStore`` takes up to twice its timeout if it does not, and logs stacks."""
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(deadline - time.monotonic(), RETRY_S)):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


def _tell_each_other(store: Any, place: GroupPlace, deadline: float) -> list[Seat]:
    """Return where every rank is. Waits for all."""
    import torch

    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mine = Seat(place.host, os.environ.get("CUDA_VISIBLE_DEVICES", ""), num_devices)
    store.set(f"place/{place.rank}", json.dumps(mine))
    keys = [f"place/{rank}" for rank in range(place.num_ranks)]
    store.wait(keys, timedelta(seconds=max(deadline - time.monotonic(), 0.1)))
    seats = [Seat(*json.loads(store.get(key))) for key in keys]
    store.set(f"met/{place.rank}", "")
    return seats


def _wait_until_met(store: Any, place: GroupPlace, deadline: float) -> None:
    """Wait until the others have met too: the store ends with the process of rank 0, which may have little to do."""
    with suppress(Exception):  # one of them is lost, which the run notices
        met = [f"met/{rank}" for rank in range(place.num_ranks)]
        store.wait(met, timedelta(seconds=max(deadline - time.monotonic(), 0.1)))


def _set_environment(place: GroupPlace, seats: Sequence[Seat]) -> None:
    os.environ.update(variables_of(place.rank, seats, place.store))
    # Without it gloo takes the address that the host's name resolves to, often a loopback one (127.0.1.1).
    interface = interface_of(place.host, psutil.net_if_addrs())
    if interface and "GLOO_SOCKET_IFNAME" not in os.environ:
        os.environ["GLOO_SOCKET_IFNAME"] = interface


def _leave() -> None:
    """Leave the group, and return after :data:`LEAVE_S` if that waits for a peer that is gone."""
    import torch.distributed as dist

    def leave() -> None:
        with suppress(Exception):  # the peers may be gone, and this process ends anyhow
            dist.destroy_process_group()

    if dist.is_initialized():
        leaving = threading.Thread(target=leave, name="dask-train-leave-group", daemon=True)
        leaving.start()
        leaving.join(LEAVE_S)
