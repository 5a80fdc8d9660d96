"""``dask train doctor`` on real clusters: some well, some with each thing wrong that a process can show."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from contextlib import ExitStack

import dask
import pytest
from click.testing import CliRunner
from distributed import Client, Security
from distributed.core import Status

from dask_train.cli import train
from dask_train.doctor import examination


def doctor(address, *options):
    """The exit status and the lines."""
    result = CliRunner().invoke(train, ["doctor", "--scheduler", address, *options], catch_exceptions=False)
    return result.exit_code, result.output.splitlines()


def findings(lines, level):
    return [line.removeprefix(f"{level:<4}  ") for line in lines if line.startswith(f"{level:<4}  ")]


def test_a_cluster_that_is_well(cluster):
    status, lines = doctor(cluster.scheduler_address)
    assert (status, findings(lines, "bad"), lines[-1][:5]) == (0, [], "0 bad")
    assert len([line for line in lines if line.startswith("tcp://") and "installed as here" in line]) == 3
    well = "\n".join(findings(lines, "ok"))
    assert "Ports can be opened and reached on the only host (1 tried, 1 host)." in well
    assert "Clocks agree" in well
    assert "The scheduler gets dask-train's plug-in from the first run." in well


def test_a_cluster_without_dask_workers(make_cluster):
    status, lines = doctor(make_cluster(n_workers=0).scheduler_address)
    assert status == 1
    assert re.fullmatch(
        r"The cluster has no Dask worker\. Start some: dask worker tcp://\S+", findings(lines, "bad")[0]
    )


def test_everything_that_can_be_wrong(tmp_path, make_cluster, dask_process, hide_module, monkeypatch):
    monkeypatch.setattr(examination, "ANSWER_S", 3.0)
    for name in ("old", "bare", "hung"):
        (tmp_path / name).mkdir()
    metadata = tmp_path / "old" / "tensorflow-1.15.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 1.15.2\n")
    hide_module("dask_train", tmp_path / "bare")
    with dask.config.set({"distributed.worker.memory.pause": False}), ExitStack() as stack:
        cluster = make_cluster(n_workers=1)
        client = stack.enter_context(Client(cluster))
        processes = {}
        for name in ("old", "bare", "hung"):
            options = ["--nthreads", "1", "--no-nanny", "--name", name, "--local-directory", str(tmp_path / name)]
            started = dask_process("worker", cluster.scheduler_address, *options, path=tmp_path / name)
            processes[name] = stack.enter_context(started)
        client.wait_for_workers(4, timeout=60)
        info = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
        address = {worker["name"]: address for address, worker in info.items()}
        client.run(pause, workers=[address[0]])
        processes["hung"].send_signal(signal.SIGSTOP)
        try:
            status, lines = doctor(cluster.scheduler_address)
        finally:
            processes["hung"].send_signal(signal.SIGCONT)
    assert status == 1
    assert [text.partition(". ")[0] for text in findings(lines, "bad")] == [
        f"1 of 4 Dask workers ({address['hung']}) could not be asked: no answer within 3 s",
        f"1 of 4 Dask workers ({address[0]}) is paused and takes no tasks",
        f"dask_train is not installed on 1 of 4 Dask workers ({address['bare']})",
    ]
    warnings = "\n".join(findings(lines, "warn"))
    assert f"tensorflow is 1.15.2 on 1 of 4 Dask workers ({address['old']}) and " in warnings
    alone = [one for one in info if one in (address["old"], address["bare"])]
    assert f"2 of 4 Dask workers ({', '.join(alone)}) have no nanny" in warnings


def pause(dask_worker):
    dask_worker.status = Status.paused


def test_the_address_of_something_else(cluster):
    worker = cluster.workers[0].worker_address
    assert doctor(worker) == (
        1,
        [f"Error: At {worker} there is a Dask Worker, not a scheduler. Take the scheduler's address."],
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_cluster_with_tls(tmp_path, make_cluster):
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    making = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*making, "-keyout", key, "-out", cert], check=True, capture_output=True, timeout=60)
    roles = {
        f"tls_{role}_{kind}": file
        for role in ("scheduler", "worker", "client")
        for kind, file in (("key", key), ("cert", cert))
    }
    cluster = make_cluster(n_workers=1, protocol="tls://", security=Security(tls_ca_file=cert, **roles))
    address = cluster.scheduler_address
    files = ["--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
    for name in (address, address.removeprefix("tls://")):  # the files say that TLS is meant
        status, lines = doctor(name, *files)
        assert status == 0
        assert findings(lines, "warn")[-1].startswith(
            "Dask's connections use TLS, but TensorFlow's own ports have neither"
        )
    status, lines = doctor(address)
    assert status == 1
    assert lines[0].startswith(f"Error: {address} needs TLS, and there is no CA file")
