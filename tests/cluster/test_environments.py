"""Dask workers that lack what a network needs, or have it in another version: real ones, with folders of their own."""

from __future__ import annotations

from contextlib import ExitStack

import psutil
import pytest
from distributed import Client

import dask_train as dt


@pytest.fixture(scope="module")
def odd_workers(tmp_path_factory, local_clusters, dask_process, hide_module):
    """A client, and Dask workers without TensorFlow, without dask-train, and with another TensorFlow, by name."""
    folder = tmp_path_factory.mktemp("environments")
    for name in ("no_tensorflow", "no_dask_train", "old_tensorflow"):
        (folder / name).mkdir()
    hide_module("tensorflow", folder / "no_tensorflow")
    hide_module("dask_train", folder / "no_dask_train")
    metadata = folder / "old_tensorflow" / "tensorflow-1.15.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 1.15.2\n")
    with local_clusters() as make, Client(make(n_workers=1)) as client, ExitStack() as stack:
        for name in ("no_tensorflow", "no_dask_train", "old_tensorflow"):
            options = ["--nthreads", "1", "--name", name, "--local-directory", str(folder / name)]
            stack.enter_context(dask_process("worker", client.scheduler.address, *options, path=folder / name))
        client.wait_for_workers(4, timeout=60)
        info = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
        yield client, {worker["name"]: address for address, worker in info.items()}


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "no_tensorflow",
            dt.LaunchError,
            r"^tensorflow is not installed on 1 of 2 Dask workers: {address}\. Install .*\.\[tensorflow\]",
        ),
        ("no_dask_train", dt.LaunchError, r"^dask_train is not installed on 1 of 2 Dask workers: {address}\. Install"),
        (
            "old_tensorflow",
            dt.VersionMismatchError,
            r"^tensorflow is 1\.15\.2 on {address} and \d+\.\d+\.\d+ on the client\. Code and .* Install the same",
        ),
    ],
)
def test_a_dask_worker_that_is_not_fit(odd_workers, without_tensorflow, state, name, error, text):
    client, addresses = odd_workers
    on = [addresses[0], addresses[name]]
    with pytest.raises(error, match=text.format(address=addresses[name])):
        dt.start_tensorflow(client, worker=2, on=on)
    assert state(client)["networks"] == {}
    with dt.start_tensorflow(client, worker=1, on=[addresses[0]], leave_servers=True) as net:
        assert net.submit("worker", holds_no_socket)[0].result(timeout=60)


def holds_no_socket():
    """Whether only the running network's port is held here, and no earlier one's."""
    bound = [c for c in psutil.Process().net_connections(kind="tcp") if c.laddr.port and c.status == "NONE"]
    return not bound
