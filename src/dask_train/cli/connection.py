"""The options that every ``dask train`` command has to reach a cluster, and the client that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
import dask.config

from dask_train.errors import DaskTrainError

if TYPE_CHECKING:
    from dask_train.cluster.clients import Client

# Below the options of commands that ask a cluster.
EXIT_STATUS = (
    "Exit status: 0; 1 where the cluster does not answer, or has no such run; 2 where the command line can't be "
    "understood."
)

_Command = TypeVar("_Command", bound=Callable[..., Any])

_pem = click.Path(exists=True, dir_okay=False)
_OPTIONS = (
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="The cluster's scheduler, such as tcp://10.0.0.1:8786.  [default: DASK_SCHEDULER_ADDRESS]",
    ),
    click.option("--tls-ca-file", type=_pem, help="CA cert(s) file for TLS (in PEM format)."),
    click.option("--tls-cert", type=_pem, help="Certificate file for TLS (in PEM format)."),
    click.option("--tls-key", type=_pem, help="Private key file for TLS (in PEM format)."),
)


def connection_options(command: _Command) -> _Command:
    """Add ``--scheduler``, ``--tls-ca-file``, ``--tls-cert`` and ``--tls-key``, named as ``dask worker`` names them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def scheduler_address(scheduler: str | None) -> str | None:
    """Return the address that was given, else the one that Dask is configured with, else None."""
    return scheduler or dask.config.get("scheduler-address", None) or None


@contextmanager
def connect(
    scheduler: str | None,
    tls_ca_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    timeout_s: float = 10.0,
) -> Iterator[Client]:
    """Connect a client that is closed at the end; the parameters are those of :func:`connection_options`.

    Raises
    ------
    click.ClickException
        No scheduler is given, or it does not answer within ``timeout_s``, or it can't be connected to.
    """
    from dask_train.cluster.connect import open_client

    address = scheduler_address(scheduler)
    if address is None:
        raise click.UsageError("There is no scheduler given. Pass --scheduler ADDRESS, or set DASK_SCHEDULER_ADDRESS.")
    try:
        client = open_client(address, tls_ca_file=tls_ca_file, tls_cert=tls_cert, tls_key=tls_key, timeout_s=timeout_s)
    except (DaskTrainError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    with client:
        yield client


@contextmanager
def default_cluster(
    scheduler: str | None, tls_ca_file: str | None = None, tls_cert: str | None = None, tls_key: str | None = None
) -> Iterator[None]:
    """Let the scheduler be the one of the default client, and of each ``Client()`` that is made without an address.

    Parameters
    ----------
    scheduler, tls_ca_file, tls_cert, tls_key
        As :func:`connect` takes them. Without a scheduler nothing is set.

    Raises
    ------
    click.ClickException
        It can't be connected to.
    """
    address = scheduler_address(scheduler)
    if address is None:
        yield
        return
    with connect(address, tls_ca_file, tls_cert, tls_key) as client:
        files = {"ca-file": tls_ca_file, "client.cert": tls_cert, "client.key": tls_key}
        tls = {f"distributed.comm.tls.{name}": path for name, path in files.items() if path is not None}
        with dask.config.set({"scheduler-address": client.scheduler.address, **tls}):
            yield
