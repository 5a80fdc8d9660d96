"""Faults that change the cluster itself, and clusters of other kinds: without nannies, with TLS, with limits."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import dask.array as da
import pytest
from distributed import Client
from distributed.security import Security

import dask_train as dt

pytestmark = pytest.mark.slow


def beat(session):
    """Reports 20 times a second until it is told to stop; what it returns tells its process."""
    while not session.should_stop():
        session.report(pid=os.getpid())
        time.sleep(0.05)
    return session.attempt, os.getpid()


def retire(client, address):
    client.retire_workers([address])


def close(client, address):
    async def leave(dask_worker):
        dask_worker.loop.add_callback(dask_worker.close, reason="the test closes it")

    client.run(leave, workers=[address])


@pytest.mark.parametrize("leave", [retire, pytest.param(close, marks=pytest.mark.nightly)])
def test_an_explicit_departure_counts_as_a_loss(make_cluster, until, wait_for, leave):
    with Client(make_cluster(n_workers=3)) as client:
        run = dt.train(beat, roles={"worker": 2}, wait=False)
        roles = until(run, 10)
        leave(client, roles["worker", 0]["address"])
        before = {role["pid"] for role in roles.values()}
        wait_for(lambda: {score["pid"] for score in run._driver.history.scores} - before, "a replacement's report")
        until(run, run.status()["num_scores"] + 40)
        run.stop()
        replaced, kept = run.result().results["worker"]
        assert (replaced[0], kept) == (1, (0, roles["worker", 1]["pid"]))


def test_retiring_without_names_leaves_members_alone(make_cluster, until):
    with Client(make_cluster(n_workers=3)) as client:
        run = dt.train(beat, roles={"worker": 2}, wait=False)
        members = {role["address"] for role in until(run, 4).values()}
        closed = client.sync(client.scheduler.workers_to_close, n=3)
        assert members.isdisjoint(closed)
        assert len(closed) == 1
        run.stop()


def test_a_role_killed_for_the_containers_memory_limit(dask_process, memory_cgroup, wait_for, tmp_path):
    def eat(session):
        eaten = []
        while True:
            eaten.append(bytearray(b"x") * (16 << 20))

    with (
        dask_process("scheduler", "--port", "0", "--scheduler-file", str(tmp_path / "s.json"), path=tmp_path),
        dask_process("worker", "--scheduler-file", str(tmp_path / "s.json"), "--no-nanny", path=tmp_path) as worker,
        Client(scheduler_file=str(tmp_path / "s.json")) as client,
    ):
        client.wait_for_workers(1, timeout=30)
        (memory_cgroup / "cgroup.procs").write_text(str(worker.pid))
        with pytest.raises(dt.RoleLostError, match="killed by the kernel because the container's memory limit"):
            dt.train(eat, roles={"worker": 1}, recovery=None)
        assert dt.train(lambda session: 1, roles={"worker": 1}).results == {"worker": [1]}


PROGRAM = """
import os, sys, time
import dask_train as dt
from distributed import Client

def worker(session):
    session.report(pid=os.getpid())
    session.wait_until_stopped()

if __name__ == "__main__":
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    run = dt.train(worker, roles={{"worker": 2}}, wait=False)
    for score in run.scores():
        print(score["pid"], flush=True)
        if score["rank"] == 1:
            print("up", flush=True)
            {then}
"""


@pytest.mark.parametrize("then", ["run.result()", pytest.param("continue", marks=pytest.mark.nightly)])
def test_ctrl_c_in_a_script_with_a_local_cluster(wait_for, is_alive, then):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        pids = []
        for line in process.stdout:
            if line.strip() == "up":
                break
            pids.append(int(line))
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    wait_for(lambda: not any(map(is_alive, pids)), "its roles are gone")


@contextmanager
def processes(dask_process, folder, *, worker_path=None, scheduler_path=None, options=(), worker_options=()):
    """``dask scheduler`` and ``dask worker`` as processes of their own, without a nanny."""
    file = ("--scheduler-file", str(folder / "scheduler.json"))
    with (
        dask_process("scheduler", "--port", "0", *file, *options, path=scheduler_path or folder) as scheduler,
        dask_process(
            "worker", *file, "--no-nanny", "--nthreads", "2", *options, *worker_options, path=worker_path or folder
        ) as worker,
    ):
        yield scheduler, worker, {"scheduler_file": file[1]}


def test_neither_a_nanny_nor_dask_train_in_the_scheduler_is_needed(dask_process, hide_module, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hide_module("dask_train", hidden)
    with (
        processes(dask_process, tmp_path, scheduler_path=hidden) as (_, _, where),
        Client(**where) as client,
    ):
        client.wait_for_workers(1, timeout=30)
        with pytest.raises(ModuleNotFoundError):
            client.run_on_scheduler(importlib.import_module, "dask_train")
        result = dt.train(
            lambda session: sum(int(x.sum()) for x in session.batches()),
            roles={"worker": 2},
            data=da.arange(20, chunks=3),
        )
        assert sum(result.results["worker"]) == sum(range(20))


def test_a_dask_worker_without_dask_train_is_named(dask_process, hide_module, tmp_path):
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    hide_module("dask_train", hidden)
    with processes(dask_process, tmp_path, worker_path=hidden) as (_, _, where), Client(**where) as client:
        client.wait_for_workers(1, timeout=30)
        with pytest.raises(
            dt.LaunchError, match=r"No role can start on tcp://127.0.0.1:.*: dask_train is not installed"
        ):
            dt.train(lambda session: 1, roles={"ps": 1, "worker": 1})


def test_another_version_on_a_dask_worker_is_named(dask_process, tmp_path):
    other = tmp_path / "other"
    (other / "dask_train-9.9.9.dist-info").mkdir(parents=True)
    (other / "dask_train-9.9.9.dist-info" / "METADATA").write_text("Name: dask-train\nVersion: 9.9.9\n")
    with processes(dask_process, tmp_path, worker_path=other) as (_, _, where), Client(**where) as client:
        client.wait_for_workers(1, timeout=30)
        with pytest.raises(
            dt.LaunchError,
            match=rf"dask_train is 9.9.9 there and {re.escape(dt.__version__)} in the client; install the same",
        ):
            dt.train(lambda session: 1, roles={"worker": 1})


def test_a_scheduler_that_is_killed_ends_run_and_roles(dask_process, tmp_path, until, wait_for, is_alive):
    with processes(dask_process, tmp_path) as (scheduler, _, where):
        client = Client(**where, timeout=2)
        try:
            client.wait_for_workers(1, timeout=30)
            run = dt.train(beat, roles={"worker": 2}, wait=False)
            roles = until(run, 4)
            scheduler.kill()
            with pytest.raises(dt.DaskTrainError, match="The Dask scheduler did not answer"):
                run.result(60)
            wait_for(lambda: not any(is_alive(role["pid"]) for role in roles.values()), "its roles are gone")
        finally:
            client.close(timeout=2)


def test_a_cluster_with_tls(dask_process, tmp_path):
    certificate, key = str(tmp_path / "certificate.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    options = ("--protocol", "tls", "--tls-ca-file", certificate, "--tls-cert", certificate, "--tls-key", key)
    security = Security(
        tls_ca_file=certificate, tls_client_cert=certificate, tls_client_key=key, require_encryption=True
    )
    with (
        processes(dask_process, tmp_path, options=options) as (_, _, where),
        Client(**where, security=security) as client,
    ):
        client.wait_for_workers(1, timeout=30)
        run = dt.train(beat, roles={"worker": 2}, data=da.arange(10, chunks=3), wait=False)
        assert len([score for score, _ in zip(run.scores(), range(10), strict=False)]) == 10
        assert all(role["address"].startswith("tls://") for role in run.status()["roles"])
        run.stop()
        assert [attempt for attempt, _ in run.result().results["worker"]] == [0, 0]


def test_tensorflow_with_a_parameter_server_and_a_scorer(make_cluster):
    """Between-graph replication in TensorFlow's own terms, on session's batches, server and cluster spec."""

    def graph(session, device):
        import tensorflow as tf

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        with v1.device(v1.train.replica_device_setter(worker_device=device, cluster=session.cluster_spec.as_dict())):
            steps = v1.train.get_or_create_global_step()
            weight = v1.get_variable("weight", (), initializer=v1.zeros_initializer())
            x = v1.placeholder(tf.float32, (None,))
            loss = tf.reduce_mean((x * weight - 3 * x) ** 2)
            train = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=steps)
        return v1, x, weight, train

    def worker(session):
        v1, x, weight, train = graph(session, f"/job:worker/task:{session.rank}")
        with v1.Session(session.server.target) as running:
            if session.is_chief:
                running.run(v1.global_variables_initializer())
            while running.run(v1.report_uninitialized_variables()).size:
                time.sleep(0.05)
            for batch in session.batches(epochs=50, batch_size=20):
                value, _ = running.run([weight, train], {x: batch})
                session.report(weight=value)
                if session.should_stop():
                    break
            return float(running.run(weight))

    def scorer(session):
        assert session.server is None
        v1, _, weight, _ = graph(session, "/job:worker/task:0")
        with v1.Session(f"grpc://{session.cluster_spec.task_address('ps', 0)}") as running:
            while not session.should_stop():
                if not running.run(v1.report_uninitialized_variables()).size:
                    session.report(error=abs(float(running.run(weight)) - 3))
                time.sleep(0.05)

    with Client(make_cluster(n_workers=2, threads_per_worker=2)):
        result = dt.train(
            {"worker": worker, "scorer": scorer},
            roles={"ps": 1, "worker": 2, "scorer": 1},
            data=da.random.random(40, chunks=7).astype("f4"),
            framework="tensorflow",
            stop="error < 0.01",
        )
    assert all(abs(weight - 3) < 0.1 for weight in result.results["worker"])
    assert result.stop_reason.startswith("error is") or not result.stop_reason
