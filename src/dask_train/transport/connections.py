"""Connections between processes of different hosts, under the cluster's TLS where it has some.

Both ends prove that they know the run's key before anything else is read: by HMAC (RFC 2104) of what the other one has
drawn, so the key itself does not travel. Without TLS, which Dask's ``tcp://`` does not have either, anyone who can read
the network can read what goes over them.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from dask_train.errors import LaunchError
from dask_train.transport.channels import exactly
from dask_train.transport.reception import ended_after

_NONCE_BYTES = 32
_RETRY_S = 0.1
# A host that is gone does not answer; one who looks meanwhile asks again after this time.
_ATTEMPT_S = 2.0
# How long a new connection may take to authenticate.
GREETING_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """What both ends of a connection have to have.

    Attributes
    ----------
    key
        The run's.
    tls
        The cluster's certificates, as Dask has them: ``ca_file``, ``cert``, ``key`` (paths, or PEM text) and perhaps
        ``ciphers``. None if it has none.
    """

    key: bytes = field(repr=False)
    tls: Mapping[str, str] | None = field(default=None, repr=False)

    def wrapped(self, connection: socket.socket, *, listens: bool) -> socket.socket:
        """Return the connection under TLS, where there is TLS; both ends have to show certificates of the cluster."""
        if self.tls is None:
            return connection
        purpose = ssl.Purpose.CLIENT_AUTH if listens else ssl.Purpose.SERVER_AUTH
        context = ssl.create_default_context(purpose)
        context.check_hostname = False  # Dask's certificates are for roles, not for hosts
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        authority = self.tls["ca_file"]
        context.load_verify_locations(**{"cadata" if "\n" in authority else "cafile": authority})
        with _as_file(self.tls["cert"]) as certificate, _as_file(self.tls.get("key")) as key:
            context.load_cert_chain(str(certificate), key)
        if self.tls.get("ciphers"):
            context.set_ciphers(self.tls["ciphers"])
        return context.wrap_socket(connection, server_side=listens)

    def name_of(self, address: str) -> str:
        """Return a name for what is at an address, which only holders of the key can compute."""
        return f"{address}/{hmac.digest(self.key, address.encode(), 'sha256').hex()[:32]}"

    def prove(self, connection: socket.socket, *, listens: bool) -> None:
        """Show that this end knows the key, and see that the other one does.

        Raises
        ------
        LaunchError
            It does not.
        EOFError, OSError
            It is gone.
        """
        mine, theirs = (b"listens", b"dials") if listens else (b"dials", b"listens")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        connection.sendall(nonce)
        connection.sendall(self._proof(mine, bytes(exactly(connection, _NONCE_BYTES))))
        if not hmac.compare_digest(bytes(exactly(connection, _NONCE_BYTES)), self._proof(theirs, nonce)):
            raise LaunchError("Who is at the other end of a connection does not know the run.")

    def _proof(self, end: bytes, nonce: bytes) -> bytes:
        return hmac.digest(self.key, end + nonce, "sha256")


def listening(address: str) -> socket.socket:
    """Return a socket that listens at ``host:port``; this process may hold the port with SO_REUSEPORT.

    Raises
    ------
    LaunchError
        It can't listen there.
    """
    host, port = _parts(address)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise LaunchError(
            f"A role can't listen at {address}: {error}.",
            "The address may not be one of this host.",
            "Start that Dask worker with --host and an address of its host.",
        ) from error
    return listener


def greeted(connection: socket.socket, credentials: Credentials, *, listens: bool) -> socket.socket:
    """Return a connection whose other end belongs to the run; it is closed where it does not.

    Raises
    ------
    LaunchError
        It does not know the run.
    EOFError, OSError
        It is gone, or has other certificates.
    """
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a host that loses its power says no word
        with ended_after(connection, GREETING_S):
            connection = credentials.wrapped(connection, listens=listens)
            credentials.prove(connection, listens=listens)
    except BaseException:
        connection.close()
        raise
    return connection


def connected(
    address: str, credentials: Credentials, timeout_s: float, look: Callable[[], object] | None = None
) -> socket.socket:
    """Return a connection to the server at that address; ``look`` is called meanwhile, and may raise to end this.

    Raises
    ------
    LaunchError
        No server answers in time, or it does not know the run.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        attempt_s = max(_RETRY_S, deadline - time.monotonic())
        if look is not None:
            look()
            attempt_s = min(attempt_s, _ATTEMPT_S)
        try:
            connection = socket.create_connection(_parts(address), attempt_s)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise _refusal(address, error) from error
            time.sleep(_RETRY_S)
    # An attempt to connect is short where others may be lost meanwhile; a busy server may take longer to greet.
    connection.settimeout(max(_RETRY_S, min(GREETING_S, deadline - time.monotonic())))
    try:
        return greeted(connection, credentials, listens=False)
    except (EOFError, OSError) as error:
        raise _refusal(address, error) from error


def _refusal(address: str, error: Exception) -> LaunchError:
    return LaunchError(
        f"No connection to the role at {address}: {type(error).__name__}: {error}.",
        "A firewall may be between the hosts, or that process has ended.",
        "Let Dask workers reach each other on all ports, or let all roles share a host: on=[addresses].",
    )


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


@contextmanager
def _as_file(path_or_text: str | None) -> Iterator[str | None]:
    """Give a path to what OpenSSL reads from files only; text is in no file system."""
    if path_or_text is None or "\n" not in path_or_text:
        yield path_or_text
        return
    descriptor = os.memfd_create("dask-train-certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, path_or_text.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
