"""The environment of a role process, as its framework reads it, for a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_NAME_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy", "all_proxy")


def names_proxy() -> bool:
    """Return whether the environment names a proxy that gRPC asks."""
    return any(value for name, value in os.environ.items() if name.lower() in _NAME_PROXIES)


@contextmanager
def environment_restored() -> Iterator[None]:
    """Whatever is set, changed or taken away inside is afterwards as it was.

    Only what differs is touched: servers' threads read the environment meanwhile, and never find it empty.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            os.environ.pop(name, None)  # another thread may have restored it, too
        for name, value in before.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


def bypass_proxies(addresses: Iterable[str]) -> None:
    """Let gRPC reach the run's own hosts directly where the environment names a proxy.

    gRPC asks ``http_proxy`` for every address that ``no_proxy`` does not list, 127.0.0.1 among them
    (https://grpc.github.io/grpc/core/md_doc_environment_variables.html). A user's function may name one later.

    Parameters
    ----------
    addresses
        ``host:port`` of each process that is to be reached.
    """
    hosts = {address.rpartition(":")[0].strip("[]") for address in addresses}
    listed = [host for host in os.environ.get("no_proxy", os.environ.get("NO_PROXY", "")).split(",") if host]
    os.environ["no_proxy"] = ",".join([*listed, *sorted(hosts - set(listed))])
