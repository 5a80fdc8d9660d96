"""Connecting to a scheduler: of each thing that can be at an address, what a user is told."""

from __future__ import annotations

import socket
from contextlib import closing

import dask
import pytest
from distributed import Security

from dask_train.cluster.connect import open_client
from dask_train.errors import StalledError


@pytest.fixture
def running(local_clusters):
    """Makes clusters in this process that can be reached by TCP, with one Dask worker."""
    with local_clusters() as make:
        yield lambda **settings: make(1, processes=False, **{"protocol": "tcp", **settings})


@pytest.fixture
def silent():
    """The port of somebody who accepts, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_scheduler_is_connected_to(running):
    address = running().scheduler_address
    for given in (address, address.removeprefix("tcp://")):
        with closing(open_client(given)) as client:
            assert client.submit(int, "7").result(60) == 7


def test_a_dask_worker_is_no_scheduler(running):
    (worker,) = running().workers.values()
    with pytest.raises(ValueError, match=rf"At {worker.address} there is a Dask Worker, not a scheduler"):
        open_client(worker.address)


def test_nobody_listens(free_port):
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(StalledError, match=rf"answered at {address} within 0\.3 s \(ConnectionRefusedError: .*refused"):
        open_client(address, timeout_s=0.3)


def test_who_never_answers_is_given_up(silent):
    with pytest.raises(StalledError, match=r"within 0\.3 s\.") as error:
        open_client(f"tcp://127.0.0.1:{silent}", timeout_s=0.3)
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.parametrize("address", ["carrier-pigeon://10.0.0.1:1", "tcp://10.0.0.1", "tcp://10.0.0.1:port"])
def test_what_is_no_address(address):
    with pytest.raises(ValueError, match=rf"'{address}' is no address: .* Write it like tcp://10\.0\.0\.1:8786"):
        open_client(address, timeout_s=1.0)


def test_tls_without_certificates():
    with pytest.raises(ValueError, match=r"tls://127\.0\.0\.1:1 needs TLS, and there is no CA file or no certificate"):
        open_client("tls://127.0.0.1:1", timeout_s=1.0)


def test_a_plain_address_where_encryption_is_required(silent):
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(ValueError, match=r"can't be connected to: .*Use the cluster's tls:// address"),
    ):
        open_client(f"tcp://127.0.0.1:{silent}", timeout_s=1.0)


def test_tls_files_that_are_not_there_or_no_keys(make_certificates, tmp_path):
    files, empty = make_certificates(), tmp_path / "empty.pem"
    empty.touch()
    for key in (str(tmp_path / "missing.pem"), str(empty), make_certificates()["key"]):
        with pytest.raises(ValueError, match=rf"The TLS files can't be used \({files['ca_file']}, .*{key}\): "):
            open_client("127.0.0.1:1", tls_ca_file=files["ca_file"], tls_cert=files["cert"], tls_key=key)


def test_tls_files_from_the_configuration_are_named_as_such(tmp_path):
    missing = dict.fromkeys(("ca-file", "client.cert", "client.key"), str(tmp_path / "missing.pem"))
    with (
        dask.config.set({f"distributed.comm.tls.{name}": path for name, path in missing.items()}),
        pytest.raises(ValueError, match=r"can't be used \(from Dask configuration\)"),
    ):
        open_client("tcp://127.0.0.1:1")


def test_with_tls_files_an_address_without_a_scheme_is_tls(make_certificates, running):
    files = make_certificates()
    its = {"tls_ca_file": files["ca_file"]}
    for who in ("client", "scheduler", "worker"):
        its |= {f"tls_{who}_cert": files["cert"], f"tls_{who}_key": files["key"]}
    address = running(protocol="tls", security=Security(**its, require_encryption=True)).scheduler_address
    given = {"tls_ca_file": files["ca_file"], "tls_cert": files["cert"], "tls_key": files["key"]}
    with closing(open_client(address.removeprefix("tls://"), **given)) as client:
        assert client.submit(int, "7").result(60) == 7
