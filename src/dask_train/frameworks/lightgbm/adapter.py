"""LightGBM in a run: its network of sockets between the ranks while the user's function runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import wraps
from typing import Any

from dask_train.compat.lightgbm import free_network
from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.boosting import BoostingFramework
from dask_train.frameworks.ports import hold_port
from dask_train.frameworks.words import RankPlace, words_of_all
from dask_train.roles import AddressBook

# How long LightGBM's sockets wait, in minutes: as long as it takes, since a run looks by itself for roles that hang.
PATIENCE_MIN = 24 * 60


class LightGBMFramework(BoostingFramework):
    """What users name ``framework="lightgbm"``.

    ``session.network`` holds the parameters by which ``lightgbm.train`` makes one model of all ranks, each with its own
    rows: ``machines``, ``num_machines``, ``local_listen_port``, ``time_out`` and ``tree_learner``, which may be
    changed. It is empty in a rank alone, and in roles that don't train. Every rank has the same booster in the end.
    LightGBM connects the ranks when a booster is made, and they wait for each other there: all make the same number.
    Each time they listen at other ports, so the ports in ``session.network`` are free for others.

    ``session.num_threads`` is this rank's share of the host's cores, for ``num_threads``.
    """

    name = "lightgbm"
    title = "LightGBM"
    imports = ("lightgbm", "dask_train.role.main")

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Tell the ranks where the others are; other roles do not wait.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        place = self._place(me, peers)
        if place is None:
            yield {"num_threads": me.num_threads, "network": {}}
            return
        with _port_of(place) or nullcontext():  # for the next time that they meet
            machines, port = _meet(me, place, timeout_s)
            network = {
                "machines": machines,
                "num_machines": place.num_ranks,
                "local_listen_port": port,
                "time_out": PATIENCE_MIN,
                "tree_learner": "data",
            }
            with _each_booster_meets(me, place, met_machines=machines):
                yield {"num_threads": me.num_threads, "network": network}
            _leave()


def _port_of(place: RankPlace) -> socket.socket | None:
    """Return the port at which rank 0 awaits the others, held once more."""
    return None if place.rank else hold_port(int(place.meeting.rpartition(":")[2]))


def _meet(me: RoleInfo, place: RankPlace, timeout_s: float) -> tuple[str, int]:
    """Return where LightGBM of all ranks is to listen, and this rank's port, which is free."""
    with socket.socket(socket.AF_INET) as holder:
        holder.bind(("", 0))
        port = holder.getsockname()[1]
        return ",".join(words_of_all(place, f"{_address(me.host)}:{port}", timeout_s)), port


@contextmanager
def _each_booster_meets(me: RoleInfo, place: RankPlace, met_machines: str) -> Iterator[None]:
    """While it lasts, ranks meet before each booster connects them, and tell each other ports anew.

    LightGBM binds a port by itself, without SO_REUSEPORT. So it can't be held until then, and a process that asks for a
    port meanwhile may be given it. Nor can it be bound a second time soon, for another booster: the connections of the
    first one keep it for a minute.
    """
    boosters = _boosters()
    original = boosters.set_network

    @wraps(original)
    def set_network(
        booster: Any, machines: Any, local_listen_port: int = 12400, listen_time_out: int = 120, num_machines: int = 1
    ) -> Any:
        if machines == met_machines:
            again = replace(place, port_holder=_port_of(place))
            machines, local_listen_port = _meet(me, again, PATIENCE_MIN * 60)
        return original(booster, machines, local_listen_port, listen_time_out, num_machines)

    boosters.set_network = set_network
    try:
        yield
    finally:
        boosters.set_network = original


def _boosters() -> Any:
    """Return the class of all boosters."""
    from lightgbm import Booster

    return Booster


def _address(host: str) -> str:
    """Return the IPv4 address of a host: LightGBM knows no other."""
    try:
        return str(socket.getaddrinfo(host.strip("[]"), None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise LaunchError(
            f"{host} has no IPv4 address: {error}.",
            "LightGBM connects its ranks over IPv4 only.",
            "Start the Dask workers with IPv4 addresses, or use XGBoost.",
        ) from error


def _leave() -> None:
    """Close what a booster of this process has connected, if there is one."""
    free_network()
