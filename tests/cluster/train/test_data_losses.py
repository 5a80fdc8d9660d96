"""Rows and models when what holds them is lost: a Dask worker, a role, the source; and rows that are written into."""

from __future__ import annotations

import gc
import os
import signal
import time

import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import Client, wait

import dask_train as dt
from dask_train.predicting.sent_models import KEPT_BYTES

ROWS = 1003


@pytest.fixture(scope="module")
def shared_client(local_clusters):
    """3 Dask workers with a thread each."""
    with local_clusters() as make, Client(make(n_workers=3, threads_per_worker=1)) as client:
        yield client


@pytest.fixture
def client(shared_client, workers, state, wait_for):
    """The shared client; fails when a test leaves a run, a result, or a Dask worker less."""
    wait_for(lambda: len(workers(shared_client)) == 3, "three Dask workers")
    yield shared_client
    gc.collect()  # of errors, whose frames have the data
    wait_for(lambda: len(workers(shared_client)) == 3, "the nanny has started the Dask worker again")
    wait_for(lambda: state(shared_client)["runs"] == (), "the scheduler has no run")
    wait_for(lambda: not shared_client.sync(shared_client.scheduler.who_has), "the scheduler has no result")


def wait_for_file(file, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def kill(client, address):
    """End a Dask worker at once."""
    client.run(die, workers=[address], on_error="ignore")


def begun_then_waiting(folder):
    """Goes through two epochs, partition by partition, so that both ranks need each; waits with its third batch."""

    def worker(session):
        seen = []
        for number, (x, y) in enumerate(session.batches(epochs=2, batch_size=20, shuffle="partition", seed=3)):
            assert (x == y[:, None]).all()
            seen += y.tolist()
            if number == 2 and session.attempt == 0:
                (folder / f"begun-{session.rank}").touch()
                wait_for_file(folder / "go on")
        return seen

    return worker


def part_of(start, length=50):
    y = np.arange(start, min(ROWS, start + length))
    return np.stack([y] * 2, axis=1), y


def checked(result, repeated=0):
    assert sorted(sum(result.results["worker"], [])) == sorted([*range(ROWS)] * 2)
    ledger = result.ledger
    assert (ledger.trained, ledger.repeated, ledger.dropped) == (2 * ROWS, repeated, 0)
    return result


def test_a_dask_worker_with_segments_and_no_roles(client, workers, tmp_path):
    """On one host its rows are mapped, and stay so."""
    first, second, third = workers(client)
    parts = [client.submit(part_of, start, workers=[third], pure=False) for start in range(0, ROWS, 50)]
    wait(parts, timeout=30)
    run = dt.train(
        begun_then_waiting(tmp_path),
        roles={"worker": 2},
        data=list(map(delayed, parts)),
        on=[first, second],
        wait=False,
        client=client,
    )
    for rank in (0, 1):
        wait_for_file(tmp_path / f"begun-{rank}")
    kill(client, third)
    (tmp_path / "go on").touch()
    del parts
    checked(run.result(60))


def test_a_role_that_is_replaced_reads_the_same_shares(client):
    def worker(session, times):
        seen = []
        for number, y in enumerate(session.batches(batch_size=40, seed=2)):
            seen.append(y.tolist())
            if session.rank == 1 and number == 10 and session.attempt < times:
                die()
        return seen

    data = da.arange(ROWS, chunks=70)
    whole, broken = (
        dt.train(lambda session, times=times: worker(session, times), roles={"worker": 2}, data=data, client=client)
        for times in (0, 2)
    )
    assert broken.results == whole.results
    assert len(broken.attempts) == 3
    assert (broken.ledger.trained, broken.ledger.repeated, broken.ledger.dropped) == (ROWS, 2 * 10 * 20, 0)
    assert whole.ledger.repeated == 0


def test_scattered_data_that_is_gone(client, workers, tmp_path):
    """A role begins again on another Dask worker, where nothing is mapped; the partition beside it was scattered."""

    def worker(session):
        for _ in session.batches(batch_size=10):
            (tmp_path / "begun").touch()
            session.wait_until_stopped()

    addresses = workers(client)
    scattered = [client.scatter(np.full(40, n), workers=[address]) for n, address in enumerate(addresses)]
    data = da.concatenate([da.from_delayed(delayed(part), (40,), dtype="i8") for part in scattered])
    run = dt.train(worker, roles={"worker": 1}, data=data, client=client, wait=False)
    wait_for_file(tmp_path / "begun")
    (role,) = run.status()["roles"]
    kill(client, role["address"])
    with pytest.raises(
        dt.DataError, match=r"Partition \d of 3 was released, or can't be computed again.* Keep what it is"
    ):
        run.result(60)
    del run

    # And from the beginning.
    with pytest.raises(
        dt.DataError, match=r"data\['worker'\] is lost.*scattered to a Dask worker that has left.*scatter it again"
    ):
        dt.train(worker, roles={"worker": 1}, data=data, client=client)
    del scattered, data


def test_nobody_writes_into_the_rows_of_others(client, tmp_path):
    """Rows in order, here at aligned addresses, are read-only views of shared memory; shuffled ones are copies."""

    def worker(session):
        sums, written, refused = [], 0, 0
        for shuffle in (False, True):
            for number, y in enumerate(session.batches(epochs=2, batch_size=32, shuffle=shuffle)):
                sums.append(int(y.sum()))
                try:
                    y[:] = -1
                    written += 1
                except ValueError:
                    refused += not y.flags.writeable
                if number == 0:  # in step: the others read what one has written to, if that could be
                    (tmp_path / f"{shuffle}-{session.rank}").touch()
                    wait_for_file(tmp_path / f"{shuffle}-{1 - session.rank}")
        return sum(sums), written, refused

    result = dt.train(worker, roles={"worker": 2}, data=da.arange(1024, chunks=128), client=client)
    (first, *first_tried), (second, *second_tried) = result.results["worker"]
    assert first + second == 4 * sum(range(1024))
    assert first_tried == second_tried == [64, 64]


@pytest.mark.parametrize("scattered", [False, True])
def test_rows_of_another_host(hosts, tmp_path, monkeypatch, scattered):
    """The Dask worker that is killed has half of the rows, and no role: Dask computes them anew, if it can."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING", "False")  # which copies what was scattered
    with hosts(2, workers_per_host=2) as cluster:
        client = cluster.client
        (first, _), (second, doomed) = cluster.workers_on(0), cluster.workers_on(1)
        parts = []
        for number, start in enumerate(range(0, ROWS, 50)):
            on = [doomed if number % 2 else first]
            if scattered:
                parts.append(client.scatter(part_of(start), workers=on, hash=False))
            else:
                parts.append(client.submit(part_of, start, workers=on, allow_other_workers=True, pure=False))
        wait(parts, timeout=60)
        run = dt.train(
            begun_then_waiting(tmp_path),
            roles={"worker": 2},
            data=list(map(delayed, parts)),
            on=[first, second],
            wait=False,
            client=client,
        )
        for rank in (0, 1):
            wait_for_file(tmp_path / f"begun-{rank}")
        assert any(str(key).startswith("part-") for key in client.sync(client.scheduler.has_what)[doomed])
        kill(client, doomed)
        (tmp_path / "go on").touch()
        if scattered:
            with pytest.raises(dt.DataError, match=r"Partition \d+ of 21 was released, or can't be computed again"):
                run.result(60)
        else:
            result = checked(run.result(60))
            assert sorted(result.attempts[0].places.values()) == sorted([first, second])


def holding(num_bytes, folder):
    """A function of more than so many bytes that waits for a file when it is called first."""
    weights = np.ones(num_bytes)

    def doubled(block):
        (folder / f"begun-{num_bytes}").touch()
        wait_for_file(folder / "go on")
        return 2 * weights[0] * block[:, 0]

    return doubled


def test_models_whose_dask_workers_all_die(client, workers, tmp_path, in_threads):
    rows = np.arange(120.0).reshape(60, 2)
    x = da.from_array(rows, chunks=(10, 2))
    small, large = 100, KEPT_BYTES + 1

    def kill_all():
        for size in (small, large):
            wait_for_file(tmp_path / f"begun-{size}")
        for address in workers(client):
            kill(client, address)
        (tmp_path / "go on").touch()

    def write():
        place, model = tmp_path / "out", holding(large, tmp_path)
        return dt.predict_to(place, model, x, meta=np.empty(0), client=client, progress=False)

    predicted = client.compute(dt.predict(holding(small, tmp_path), x.rechunk(60), meta=np.empty(0)))
    written, _ = in_threads(write, kill_all)
    assert (written.num_rows, written.num_parts) == (60, 6)
    parts = [np.load(tmp_path / "out" / f"part-{number:05}.npy") for number in range(6)]
    np.testing.assert_array_equal(np.concatenate(parts), 2 * rows[:, 0])
    np.testing.assert_array_equal(predicted.result(60), 2 * rows[:, 0])


def test_a_large_model_that_is_lost_before_it_predicts_is_told_in_words_and_sent_anew(client, workers):
    rows, weights = np.arange(120.0).reshape(60, 2), np.ones(KEPT_BYTES)

    def doubled(block):
        return 2 * weights[0] * block[:, 0]

    lost = dt.predict(doubled, da.from_array(rows, chunks=(10, 2)), meta=np.empty(0))
    for address in workers(client):
        kill(client, address)
    workers(client)
    for _ in range(2):
        with pytest.raises(dt.PredictionError, match=r"Model 'doubled' is lost: .* have left\. .* Call predict again"):
            lost.compute()
    again = dt.predict(doubled, da.from_array(rows, chunks=(10, 2)), meta=np.empty(0))
    np.testing.assert_array_equal(again.compute(), 2 * rows[:, 0])
    del lost, again
    gc.collect()  # an error and the frames that it came through refer to each other, and to the futures
