"""LightGBM in a run: its network of sockets between the ranks while the user's function runs."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dask_train.errors import LaunchError
from dask_train.frameworks.base import RoleInfo
from dask_train.frameworks.boosting import BoostingFramework
from dask_train.frameworks.words import RankPlace, words_of_all
from dask_train.roles import AddressBook

# How long LightGBM's sockets wait, in minutes: as long as it takes, since a run looks by itself for roles that hang.
PATIENCE_MIN = 24 * 60


class LightGBMFramework(BoostingFramework):
    """What users name ``framework="lightgbm"``.

    ``session.network`` holds the parameters by which ``lightgbm.train`` makes one model of all ranks, each with its own
    rows: ``machines``, ``num_machines``, ``local_listen_port``, ``time_out`` and ``tree_learner``, which may be
    changed. It is empty in a rank alone, and in roles that don't train. Every rank has the same booster in the end.
    LightGBM connects the ranks when the booster is made, so all ranks make one at about the same time.

    ``session.num_threads`` is this rank's share of the host's cores, for ``num_threads``.
    """

    name = "lightgbm"
    title = "LightGBM"
    imports = ("lightgbm",)

    @contextmanager
    def rendezvous(self, me: RoleInfo, peers: AddressBook, timeout_s: float) -> Iterator[Mapping[str, Any]]:
        """Tell the ranks where the others are; other roles wait for nobody.

        Raises
        ------
        LaunchError
            The others did not come within ``timeout_s``, or can't be reached.
        """
        place = self._place(me, peers)
        network: dict[str, Any] = {}
        if place is not None:
            network = _network(me, place, timeout_s)
        yield {"num_threads": me.num_threads, "network": network}
        if network:
            _leave()


def _network(me: RoleInfo, place: RankPlace, timeout_s: float) -> dict[str, Any]:
    # LightGBM binds the port by itself, without SO_REUSEPORT, so it can't be held for it until then: it is one that
    # the kernel has just given, and gives to others again only when it has gone through all.
    with socket.socket(socket.AF_INET) as holder:
        holder.bind(("", 0))
        port = holder.getsockname()[1]
        words = words_of_all(place, f"{_address(me.host)}:{port}", timeout_s)
    return {
        "machines": ",".join(words),
        "num_machines": len(words),
        "local_listen_port": port,
        "time_out": PATIENCE_MIN,
        "tree_learner": "data",
    }


def _address(host: str) -> str:
    """The IPv4 address of a host: LightGBM knows no other."""
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
    from lightgbm.basic import _LIB

    _LIB.LGBM_NetworkFree()
