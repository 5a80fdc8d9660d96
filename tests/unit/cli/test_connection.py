"""The way from ``--scheduler`` to a client, where there is no scheduler."""

from __future__ import annotations

import socket
from contextlib import suppress

import click
import dask
import pytest
from click.testing import CliRunner

from dask_train.cli.connection import connect, connection_options, scheduler_address


@click.command()
@connection_options
def command(scheduler, tls_ca_file, tls_cert, tls_key):
    with connect(scheduler, tls_ca_file, tls_cert, tls_key, timeout_s=1):
        click.echo("connected")


def run(*arguments):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code != 0
    return result.output


@pytest.fixture(autouse=True)
def unconfigured():
    with dask.config.set({"scheduler-address": None}):
        yield


def test_no_scheduler_is_given():
    assert "There is no scheduler given. Pass --scheduler ADDRESS, or set DASK_SCHEDULER_ADDRESS." in run()


def test_the_address_of_the_configuration():
    assert scheduler_address(None) is None
    with dask.config.set({"scheduler-address": "tcp://a:1"}):
        assert scheduler_address(None) == "tcp://a:1"
        assert scheduler_address("tcp://b:2") == "tcp://b:2"


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (
            "nonsense",
            "'nonsense' is no address: missing port number in address 'nonsense'. Write it like tcp://10.0.0.1:",
        ),
        ("foo://x:1", "'foo://x:1' is no address: unknown address scheme 'foo'"),
        ("tls://127.0.0.1:1", "tls://127.0.0.1:1 needs TLS, and there is no CA file or no certificate to use. Give"),
        ("tcp://127.0.0.1:1", "No Dask scheduler answered at tcp://127.0.0.1:1 within 1 s (ConnectionRefusedError:"),
    ],
)
def test_addresses_without_a_scheduler(address, text):
    assert text in run("--scheduler", address)


def test_what_listens_is_not_dask(no_leaks):
    with no_leaks(), socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()  # never answers, as a web server that waits for a request
        output = run("--scheduler", f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with suppress(BlockingIOError):
            server.setblocking(False)
            while True:
                server.accept()[0].close()
    assert "within 1 s." in output
    assert "the port is another one's (the dashboard has its own)" in output


def test_encryption_is_required():
    with dask.config.set({"distributed.comm.require-encryption": True}):
        output = run("--scheduler", "tcp://127.0.0.1:1")
    assert "encryption required" in output
    assert "Use the cluster's tls:// address." in output


def test_files_that_are_no_certificates(tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    options = ["--tls-ca-file", str(file), "--tls-cert", str(file), "--tls-key", str(file)]
    output = run("--scheduler", "127.0.0.1:1", *options)
    assert "The TLS files can't be used" in output
    assert "Each is a PEM file" in output
    assert "does not exist" in run("--tls-cert", str(tmp_path / "none"))
