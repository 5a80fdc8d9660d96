"""Runs over two hosts that share neither network nor processes, as those of a real cluster do not."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import wait

import dask_train as dt

ROWS = 1003
MB = 1 << 20
HARNESS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def shared_cluster(hosts: Callable[..., Any], no_leaks: Callable[..., Any]) -> Iterator[Any]:
    """Two hosts with a Dask worker of one thread each, for all tests of the module."""
    with no_leaks(), hosts(2) as cluster:
        yield cluster
    assert not devices(os.getpid())


def _processes(cluster: Any, host: int) -> dict[int, str]:
    """What runs on a host, but the templates of its Dask workers, which end with these."""
    return {pid: command for pid, command in cluster.processes(host).items() if "dask_train.process" not in command}


@pytest.fixture
def cluster(shared_cluster: Any, state: Callable[..., Any], wait_for: Callable[..., Any]) -> Iterator[Any]:
    """The shared hosts; fails when a test leaves a process there, or a run or a result with the scheduler."""
    before = [_processes(shared_cluster, host) for host in (0, 1)]
    client = shared_cluster.client
    yield shared_cluster
    wait_for(lambda: [_processes(shared_cluster, host) for host in (0, 1)] == before, "only Dask's processes are left")
    wait_for(lambda: state(client)["runs"] == (), "the scheduler has no run")
    wait_for(lambda: not client.sync(client.scheduler.who_has), "the scheduler has no result")


def devices(pid: int) -> list[str]:
    """The network devices on this machine that a process has made for its hosts."""
    return [name for name in os.listdir("/sys/class/net") if name.startswith(f"dt{pid}n")]


def surroundings() -> dict[str, Any]:
    return {
        "name": socket.gethostname(),
        "boot": Path("/proc/sys/kernel/random/boot_id").read_text(),
        "processes": [process.name() for process in psutil.process_iter()],
        "shared memory": os.listdir("/dev/shm"),  # noqa: S108
    }


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_hosts_see_nothing_of_each_other_but_their_addresses(cluster):
    workers = [worker for host in (0, 1) for worker in cluster.workers_on(host)]
    mine = Path("/dev/shm/mine")  # noqa: S108
    cluster.client.run(mine.touch, workers=workers[:1])
    told = cluster.client.run(surroundings)
    cluster.client.run(mine.unlink, workers=workers[:1])
    first, second = [told[worker] for worker in workers]
    assert (first["shared memory"], second["shared memory"], mine.exists()) == (["mine"], [], False)
    assert [first["name"], second["name"]] == cluster.names
    assert len({first["boot"], second["boot"], surroundings()["boot"]}) == 3
    assert len(first["processes"]) == len(second["processes"]) == 2  # its init, and a Dask worker

    address, _, port = workers[1].rpartition("://")[2].rpartition(":")
    for host, reached in ((address, True), (cluster.names[1], True), ("127.0.0.1", False)):
        assert cluster.client.run(can_connect, host, int(port), workers=workers[:1]) == {workers[0]: reached}


def test_every_row_once_over_two_hosts(cluster):
    def worker(session):
        rows = []
        for x, y in session.batches(batch_size=100, seed=2):
            assert (x[:, 1] == y).all()
            rows += y.tolist()
        return rows, socket.gethostname()

    y = da.arange(ROWS, chunks=97)
    x = da.stack([y] * 3, axis=1)
    result = dt.train(worker, roles={"worker": 2}, data=(x, y), client=cluster.client)
    (first, *first_at), (second, *second_at) = result.results["worker"]
    assert sorted(first + second) == list(range(ROWS))
    assert abs(len(first) - len(second)) <= 11  # one a batch at most
    assert sorted(first_at + second_at) == cluster.names
    places = result.attempts[0].places
    assert {cluster.host_of(places[f"worker/{rank}"]) for rank in (0, 1)} == {0, 1}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torch_processes_meet_over_the_network(cluster):
    def reduce(session):
        import torch
        import torch.distributed as dist

        numbers = torch.full((4 * MB // 4,), 1.0 + dist.get_rank())
        dist.all_reduce(numbers)
        total = torch.zeros((), dtype=torch.int64)
        for x in session.batches(batch_size=100):
            total += x.sum()
        dist.all_reduce(total)
        names = ("MASTER_ADDR", "GLOO_SOCKET_IFNAME")
        places = ("RANK", "GROUP_RANK", "NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "PL_TRAINER_DEVICES")
        return (
            numbers.unique().tolist(),
            int(total),
            socket.gethostname(),
            [os.environ[name] for name in names],
            "".join(os.environ[name] for name in places),
            session.torch_dataset()[[ROWS - 1, 0]].tolist(),  # one of them lies on the other host
        )

    before = cluster.bytes_between()
    result = dt.train(
        reduce, roles={"worker": 2}, data=da.arange(ROWS, chunks=97), framework="torch", client=cluster.client
    )
    moved = cluster.bytes_between() - before
    print(f"{moved / MB:.1f} MB between the hosts")
    first, second = result.results["worker"]
    assert first[:2] == second[:2] == ([3.0], sum(range(ROWS)))
    assert sorted((first[2], second[2])) == cluster.names
    assert first[3] == second[3] == [cluster.addresses[cluster.names.index(first[2])], "eth0"]
    assert (first[4], second[4]) == ("000012", "111012")
    assert first[5] == second[5] == [ROWS - 1, 0]
    assert 8 * MB < moved < 10 * MB  # each sends its numbers, or half of them and half of the sums


def test_local_rows_stay(cluster):
    """Half of the data on each host: hosts send each other what balances the ranks' shares, and no more."""

    def make(first_row):
        rows = np.random.default_rng(first_row).random((MB // 128, 128))  # 8 MB
        rows[:, 0] = np.arange(first_row, first_row + len(rows))
        return rows

    def worker(session):
        ids = [x[:, 0].astype(int).sum() for x in session.batches(epochs=2, batch_size=4096)]
        return int(sum(ids)), socket.gethostname()

    client = cluster.client
    length = MB // 128
    parts = [
        client.submit(make, (8 * host + k) * length, workers=cluster.workers_on(host), pure=False)
        for host in (0, 1)
        for k in range(8)
    ]
    wait(parts, timeout=60)
    rows = da.concatenate([da.from_delayed(part, (length, 128), dtype="f8") for part in parts])
    num_rows, num_bytes = len(rows), rows.nbytes
    assert num_bytes == 128 * MB
    before = cluster.bytes_between()
    started = time.monotonic()
    result = dt.train(worker, roles={"worker": 2}, data=rows, client=client)
    took = time.monotonic() - started
    moved = cluster.bytes_between() - before
    del parts, rows  # also where what follows fails: the next test is to find none
    print(f"{moved / MB:.1f} MB of {num_bytes / MB:g} MB between the hosts, in {took:.1f} s")
    assert sum(total for total, _ in result.results["worker"]) == 2 * sum(range(num_rows))
    assert sorted(at for _, at in result.results["worker"]) == cluster.names
    assert moved < num_bytes / 20


def test_a_host_that_dies_takes_its_role_along(hosts, until, wait_for):
    def beat(session):
        while not session.should_stop():
            session.report(here=1)
            time.sleep(0.05)

    with hosts(2) as cluster:
        run = dt.train(beat, roles={"worker": 2}, recovery=None, wait=False, client=cluster.client)
        roles = until(run, 10)
        (lost,) = cluster.workers_on(1)
        (rank,) = [rank for (_, rank), role in roles.items() if role["address"] == lost]
        cluster.kill(1)
        with pytest.raises(dt.RoleLostError, match=f"worker {rank} is lost: the Dask worker {lost} left the cluster"):
            run.result(60)
        left = "the other host has its Dask worker and a template"
        wait_for(lambda: not any("-m dask_train.role" in each for each in cluster.processes(0).values()), left)


def test_a_host_that_is_cut_off_is_what_is_lost(hosts, tmp_path, wait_for):
    """The other rank waits for rows from there, and raises since nobody answers it; that is not taken for its fault."""

    def worker(session):
        seen = 0
        for number, batch in enumerate(session.batches(batch_size=20, shuffle="partition", seed=3)):
            seen += len(batch)
            if number == 1 and session.attempt == 0:
                (tmp_path / f"begun-{session.rank}").touch()
                while not (tmp_path / "cut").exists():
                    time.sleep(0.01)
        return seen

    with dask.config.set({"train.progress.timeout": "5s"}), hosts(2, threads=2) as cluster:
        rows = da.from_array(np.arange(2.0 * ROWS).reshape(ROWS, 2), chunks=(50, 2))
        run = dt.train(worker, roles={"worker": 2}, data=rows, recovery="gang", wait=False, client=cluster.client)
        wait_for(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "both ranks read")
        (cut,) = cluster.workers_on(1)
        (rank,) = [role["rank"] for role in run.status()["roles"] if role["address"] == cut]
        cluster.unplug(1)
        (tmp_path / "cut").touch()
        result = run.result(90)
        assert sum(result.results["worker"]) == ROWS
        assert len(result.attempts) == 2
        assert result.attempts[0].reason.startswith(f"worker {rank}"), result.attempts[0].reason
        assert {cluster.host_of(address) for address in result.attempts[1].places.values()} == {0}
        del run, rows


PROGRAM = """
import time
from hosts import hosts

if __name__ == "__main__":
    with hosts(1) as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_hosts_end_with_the_process_that_made_them(shared_cluster, is_alive, wait_for, tmp_path, end):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": os.fspath(HARNESS), "TMPDIR": os.fspath(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline().startswith("tcp://10.")
            made = psutil.Process(process.pid).children(recursive=True)
            assert len(devices(process.pid)) == 1
        finally:
            os.killpg(process.pid, end)
        process.wait(60)
    wait_for(lambda: not any(is_alive(each.pid) for each in made), f"{len(made)} processes are gone")
    wait_for(lambda: not devices(process.pid), "the device is gone")
    assert len(made) == 5  # a switch, a scheduler; what made the host, its init and its Dask worker
    assert end == signal.SIGKILL or not list(tmp_path.iterdir())


def keras_model() -> Any:
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(8, "tanh"), keras.layers.Dense(3)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def test_workers_of_two_hosts_train_the_model_of_one_process(cluster):
    """Two workers on each: sums through shared memory, and between the hosts around a ring."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 5)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    arguments = {"batch_size": 32, "epochs": 2, "shuffle": False}
    alone, together = keras_model(), keras_model()
    alone.fit(x, y, verbose=0, **arguments)
    data = da.from_array(x, chunks=(70, 5)), da.from_array(y, chunks=70)
    result = dt.fit(together, *data, workers=4, client=cluster.client, **arguments)
    assert sorted(place for attempt in result.attempts for place in attempt.places.values()) == sorted(
        2 * [worker for host in (0, 1) for worker in cluster.workers_on(host)]
    )
    for one, other in zip(alone.get_weights(), together.get_weights(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-5)
    assert result.history["accuracy"] == pytest.approx(alone.history.history["accuracy"])
    assert result.ledger.trained == 600


@pytest.mark.slow
def test_gradients_of_keras_travel_as_bfloat16(cluster):
    """The workers compare their weights after the first step and each epoch, and would end with an error."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 5)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    arguments = {"batch_size": 32, "epochs": 3, "shuffle": False}
    alone, together = keras_model(), keras_model()
    history = alone.fit(x, y, verbose=0, **arguments).history
    data = da.from_array(x, chunks=(70, 5)), da.from_array(y, chunks=70)
    result = dt.fit(together, *data, workers=3, wire="bfloat16", client=cluster.client, **arguments)
    differ = [abs(a - b).max() for a, b in zip(alone.get_weights(), together.get_weights(), strict=True)]
    assert 1e-5 < max(differ) < 0.02, "rounded, and little else"
    assert result.history["loss"] == pytest.approx(history["loss"], rel=1e-2)
    assert any("between the 2 hosts in bfloat16" in notice for notice in result.notices)


@pytest.mark.slow
def test_gradients_that_are_summed_during_the_backward_pass_are_those_of_one_process(cluster, tmp_path):
    """Equal to rounding: which rows of a batch a host has depends on where Dask has computed the partitions."""
    torch = pytest.importorskip("torch")

    class Noting(torch.optim.SGD):
        most_of_step, folder = 0.0, ""

        def __init__(self, parameters, most_of_step, folder):
            super().__init__(parameters, lr=0.1)
            self.most_of_step, self.folder = most_of_step, folder

        def step(self, closure=None):
            from dask_train.fitting.torch_module import gradients

            gradients.LEAST_PART_OF_STEP = self.most_of_step
            super().step(closure)
            is_early = any(thread.name == "dask-train-sums" for thread in threading.enumerate())
            Path(self.folder, f"{socket.gethostname()} {os.getpid()}").write_text(str(is_early))

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 5))
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    found = {}
    for way, workers, most_of_step in (("early", 3, -1.0), ("in the end", 3, 1e9), ("alone", 0, 1e9)):
        (folder := tmp_path / way).mkdir()
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(5, 300), torch.nn.Tanh(), torch.nn.Linear(300, 3)).double()
        dt.fit(
            module,
            da.from_array(x, chunks=(70, 5)),
            da.from_array(y, chunks=70),
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=functools.partial(Noting, most_of_step=most_of_step, folder=str(folder)),
            batch_size=32,
            epochs=2,
            workers=workers,
            client=cluster.client,
            verbose=0,
        )
        found[way] = [value.numpy() for value in module.state_dict().values()]
        if workers:
            assert [file.read_text() for file in folder.iterdir()] == [str(way == "early")] * workers
    for early, later, alone in zip(*found.values(), strict=True):
        np.testing.assert_allclose(early, alone, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(later, alone, rtol=1e-9, atol=1e-12)


def test_gradients_that_travel_as_bfloat16_are_the_same_on_all_workers_in_half_of_the_bytes(cluster, tmp_path):
    """Three workers, so that two share a host; each notes its weights after each step."""
    torch = pytest.importorskip("torch")

    class Noting(torch.optim.SGD):
        folder = ""

        def __init__(self, parameters, folder):
            super().__init__(parameters, lr=0.1)
            self.folder = folder

        def step(self, closure=None):
            super().step(closure)
            (group,) = self.param_groups
            digest = hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in group["params"])).hexdigest()
            with Path(self.folder, f"{socket.gethostname()} {os.getpid()}").open("a") as file:
                file.write(f"{digest}\n")

    random = np.random.default_rng(0)
    x = random.normal(size=(330, 50)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    found, notices = {}, {}
    before = cluster.bytes_between()
    for workers in (0, 3):
        (folder := tmp_path / str(workers)).mkdir()
        torch.manual_seed(3)
        module = torch.nn.Sequential(torch.nn.Linear(50, 2000), torch.nn.Tanh(), torch.nn.Linear(2000, 3))
        result = dt.fit(
            module,
            da.from_array(x, chunks=(70, 50)),
            da.from_array(y, chunks=70),
            loss=torch.nn.CrossEntropyLoss(),
            optimizer=functools.partial(Noting, folder=str(folder)),
            batch_size=33,
            epochs=6,
            workers=workers,
            wire="bfloat16",
            client=cluster.client,
            verbose=0,
        )
        found[workers] = torch.cat([one.flatten() for one in module.parameters()]).detach().numpy()
        notices[workers] = " ".join(result.notices)
    moved = cluster.bytes_between() - before
    notes = [file.read_text().splitlines() for file in (tmp_path / "3").iterdir()]
    assert [len(its) for its in notes] == [60] * 3
    assert notes[0] == notes[1] == notes[2], "to the last bit, after each step"
    assert "between the 2 hosts in bfloat16" in notices[3]
    assert "changed nothing" in notices[0]
    in_float32 = 60 * 2 * 4 * len(found[0])  # each host sends half of the gradients, and half of the sums
    print(f"{moved / MB:.1f} MB between the hosts, {in_float32 / MB:.1f} MB of gradients in float32")
    assert in_float32 / 2 < moved < 0.6 * in_float32
    differ = abs(found[3] - found[0])
    assert 0 < differ.max() < 0.05
    assert differ.mean() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["bfloat16", pytest.param(None, marks=pytest.mark.nightly)])
def test_workers_that_step_alone_send_weights_once_a_turn(cluster, wire):
    """They compare their weights after the first turn and each epoch, and would end with an error."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    x = random.normal(size=(640, 50)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(50, 2000), torch.nn.Tanh(), torch.nn.Linear(2000, 3))
    before = cluster.bytes_between()
    result = dt.fit(
        module,
        da.from_array(x, chunks=(160, 50)),
        da.from_array(y, chunks=160),
        loss=torch.nn.CrossEntropyLoss(),
        optimizer=functools.partial(torch.optim.SGD, lr=0.1),
        batch_size=32,
        epochs=4,
        workers=2,
        sync_every=8,
        wire=wire,
        validation_data=(x[:100], y[:100]),
        client=cluster.client,
        verbose=0,
    )
    moved = cluster.bytes_between() - before
    turns = 4 * 3  # of 8, 8 and 4 steps
    num_bytes = turns * 2 * (2 if wire else 4) * sum(one.numel() for one in module.parameters())
    print(f"{moved / MB:.2f} MB between the hosts, of weights {num_bytes / MB:.2f} MB")
    assert num_bytes < moved < num_bytes + 4 * MB
    assert result.history["val_loss"][-1] < 0.7 * result.history["val_loss"][0]
    assert len([notice for notice in result.notices if "sync_every=8" in notice]) == 1


def test_a_worker_that_is_lost_in_mid_sum_is_a_loss_and_no_failure(cluster, tmp_path, wait_for):
    """The other host's worker sees its connection end, and is started again with it."""
    keras = pytest.importorskip("keras")
    began, killed = tmp_path / "began", tmp_path / "killed"

    class Slow(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            began.touch()
            if not killed.exists():
                time.sleep(0.05)

    def kill():
        wait_for(began.exists, "a step", 120)
        (role,) = (pid for pid, command in cluster.processes(1).items() if "-m dask_train.role" in command)
        os.kill(role, signal.SIGKILL)
        killed.touch()

    random = np.random.default_rng(0)
    x = random.normal(size=(600, 5)).astype("f4")
    data = da.from_array(x, chunks=(70, 5)), da.from_array((x.sum(1) > 0).astype("i8"), chunks=70)
    killer = threading.Thread(target=kill)
    killer.start()
    result = dt.fit(keras_model(), *data, workers=2, batch_size=6, epochs=1, client=cluster.client, callbacks=[Slow()])
    killer.join(60)
    assert not killer.is_alive()
    assert killed.exists()
    assert len(result.attempts) == 2
    assert (result.ledger.trained, result.ledger.dropped) == (600, 0)


def test_workers_of_both_hosts_train_one_trial_after_the_other(cluster, tmp_path):
    """They meet anew for each, and stay the same processes."""
    keras = pytest.importorskip("keras")

    class Noting(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            (tmp_path / f"{os.getpid()}-{time.time_ns()}").touch()

    def build(trial):
        trial.suggest_float("unused", 0, 1)
        return keras_model(), {"callbacks": [Noting()]}

    random = np.random.default_rng(0)
    x = random.normal(size=(300, 5)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    found = dt.search(
        build,
        da.from_array(x, chunks=(70, 5)),
        da.from_array(y, chunks=70),
        validation_data=(x[:50], y[:50]),
        trials=3,
        workers_per_trial=2,
        batch_size=30,
        client=cluster.client,
    )
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 3
    begun = [note.name.partition("-")[0] for note in tmp_path.iterdir()]
    assert (len(begun), len(set(begun))) == (3, 1)


def test_workers_of_both_hosts_train_through_parameter_servers(cluster):
    """Two servers and two workers: lines through memory, and between the hosts over TCP."""
    random = np.random.default_rng(0)
    x = random.normal(size=(1001, 5)).astype("f4")
    y = (x[:, :3] * [1, 2, 3]).argmax(1)
    model = keras_model()
    data = da.from_array(x, chunks=(130, 5)), da.from_array(y, chunks=130)
    before = cluster.bytes_between()
    result = dt.fit(model, *data, workers=2, ps=2, batch_size=20, epochs=4, client=cluster.client)
    assert cluster.bytes_between() > before
    places = {name: cluster.host_of(place) for name, place in result.attempts[0].places.items()}
    assert {places["worker/0"], places["worker/1"]} == {0, 1} or {places["ps/0"], places["ps/1"]} == {0, 1}
    assert result.ledger.trained == 4 * 1001
    assert int(model.optimizer.iterations) == 4 * (2 * 51 - 1)  # the last batch has a row for one worker of the two
    assert model.evaluate(x, y, verbose=0)[1] > 0.8
