"""What processes with torch import, and what the environment of a rank says.

That is as ``torchrun`` would set it, and what loops read beyond that.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TORCH_IMPORTS = (
    "torch",
    "dask_train.frameworks.torch.first_optimizer",
    "dask_train.frameworks.torch.group",
    "dask_train.predicting.server.process",
    "dask_train.predicting.server.torch_model",
    "dask_train.fitting.torch_module.worker",
)


class Seat(NamedTuple):
    """Where a rank's process is.

    Attributes
    ----------
    host
        The address of its host.
    visible
        Its ``CUDA_VISIBLE_DEVICES``.
    num_devices
        How many devices that leaves.
    """

    host: str
    visible: str
    num_devices: int


def choose_backend(seats: Sequence[Seat], rank: int) -> tuple[str, int]:
    """Return the group's backend, the same on every rank, and the index of this rank's device.

    Parameters
    ----------
    seats
        By rank.
    rank
        Whose device.

    Notes
    -----
    Processes that see the same devices of a host share them out by rank. dask-cuda gives each Dask worker a
    rotation of its own, in which its device comes first: index 0 then, on every rank. NCCL refuses two ranks on one
    device, so gloo serves where there are too few.
    """
    enough = all(0 < seats.count(seat) <= seat.num_devices for seat in seats)
    before = seats[:rank].count(seats[rank])
    return ("nccl" if enough else "gloo"), before % (seats[rank].num_devices or len(seats))


def variables_of(rank: int, seats: Sequence[Seat], store: str) -> dict[str, str]:
    """Return the variables that loops read which are written for ``torchrun``, Lightning or accelerate.

    Parameters
    ----------
    rank
        Whose they are.
    seats
        By rank. Ranks that see the same devices of a host are a node to their loops: ``LOCAL_RANK`` is the index of a
        device, as loops take it for, and below ``LOCAL_WORLD_SIZE``.
    store
        ``host:port`` of the group's store.

    Returns
    -------
    dict
        Of environment variables.
    """
    host, _, port = store.rpartition(":")
    nodes = list(dict.fromkeys(seats))
    node = nodes.index(seats[rank])
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(seats)),
        "LOCAL_RANK": str(choose_backend(seats, rank)[1]),
        "LOCAL_WORLD_SIZE": str(seats.count(seats[rank])),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "NODE_RANK": str(node),
        "MASTER_ADDR": host.strip("[]"),
        "MASTER_PORT": port,
        "TORCHELASTIC_RUN_ID": f"dask-train-{port}",
        **_lightning(seats),
        # Without it, Accelerator() trains each rank apart where there are no devices.
        **({} if any(seat.num_devices for seat in seats) else {"ACCELERATE_USE_CPU": "true"}),
    }


def _lightning(seats: Sequence[Seat]) -> dict[str, str]:
    """Return what ``Trainer()`` and ``Fabric()`` take where they are given no ``devices`` and ``num_nodes``.

    They would take one device otherwise where there are only CPUs, and train each rank apart. They demand as many ranks
    on each node: where there are only CPUs, all count as one node; where there are devices, uneven hosts are left to
    Lightning to refuse.
    """
    if not any(seat.num_devices for seat in seats):
        devices, num_nodes = len(seats), 1
    else:
        ranks_of = {seat: seats.count(seat) for seat in seats}
        devices, num_nodes = ranks_of[seats[0]], len(ranks_of)
        if choose_backend(seats, 0)[0] != "nccl" or set(ranks_of.values()) != {devices}:
            return {}
    return {
        f"{prefix}_{name}": str(value)
        for prefix in ("PL_TRAINER", "LT")
        for name, value in (("DEVICES", devices), ("NUM_NODES", num_nodes))
    }


def interface_of(host: str, interfaces: Mapping[str, Sequence[Any]]) -> str:
    """Return the interface that carries one of the addresses of ``host``; empty if none does."""
    try:
        addresses = {str(resolved[4][0]) for resolved in socket.getaddrinfo(host, None)}
    except OSError:
        return ""
    for name, carried in interfaces.items():
        if addresses & {address.address.partition("%")[0] for address in carried}:
            return name
    return ""
