"""Connect to a scheduler that runs elsewhere; raise a clear error in time if that fails."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from distributed import Client, Security
from distributed.comm import get_address_host_port
from distributed.core import rpc

from dask_train.errors import StalledError

# The share of the time that one connection may take: it ends with its reason, where the end of the whole has none.
_CONNECTING = 0.8
# A refusal comes at once.
PLAIN_S = 0.5


def open_client(
    address: str,
    *,
    tls_ca_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    timeout_s: float = 10.0,
) -> Client:
    """Return a client of the scheduler at ``address``; from a thread without an event loop.

    Parameters
    ----------
    address
        As ``tcp://10.0.0.1:8786``; without a scheme it is ``tls://`` where TLS files are given.
    tls_ca_file, tls_cert, tls_key
        Paths of PEM files; None is what Dask's configuration says (``distributed.comm.tls``).
    timeout_s
        Seconds in which the scheduler must answer.

    Raises
    ------
    ValueError
        This is no address, what is there is no scheduler, or the TLS files don't do.
    StalledError
        Nothing answers.
    """
    files = {"tls_ca_file": tls_ca_file, "tls_client_cert": tls_cert, "tls_client_key": tls_key}
    tls_files = {name: path for name, path in files.items() if path is not None}
    if tls_files and "://" not in address:
        address = f"tls://{address}"
    security = _security(tls_files)
    # Asked first, because Client(timeout=) waits without an end where something else than Dask listens, such as the
    # dashboard (distributed 2026.8.0).
    try:
        kind = asyncio.run(_kind(address, security, timeout_s))
        if kind == "Scheduler":
            return Client(address, security=security, timeout=timeout_s)
    except OSError as error:  # TimeoutError is one
        reason = _reason(error, address)
        raise StalledError(
            f"No Dask scheduler answered at {address} within {timeout_s:g} s"
            f"{f' ({type(reason).__name__}: {reason})' if str(reason) else ''}.",
            "It does not run there, a firewall is between, or the port is another one's (the dashboard has its own).",
            "Take the address that the scheduler prints when it starts; where that begins with tls://, so must this.",
        ) from error
    except TypeError as error:  # what distributed raises for a TLS address without certificates
        raise ValueError(
            f"{address} needs TLS, and there is no CA file or no certificate to use. "
            "Give the CA file, the certificate and its key, or set distributed.comm.tls in Dask's configuration."
        ) from error
    except RuntimeError as error:  # encryption is required, and the address is not tls://
        raise ValueError(f"{address} can't be connected to: {error}. Use the cluster's tls:// address.") from error
    except ValueError as error:
        raise ValueError(f"{address!r} is no address: {error}. Write it like tcp://10.0.0.1:8786.") from error
    raise ValueError(f"At {address} there is a Dask {kind}, not a scheduler. Take the scheduler's address.")


def _reason(error: BaseException, address: str) -> BaseException:
    """Return what is behind the end of all attempts to connect.

    distributed tries again until its time is up, and reports the last attempt, which that may have cut short. Then a
    plain socket says what is the matter.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    if not str(error):
        try:
            socket.create_connection(get_address_host_port(address), PLAIN_S).close()
        except OSError as refused:
            return refused
    return error


def _security(tls_files: dict[str, str]) -> Security:
    try:
        security = Security(**tls_files)
        security.get_connection_args("client")  # reads the files
    except (OSError, ssl.SSLError) as error:
        raise ValueError(
            f"The TLS files can't be used ({', '.join(tls_files.values()) or 'from Dask configuration'}): {error}. "
            "Each is a PEM file; the key must belong to the certificate."
        ) from error
    return security


async def _kind(address: str, security: Security, timeout_s: float) -> str:
    """Return what Dask calls the server at ``address``."""
    there: Any = rpc(address, timeout=timeout_s * _CONNECTING, connection_args=security.get_connection_args("client"))
    try:
        async with asyncio.timeout(timeout_s):
            identity = await there.identity()
    finally:
        await there.close_rpc()
    return str(identity.get("type"))
