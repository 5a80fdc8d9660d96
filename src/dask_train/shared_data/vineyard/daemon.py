"""The way to a host's Vineyard daemon: one connection for each socket of a process, and words for what fails."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dask_train.errors import DataError
from dask_train.extras import MissingPackageError, install_command

# Where Vineyard looks for the socket of its daemon, and where the daemon puts it by default.
SOCKET_VARIABLE, DEFAULT_SOCKET = "VINEYARD_IPC_SOCKET", "/var/run/vineyard.sock"
# How long a daemon may take to accept a connection.
ACCEPT_S = 10.0

_ID = re.compile(r"o[0-9a-f]{16}")


def import_vineyard() -> Any:
    """Return the module ``vineyard``.

    Raises
    ------
    MissingPackageError
        It is not installed, or what it imports is not.
    """
    try:
        import vineyard
    except ImportError as error:
        raise MissingPackageError(
            f"Vineyard can't be imported ({error}): {install_command('vineyard')}, which brings setuptools below 80, "
            "whose pkg_resources vineyard imports."
        ) from error
    return vineyard


def vineyard_error() -> type[Exception]:
    """Return the class of all errors of Vineyard's client, which has no public name of its own."""
    base_class: type[Exception] = import_vineyard().NotEnoughMemoryException.__base__
    return base_class


def id_in(object_id: Any) -> str | None:
    """Return the id that a value is, as Vineyard writes it (``"o000..."``); None for any other text, which is a name.

    Raises
    ------
    TypeError
        It is neither an ``ObjectID``, a number, nor text.
    """
    if isinstance(object_id, str):
        return object_id if _ID.fullmatch(object_id) else None
    if type(object_id).__name__ == "ObjectID":
        return repr(object_id).strip('"')
    if isinstance(object_id, int) and not isinstance(object_id, bool):
        return f"o{object_id:016x}"
    raise TypeError(
        f"object_id is a {type(object_id).__name__}; pass Vineyard's ObjectID, its text such as 'o0001f2c47d1c0000', "
        "or the name that an object was given."
    )


@dataclass(kw_only=True)
class Daemon:
    """A connection to a daemon.

    Attributes
    ----------
    path
        Its socket.
    client
        Vineyard's own client.
    """

    path: str
    client: Any = field(repr=False)

    @property
    def instance(self) -> int:
        """Number of the daemon among those that share their metadata."""
        return int(self.client.instance_id)

    def id(self, text: str) -> Any:
        """Return an id as Vineyard's client takes it."""
        return import_vineyard().ObjectID(text)

    @contextmanager
    def words(self, doing: str) -> Iterator[None]:
        """Give the errors of Vineyard's client the form of this package's.

        Raises
        ------
        DataError
            In place of any of them.
        """
        vineyard = import_vineyard()
        try:
            yield
        except vineyard.NotEnoughMemoryException as error:
            raise _full(self, doing, error) from error
        except vineyard.ObjectNotExistsException as error:
            raise DataError(
                f"{doing} failed: the Vineyard daemon at {self.path} has no such object.",
                "It was deleted, or was never made persistent, so that only the daemon that holds it knows it; or it "
                "belongs to daemons that share no metadata with this one.",
                "Publish it again, or pass the socket of the daemon that holds it.",
            ) from error
        except vineyard_error() as error:
            raise _gone(self.path, doing, error) from error


_connections: dict[str, Daemon] = {}
_connecting = threading.Lock()


def connected(socket_path: str | None) -> Daemon:
    """Return this process's connection to a daemon; a new one where the daemon has been started again.

    Parameters
    ----------
    socket_path
        Path of the socket; None for what ``VINEYARD_IPC_SOCKET`` says in this process, else Vineyard's default.

    Raises
    ------
    DataError
        No daemon answers there.
    """
    path = socket_path or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    with _connecting:
        if path in _connections and _answers(_connections[path]):
            return _connections[path]
        _connections.pop(path, None)  # segments on it keep what they have mapped
        _knock(path)
        vineyard = import_vineyard()
        try:
            # Vineyard's client would try ten times, a second each.
            with vineyard.envvars("VINEYARD_IPC_SKIP_RETRY", "1"):
                client = vineyard.connect(path)
        except vineyard_error() as error:
            raise _gone(path, "Connecting", error) from error
        _connections[path] = Daemon(path=path, client=client)
        return _connections[path]


def _answers(daemon: Daemon) -> bool:
    try:
        _ = daemon.client.status
    except vineyard_error():
        return False
    return True


def _knock(path: str) -> None:
    """Check that a daemon listens: Vineyard's client says the same of a missing socket and of another user's."""
    with socket.socket(socket.AF_UNIX) as knocking:
        knocking.settimeout(ACCEPT_S)
        try:
            knocking.connect(path)
        except PermissionError as error:
            raise DataError(
                f"The socket {path} of a Vineyard daemon may not be opened by user {os.getuid()}.",
                "The daemon is another user's.",
                "Start the daemon as the user of the Dask workers, or give its socket's group the right to write.",
            ) from error
        except OSError as error:
            raise _gone(path, "Connecting", error) from error


def _gone(path: str, doing: str, error: BaseException) -> DataError:
    return DataError(
        f"{doing} failed: no Vineyard daemon answers at {path} ({type(error).__name__}: {str(error).rstrip('.')}).",
        "It was not started on this host, or has ended.",
        f"Start vineyardd there, or pass socket= or set {SOCKET_VARIABLE} where the Dask workers run.",
    )


def _full(daemon: Daemon, doing: str, error: BaseException) -> DataError:
    status = daemon.client.status
    return DataError(
        f"{doing} failed: the memory of the Vineyard daemon at {daemon.path} is full, {status.memory_usage:,} of "
        f"{status.memory_limit:,} bytes are taken ({str(error).rstrip('.')}).",
        change="Start vineyardd with a larger --size, delete objects that nobody needs, or add hosts.",
    )
