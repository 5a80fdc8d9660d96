"""Data larger than memory: computed a group of partitions at a time, ahead of the roles, freed behind."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import contextmanager

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import delayed
from dask_workers import own_dask_worker

import dask_train as dt
from dask_train.data.pool import process_pool

ROWS = 1003
MB = 1 << 20


def used_bytes():
    """What the pool of a Dask worker has given out."""
    return process_pool().used_bytes


def keep_little():
    """Shared memory that is free goes back at once; the fixtures have told so those that were there then."""
    process_pool().keep_warm_s = 0.05
    process_pool().trim()


@pytest.fixture(autouse=True)
def nothing_left(client, wait_for):
    """No shared memory is left, and no task: besides what ``client`` looks at."""
    yield
    wait_for(lambda: not any(client.run(used_bytes).values()), "no shared memory is given out")
    wait_for(lambda: not any(client.processing().values()), "nothing is being computed")


def rows(num=ROWS, chunk=100):
    """Each row is its number, several times."""
    y = da.arange(num, chunks=chunk)
    return y.map_blocks(thrice, dtype="f4", new_axis=1, chunks=(y.chunks[0], 3)), y


def thrice(block):
    return np.stack([block] * 3, axis=1).astype("f4")


def rows_seen(session, **how):
    seen = []
    for x, y in session.batches(**how):
        assert (x == y[:, None]).all()
        seen.append(y.tolist())
    return seen


def global_batches(result):
    """The rows of each global batch, sorted, over all ranks."""
    return [sorted(sum(shares, [])) for shares in zip(*result.results["worker"], strict=True)]


# Every row, once


@pytest.mark.parametrize("shuffle", [True, False, "partition"])
def test_every_row_once_an_epoch_in_the_same_global_batches(client, shuffle):
    """Groups have 300 rows, and batches 64, so that some go across a border."""

    def worker(session):
        return rows_seen(session, epochs=2, batch_size=64, shuffle=shuffle, seed=1)

    found = {}
    for num_workers in (1, 3):
        result = dt.train(worker, roles={"worker": num_workers}, data=rows(), streaming=3)
        found[num_workers] = batches = global_batches(result)
        assert [len(batch) for batch in batches] == ([64] * 15 + [43]) * 2
        for first in (0, 16):
            assert sorted(sum(batches[first : first + 16], [])) == list(range(ROWS))
        ledger = result.ledger
        assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (2 * ROWS, 2 * ROWS, 0, 0)
    assert found[1] == found[3]
    if shuffle is False:
        assert sum(found[1], []) == list(range(ROWS)) * 2
    else:
        assert found[1][:16] != found[1][16:]


def test_batches_that_span_many_groups(client):
    def worker(session):
        return rows_seen(session, epochs=2, batch_size=400)

    batches = global_batches(dt.train(worker, roles={"worker": 2}, data=rows(), streaming=1))
    assert [len(batch) for batch in batches] == [400, 400, 203] * 2
    for first in (0, 3):
        assert sorted(sum(batches[first : first + 3], [])) == list(range(ROWS))


def test_ranks_in_step_reach_the_end_of_an_epoch(client):
    """Rank 0 has no row of the last group, and waits for rank 1, which needs it."""

    def worker(session):
        seen = []
        for batch in session.batches(epochs=2, batch_size=8, shuffle=False):
            session.all_reduce(len(batch))
            seen.append(batch.tolist())
        return seen

    with dask.config.set({"train.progress.timeout": "20s"}):
        result = dt.train(worker, roles={"worker": 2}, data=da.arange(30, chunks=7), streaming=2)
    assert sum(global_batches(result), []) == list(range(30)) * 2


def test_more_ranks_than_rows_in_the_last_batch_and_partitions_without_rows(client):
    """Some groups have no rows, and the last batch has one for three ranks."""
    y = da.arange(200, chunks=10)
    y = y[(y < 31) | (y >= 100) & (y < 130)]  # counted first: nobody knows how many that are

    def worker(session):
        return [batch.tolist() for batch in session.batches(epochs=2, batch_size=12)]

    batches = global_batches(dt.train(worker, roles={"worker": 3}, data=y, streaming=2))
    for first in (0, 6):
        assert sorted(sum(batches[first : first + 6], [])) == [*range(31), *range(100, 130)]


def test_a_position_goes_on_in_mid_epoch(client):
    def worker(session, start=(0, 0), stop=None):
        seen = []
        for _, y in session.batches(epochs=2, batch_size=50, seed=4, start=start):
            seen.append(y.tolist())
            if session.position == stop:
                break
        return seen, session.position

    def run(**part):
        result = dt.train(lambda session: worker(session, **part), roles={"worker": 2}, data=rows(), streaming=3)
        return list(zip(*result.results["worker"], strict=True))

    begun, positions = run(stop=(0, 9))
    assert positions == ((0, 9), (0, 9))
    gone_on, positions = run(start=(0, 9))
    assert positions == ((2, 0), (2, 0))
    whole, _ = run()
    assert [first + then for first, then in zip(begun, gone_on, strict=True)] == list(whole)


def test_frames_and_delayed_partitions_are_counted_first(client):
    frame = pd.DataFrame({"a": np.arange(300.0), "b": np.arange(300) * 2.0, "y": np.arange(300)})
    frames = dd.from_pandas(frame, npartitions=12)
    frames = frames[frames["y"] % 50 < 30]
    wanted = [n for n in range(300) if n % 50 < 30]

    def worker(session):
        seen = []
        for x, y in session.batches(epochs=2, batch_size=32):
            assert (x == np.stack([y, y * 2], axis=1)).all()
            seen.append(y.tolist())
        return seen

    result = dt.train(worker, roles={"worker": 2}, data=frames, features=["a", "b"], label="y", streaming=3)
    batches = global_batches(result)
    assert [sorted(sum(batches[first : first + 6], [])) for first in (0, 6)] == [wanted, wanted]

    def part(start):
        y = np.arange(start, start + 30)
        return {"x": np.stack([y, y * 2], axis=1), "y": y}

    def of_dict(session):
        return [batch["y"].tolist() for batch in session.batches(batch_size=32)]

    parts = [delayed(part)(start) for start in range(0, 300, 30)]
    batches = global_batches(dt.train(of_dict, roles={"worker": 2}, data=parts, streaming=3))
    assert sorted(sum(batches, [])) == list(range(300))


def test_two_roles_stream_side_by_side(client):
    def worker(session):
        return rows_seen(session, epochs=2, batch_size=100)

    def scorer(session):
        return [sum(map(len, (y for _, y in session.batches(batch_size=10, shuffle=False)))) for _ in range(2)]

    data = {"worker": rows(), "scorer": rows(205, 40)}
    result = dt.train({"worker": worker, "scorer": scorer}, roles={"worker": 2, "scorer": 1}, data=data, streaming=3)
    batches = global_batches(result)
    assert sorted(sum(batches, [])) == sorted([*range(ROWS)] * 2)
    assert result.results["scorer"] == [[205, 205]]


@pytest.mark.parametrize("streaming", [0, -1, "8", 1.5])
def test_what_streaming_may_be(client, streaming):
    with pytest.raises(ValueError, match=r"streaming is .*; pass True, False, or how many partitions make a group"):
        dt.train(lambda session: None, roles={"worker": 1}, data=rows(), streaming=streaming)


# What is in memory, and who waits


def segments(client):
    """The partitions that Dask holds, or computes, just now."""
    found = client.sync(client.scheduler.who_has)
    return [key for key in found if str(key).startswith("part-")]


@contextmanager
def watched(look):
    """What ``look`` says, again and again, until the ``with`` ends; each answer once, in a list."""
    seen, over = [], threading.Event()

    def watch():
        while not over.is_set():
            seen.append(look())
            over.wait(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_a_fast_rank_waits_for_a_slow_one_over_the_epochs(client):
    """5 groups of 2 partitions, each more than the reader takes at once; never more than 3 of them at a time."""

    def worker(session):
        for number, _ in enumerate(session.batches(epochs=2, batch_size=40, seed=7)):
            if session.rank == 0:
                time.sleep(0.01)
            session.report(batch=number, at=time.monotonic())
        return number

    data = rows(2000, 200)
    with watched(lambda: len(segments(client))) as seen:
        result = dt.train(worker, roles={"worker": 2}, data=data, streaming=2)
    assert result.results["worker"] == [99, 99]
    assert 2 * 2 <= max(seen) <= 3 * 2
    reached = {0: 0, 1: 0}
    ahead = []
    for score in sorted(result.scores, key=lambda score: score["at"]):  # one rank's may arrive later than the other's
        reached[score["rank"]] = score["batch"]
        ahead.append(reached[1] - reached[0])
    assert max(ahead) <= 2 * 10 + 3 * 8 + 1  # two groups, and what a reader has ready


def test_who_leaves_the_loop_holds_up_nobody(client, tmp_path):
    """Rank 0 leaves while its reader waits for a group that rank 1 keeps it from; then rank 1 leaves, too.

    Each rank's share of a group, which is a batch, is 4 MB, so that readers are no more than some groups ahead.
    """
    flag, end = tmp_path / "flag", tmp_path / "end"

    def worker(session):
        for number, _ in enumerate(session.batches(batch_size=16, shuffle=False)):
            if session.rank == 1:
                wait_for_file(flag)
                break
            if number == 3:
                time.sleep(0.5)
                break
        flag.touch()
        if session.rank == 0:
            wait_for_file(end)
            return []
        seen = [int(row) for batch in session.batches(epochs=2, batch_size=48) for row in batch[:, 0]]
        end.touch()
        return seen

    number = da.arange(192, chunks=16)
    data = number.map_blocks(wide, dtype="f8", new_axis=1, chunks=(number.chunks[0], MB // 16))
    result = dt.train(worker, roles={"worker": 2}, data=data, streaming=1)
    seen = result.results["worker"][1]
    assert len(set(seen[:96])) == len(set(seen[96:])) == 96
    assert result.ledger.lines[0].read == 4 * 8


def wide(block):
    return np.repeat(block[:, None].astype("f8"), MB // 16, axis=1)


def test_a_killed_role_goes_on_and_so_do_others(client, tmp_path):
    log, worker = going_on(tmp_path, lambda: os.kill(os.getpid(), signal.SIGKILL))
    result = dt.train(worker, roles={"worker": 2}, data=rows(), streaming=3)
    assert result.results["worker"] == [0, 1]
    assert sorted(log()) == sorted([*range(ROWS)] * 2)
    ledger = result.ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (2 * ROWS, 2 * ROWS - 25, 0, 25)


def test_a_killed_dask_worker(client, tmp_path, wait_for, workers):
    """It takes segments and a role along; Dask computes the ones anew, and the other begins elsewhere."""
    log, worker = going_on(tmp_path, lambda: os.kill(own_dask_worker(), signal.SIGKILL))
    result = dt.train(worker, roles={"worker": 2}, data=rows(), streaming=3)
    assert result.results["worker"] == [0, 1]
    assert sorted(log()) == sorted([*range(ROWS)] * 2)
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")
    client.run(keep_little)


def going_on(folder, die):
    """What has been read, and a function that goes on where its last process was; that of rank 1 dies once."""

    def worker(session):
        kept, seen = (folder / f"{name}-{session.rank}" for name in ("position", "rows"))
        start = tuple(json.loads(kept.read_text())) if session.attempt else (0, 0)
        for x, y in session.batches(epochs=2, batch_size=50, start=start):
            assert (x == y[:, None]).all()
            with seen.open("a") as file:
                file.write("".join(f"{row}\n" for row in y))
            kept.write_text(json.dumps(session.position))
            if session.rank == 1 and session.position == (0, 9) and session.attempt == 0:
                die()
                time.sleep(60)
        return session.attempt

    return lambda: [int(row) for file in folder.glob("rows-*") for row in file.read_text().split()], worker


def wait_for_file(file, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


def test_a_partition_that_fails_in_the_second_epoch(client, tmp_path):
    def worker(session):
        return len(list(session.batches(epochs=3, batch_size=50)))

    def once(block):
        first = int(block[0])
        if first == 250 and (tmp_path / str(first)).exists():
            raise ZeroDivisionError("only once")
        (tmp_path / str(first)).touch()
        return block

    data = da.arange(400, chunks=50).map_blocks(once, dtype="i8")
    with pytest.raises(
        dt.DataError, match=r"A partition of data\['worker'\] can't be computed: ZeroDivisionError: only once\. "
    ) as raised:
        dt.train(worker, roles={"worker": 2}, data=data, streaming=2)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert len(list(tmp_path.iterdir())) == 8  # the first epoch went through


@pytest.mark.parametrize("stop", ["steps >= 4", None])
def test_what_is_not_needed_any_more_is_not_computed(client, tmp_path, until, stop):
    def worker(session):
        for number, _ in enumerate(session.batches(batch_size=10)):
            session.report(number=number)
            if number == 3:
                session.wait_until_stopped()
                break
        return number

    def slow(block):
        time.sleep(0.05)
        (tmp_path / str(block[0])).touch()
        return block

    data = da.arange(10_000, chunks=100).map_blocks(slow, dtype="i8")
    run = dt.train(worker, roles={"worker": 2}, data=data, streaming=8, stop=stop, wait=False)
    if stop is None:
        until(run, 8)
        run.stop("seen enough")
    assert run.result(60).results == {"worker": [3, 3]}
    assert 8 <= len(list(tmp_path.iterdir())) <= 2 * 8


# Data that take their time


def slowly(block):
    time.sleep(8)  # it is computed all the while
    return block


@pytest.mark.slow
def test_a_group_may_take_longer_than_the_progress_timeout(client):
    def worker(session):
        return [len(x) for x in session.batches(batch_size=100)]

    data = da.arange(400, chunks=100).map_blocks(slowly, dtype="i8")
    with dask.config.set({"train.progress.timeout": "5s"}):
        result = dt.train(worker, roles={"worker": 2}, data=data, streaming=2, client=client, progress=False)
    assert result.ledger.trained == 400
