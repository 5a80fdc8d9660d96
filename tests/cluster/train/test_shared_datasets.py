"""Named data sets in shared memory: who can open them, whose memory it is, and when it is gone."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import mmap
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from dask import delayed
from distributed import Client, wait

import dask_train as dt
from dask_train.data.pool import process_pool
from dask_train.shared_data import opened

ROWS, CHUNK = 1003, 97


def numbers(rows: int = ROWS) -> tuple[da.Array, da.Array]:
    """Rows of 3 numbers, and one of them."""
    y = da.arange(rows, chunks=CHUNK)
    return da.stack([y, y * 2, y * 3], axis=1), y


@pytest.fixture(autouse=True)
def _nothing_stays(client: Client, wait_for: Callable[..., Any]) -> Iterator[None]:
    """No name, and no shared memory, here or on a Dask worker; before the fixture of the client looks."""
    client.run(_keep_little)  # also where a Dask worker has been started again
    _keep_little()
    yield
    for name in client.list_datasets():
        client.unpublish_dataset(name)
    gc.collect()
    wait_for(lambda: all(used == 0 for used, _ in client.run(_pool).values()), "the Dask workers' pools are empty")
    wait_for(lambda: _pool()[0] == 0, "the own pool is empty")


def _keep_little() -> None:
    process_pool().keep_warm_s = 0.05


def _pool(dask_worker: Any = None) -> tuple[int, int]:
    """Bytes that are given out, and those that the system has given."""
    pool = process_pool()
    gc.collect()
    pool.trim()
    return pool.used_bytes, 0 if pool.descriptor < 0 else os.fstat(pool.descriptor).st_blocks * 512


def _inode(dask_worker: Any = None) -> int:
    return process_pool().inode


def mapped_pools() -> set[int]:
    """The files of pools that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {int(line.split()[4]) for line in lines if "memfd:dask-train (" in line}


def segments(client: Client) -> set[Any]:
    """Keys of the segments in the cluster."""
    return {key for keys in client.run(_segment_keys).values() for key in keys}


def _segment_keys(dask_worker: Any) -> list[Any]:
    return [key for key, value in dict(dask_worker.data).items() if type(value).__name__ == "Segment"]


def run_apart(client: Client, program: str) -> str:
    """What a program with a client of its own prints; the process is gone afterwards."""
    prelude = (
        "import dask.array as da, dask_train as dt, numpy as np\n"
        "from distributed import Client\n"
        f"client = Client({client.scheduler.address!r})\n"
        f"y = da.arange({ROWS}, chunks={CHUNK}); X = da.stack([y, y * 2, y * 3], axis=1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + program],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kill_worker(client: Client, address: str, wait_for: Callable[..., Any]) -> None:
    """SIGKILL a Dask worker, and wait until its nanny has brought another one."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: address not in client.nthreads(), "it is gone")
    client.wait_for_workers(2, timeout=30)


def fail(block):
    raise RuntimeError("no such file")


def read_all(session):
    total = 0
    for x, y in session.batches(batch_size=100):
        assert (x[:, 2] == 3 * y).all()
        total += int(y.sum())
    session.report(total=total)
    return total


# Opening


def test_another_process_opens_it_after_the_first_has_gone(client):
    run_apart(client, "dt.publish_dataset(X, y, name='numbers')")
    assert dt.list_datasets() == client.list_datasets() == ("numbers",)
    data = dt.get_dataset("numbers")
    assert (data.name, data.num_rows, data.num_partitions, data.nbytes) == ("numbers", ROWS, 11, ROWS * 4 * 8)
    assert {name: (column.dtype, column.row_shape) for name, column in data.columns.items()} == {
        "x": ("<i8", (3,)),
        "y": ("<i8", ()),
    }
    assert set(data.where) == set(client.nthreads())
    assert sum(data.where.values()) == 11
    assert repr(data) == (
        "<PublishedDataset 'numbers': 1,003 rows of x int64 (3,), y int64; 11 partitions, 31.34 kiB, on 2 Dask workers>"
    )
    x, y = data.to_numpy()
    assert y.tolist() == list(range(ROWS))
    assert (x == np.outer(y, [1, 2, 3])).all()
    assert dt.train(read_all, roles={"worker": 2}, data=data).ledger.read == ROWS


@pytest.mark.parametrize("parts", [1, 2, 3, 40])
def test_shards_have_every_row_once(client, parts):
    dt.publish_dataset(*numbers(), name="numbers")
    found = []
    for number in range(parts):
        data = dt.get_dataset("numbers")
        x, y = data.to_numpy(shard=(number, parts))
        assert len(x) == len(y) in (ROWS // parts, -(-ROWS // parts))
        touched = np.unique(y // CHUNK)
        (rows,) = data._rows.values()
        assert np.flatnonzero(rows.is_here(np.arange(11))).tolist() == touched.tolist()  # and no others
        found += y.tolist()
    assert found == list(range(ROWS))
    with pytest.raises(ValueError, match="there are those from 0 to 1"):
        data.to_numpy(shard=(2, 2))
    with pytest.raises(ValueError, match="There is no column 'z'; there are x, y"):
        data.to_numpy(label="z")
    assert [array.shape for array in data.to_numpy(features="x", label="y")] == [(ROWS, 3), (ROWS,)]


def test_what_lies_on_this_host_is_mapped_and_not_copied(client, wait_for):
    dt.publish_dataset(*numbers(), name="numbers")
    theirs = set(client.run(_inode).values())
    data = dt.get_dataset("numbers")
    assert not mapped_pools() & theirs
    part = data._part("to_numpy", None, None, None)
    assert mapped_pools() == theirs
    assert _pool() == (0, 0)  # nothing of one's own

    # Nobody is given that memory while it is mapped, and what is written there stays here.
    part.columns[1][part.shifts[1][0]] = -1
    del data
    dt.unpublish_dataset("numbers")
    wait_for(lambda: sum(used for used, _ in client.run(_pool).values()) == 0, "no segment is left")
    assert sum(size for _, size in client.run(_pool).values()) > 0
    dt.publish_dataset(*(array * 0 for array in numbers()), name="others")
    x, y = part.all()
    assert y.tolist() == [-1, *range(1, ROWS)]
    assert (x[1:] == np.outer(y[1:], [1, 2, 3])).all()
    del part
    dt.unpublish_dataset("others")
    wait_for(lambda: sum(size for _, size in client.run(_pool).values()) == 0, "the system has its memory back")


def test_what_lies_elsewhere_is_copied_once(client, monkeypatch, wait_for):
    dt.publish_dataset(*numbers(), name="numbers")
    monkeypatch.setattr(opened._AroundOpened, "is_near", lambda self, address: False)
    data = dt.get_dataset("numbers")
    x, y = data.to_numpy()
    assert (x[:, 2] == 3 * y).all()
    assert y.tolist() == list(range(ROWS))
    own = _pool()[1]
    assert own >= data.nbytes
    assert data.to_numpy(features="y", shard=(1, 2)).tolist() == list(range(ROWS // 2, ROWS))
    assert _pool()[1] == own
    assert mapped_pools() == {process_pool().inode}
    del data
    wait_for(lambda: _pool()[1] == 0, "the copy is gone")


def test_a_dask_task_opens_it(client):
    dt.publish_dataset(*numbers(), name="numbers")

    def total(shard):
        return int(dt.get_dataset("numbers").to_numpy(features="y", shard=shard).sum())

    assert sum(client.gather(client.map(total, [(0, 2), (1, 2)], pure=False))) == sum(range(ROWS))


TF_PROGRAM = """
import tensorflow as tf
data = dt.get_dataset("numbers")
rows = data.to_tf(features="x", label="y", shard=(1, 2))
assert rows.cardinality() == 502
found = [(x.tolist(), int(y)) for x, y in rows.as_numpy_iterator()]
assert found == [([y, 2 * y, 3 * y], y) for y in range(501, 1003)]
batches = data.to_tf(label="y", batch_size=64, shuffle=True, seed=1)
assert sorted(np.concatenate([y for _, y in batches.as_numpy_iterator()])) == list(range(1003))
print(len(batches), end="")
"""
TORCH_PROGRAM = """
import torch
data = dt.get_dataset("numbers")
rows = data.to_torch(features="x", label="y", shard=(1, 2))
assert len(rows) == 502
x, y = rows[torch.arange(502)]
assert y.tolist() == list(range(501, 1003)) and (x[:, 2] == 3 * y).all()
batches = list(torch.utils.data.DataLoader(data.to_torch(), batch_size=64, shuffle=True))
assert sorted(torch.cat([y for _, y in batches]).tolist()) == list(range(1003))
print(len(batches), end="")
"""


@pytest.mark.parametrize(("framework", "program"), [("tensorflow", TF_PROGRAM), ("torch", TORCH_PROGRAM)])
def test_frameworks_open_it(client, framework, program):
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    dt.publish_dataset(*numbers(), name="numbers")
    assert run_apart(client, program) == "16"


def test_dask_arrays_over_it(client):
    dt.publish_dataset(*numbers(), name="numbers")
    x, y = dt.get_dataset("numbers").to_dask()
    assert (x.shape, x.dtype, x.chunks) == ((ROWS, 3), np.dtype("i8"), ((*[CHUNK] * 10, 33), (3,)))
    assert (y.shape, y.chunks) == ((ROWS,), ((*[CHUNK] * 10, 33),))
    expected_x, expected_y = numbers()
    assert (x == expected_x).all().compute()
    assert y.compute().tolist() == expected_y.compute().tolist()
    assert int((x[:500].sum(axis=1) + y[500:1000]).sum().compute()) == 6 * sum(range(500)) + sum(range(500, 1000))

    def is_view(block):
        base = block
        while isinstance(base, np.ndarray):
            base = base.base
        base = base.obj if isinstance(base, memoryview) else base
        return np.array([not block.flags.writeable and isinstance(base, mmap.mmap)])

    before = segments(client)
    assert y.map_blocks(is_view, dtype=bool, chunks=(1,)).all().compute()
    assert segments(client) == before  # where a task ran elsewhere, the copy was its own
    dt.unpublish_dataset("numbers")
    assert int(y.sum().compute()) == sum(range(ROWS))  # the arrays keep it


# Losses


def test_a_lost_dask_worker_s_partitions_are_computed_again(client, wait_for):
    run_apart(client, "dt.publish_dataset(X, y, name='numbers')")
    data = dt.get_dataset("numbers")
    victim = next(iter(data.where))
    kill_worker(client, victim, wait_for)
    x, y = data.to_numpy()
    assert y.tolist() == list(range(ROWS))
    assert (x[:, 2] == 3 * y).all()
    again = dt.get_dataset("numbers")
    assert victim not in again.where
    assert sum(dt.train(read_all, roles={"worker": 2}, data=again).results["worker"]) == sum(range(ROWS))


@pytest.mark.filterwarnings("ignore:Client .* desires key .* but key is unknown:UserWarning")  # in the scheduler
def test_what_can_not_be_computed_again_is_an_error_that_says_what_to_do(client, wait_for):
    victim = next(iter(client.nthreads()))
    scattered = client.scatter(np.arange(10), workers=[victim], hash=False)
    x = da.from_delayed(delayed(scattered), (10,), dtype="i8")
    dt.publish_dataset(x, name="numbers")
    data = dt.get_dataset("numbers")
    del scattered, x
    assert list(data.where) == [victim]
    kill_worker(client, victim, wait_for)
    what = r"Partition 0 of 1 of {} is lost. Its Dask worker has gone.* scattered.*override=True"
    with pytest.raises(dt.DataError, match=what.format("data set 'numbers'")):
        dt.get_dataset("numbers")
    with pytest.raises(dt.DataError, match=r"Data set 'numbers' can't be opened: Partition 0 of 1"):
        data.to_numpy()
    with pytest.raises(dt.DataError, match=what.format(r"data\['worker'\]")):
        dt.train(read_all, roles={"worker": 1}, data=data)
    dt.publish_dataset(da.arange(10, chunks=5), name="numbers", override=True)
    assert dt.get_dataset("numbers").to_numpy().tolist() == list(range(10))


# In runs


def shared(how: str) -> Any:
    """Data that lies in shared memory, as ``train`` takes it."""
    x, y = numbers()
    if how.startswith("persisted"):
        return dt.persist({"x": x, "y": y}) if "dict" in how else dt.persist(x, y)
    dt.publish_dataset(x, y, name="numbers")
    return dt.get_dataset("numbers") if how == "published" else None


@pytest.mark.parametrize("how", ["published", "persisted", "persisted dict", "asked for by name"])
def test_a_run_uses_the_same_segments(client, how, wait_for):
    data = shared(how)

    def worker(session):
        found = []
        batches = session.dataset("numbers").batches if how == "asked for by name" else session.batches
        for batch in batches(batch_size=100, seed=1):
            x, y = batch.values() if isinstance(batch, dict) else batch
            assert (x[:, 2] == 3 * y).all()
            found += y.tolist()
        lines = Path("/proc/self/maps").read_text().splitlines()
        session.report(pools=" ".join({line.split()[4] for line in lines if "memfd:dask-train (" in line}))
        while not session.should_stop():
            time.sleep(0.01)
        return found

    before = segments(client)
    assert len(before) == 11
    run = dt.train(worker, roles={"worker": 2}, data=data, wait=False)
    other = dt.train(worker, roles={"worker": 1}, data=data, wait=False)
    scores = [next(iter(run.scores())), next(iter(other.scores()))]
    wait_for(lambda: run.status()["num_scores"] == 2, "both have read all")
    assert segments(client) == before
    theirs = {str(inode) for inode in client.run(_inode).values()}
    assert all(0 < len(set(score["pools"].split()) & theirs) == len(score["pools"].split()) for score in scores)
    for each in (run, other):
        each.stop()
        assert sorted(sum(each.result().results["worker"], [])) == list(range(ROWS))
    assert segments(client) == before  # a run's end frees only what is its own


def test_what_is_in_memory_is_not_streamed(client):
    dt.publish_dataset(*numbers(), name="numbers")
    before = segments(client)

    def worker(session):
        return [len(y) for _, y in session.batches(batch_size=ROWS)], session.size

    result = dt.train(worker, roles={"worker": 1}, data=dt.get_dataset("numbers"), streaming=1)
    assert result.results["worker"] == [([ROWS], 1)]  # one draw over all partitions
    assert segments(client) == before


def test_what_is_persisted_in_part_is_copied(client):
    x, y = numbers()
    both = dt.persist(x, y)
    before = segments(client)

    def worker(session):
        total = sum(int((a[:, 0] - b).sum()) for a, b in session.batches())
        return total, session.report(done=1)

    for data in ((both[0], y), (both[0] + 1, both[1] + 1), (both[0], both[0][:, 0])):
        assert dt.train(worker, roles={"worker": 1}, data=data).results["worker"][0][0] == 0
    assert segments(client) == before
    result = dt.train(lambda s: sum(int(b.sum()) for b in s.batches()), roles={"worker": 1}, data=both[1])
    assert result.results["worker"] == [sum(range(ROWS))]


# Persisting


def test_persisted_arrays(client, wait_for):
    x, y = numbers()
    found = dt.persist(x, y)
    assert isinstance(found, tuple)
    keys = segments(client)
    assert (found[0].chunks, found[0].dtype) == (((*[CHUNK] * 10, 33), (3,)), x.dtype)
    assert (found[0] == x).all().compute()
    named = dt.persist({"a": y})
    assert list(named) == ["a"]
    assert named["a"].compute().tolist() == list(range(ROWS))
    bare = dt.persist(np.ones((5, 2)))
    assert (bare.shape, bare.sum().compute()) == ((5, 2), 10.0)
    unknown = dt.persist(y[y % 2 == 0])
    assert unknown.shape == (502,)
    del named, bare, unknown

    # It is the same when it is persisted again, or published, with our verb or Dask's.
    again = dt.persist(*found)
    assert [array.name for array in again] == [array.name for array in found]
    dt.publish_dataset(*found, name="numbers")
    assert set(dt.get_dataset("numbers").segments.keys) == keys
    client.publish_dataset(found, name="dask's")
    result = dt.train(lambda s: sum(int(y.sum()) for _, y in s.dataset("dask's").batches()), roles={"worker": 1})
    assert result.results["worker"] == [sum(range(ROWS))]
    wait_for(lambda: segments(client) == keys, "nothing else is kept")
    del found, again
    assert dt.get_dataset("dask's").to_numpy(features="y").tolist() == list(range(ROWS))
    for name in ("numbers", "dask's"):
        dt.unpublish_dataset(name)
    wait_for(lambda: not segments(client), "nothing is kept")


def test_what_can_not_be_persisted(client):
    dataframe = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(5)})
    for wrong in (frame, dataframe.from_pandas(frame, npartitions=2), {"a": frame["a"]}, [1, 2], "x"):
        with pytest.raises(TypeError, match=r"persist was given a .*publish_dataset"):
            dt.persist(wrong)
    with pytest.raises(ValueError, match="no data"):
        dt.persist()

    with pytest.raises(dt.DataError, match=r"A partition of what is to be persisted can't be computed.*no such file"):
        dt.persist(da.ones(10, chunks=5).map_blocks(fail, dtype="f8"))


# Names


def test_names(client):
    x, y = numbers()
    dt.publish_dataset(x, y, name="numbers")
    client.publish_dataset(x, name="lazy")
    assert dt.list_datasets() == ("lazy", "numbers")
    with pytest.raises(dt.DataError, match=r"A data set 'numbers' is published already.*override=True"):
        dt.publish_dataset(y.map_blocks(fail, dtype="i8"), name="numbers")  # nothing is computed for that
    with pytest.raises(dt.DataError, match=r"No data set 'letters' is published; there are lazy, numbers"):
        dt.get_dataset("letters")
    with pytest.raises(dt.DataError, match=r"No data set 'letters' is published; there are lazy, numbers"):
        dt.unpublish_dataset("letters")
    with pytest.raises(dt.DataError, match=r"Data set 'lazy' is a Array that was published with Dask's own verb"):
        dt.get_dataset("lazy")
    for wrong in ("", 3, None):
        with pytest.raises(ValueError, match="a data set's name is a string"):
            dt.publish_dataset(y, name=wrong)
    with pytest.raises(ValueError, match="no data"):
        dt.publish_dataset(name="nothing")
    with pytest.raises(TypeError, match="data set 'text' has a str"):
        dt.publish_dataset("text", name="text")
    data = dt.get_dataset("numbers")
    with pytest.raises(ValueError, match=r"data\['worker'\] lies in shared memory with its columns as they are"):
        dt.train(read_all, data=data, features="x")
    with pytest.raises(TypeError, match=r"can't travel. Send its name.*dt.get_dataset\('numbers'\)"):
        pickle.dumps(data)
    dt.publish_dataset(y, name="numbers", override=True)
    assert dt.get_dataset("numbers").to_numpy().tolist() == list(range(ROWS))
    assert data.to_numpy()[0].shape == (ROWS, 3)  # who has the old one keeps it
    client.unpublish_dataset("numbers")
    assert dt.list_datasets() == ("lazy",)
    with pytest.raises(ValueError, match="no Dask client here"):
        run_in_a_process_without_client()


def run_in_a_process_without_client() -> None:
    program = "import dask_train as dt\ntry: dt.list_datasets()\nexcept ValueError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    raise ValueError(done.stdout)


def test_a_partition_that_fails_leaves_nothing(client, wait_for):
    broken = da.concatenate([da.arange(50, chunks=10), da.ones(10, chunks=5).map_blocks(fail, dtype="i8")])
    with pytest.raises(dt.DataError, match=r"A partition of data set 'broken' can't be .*no such file") as error:
        dt.publish_dataset(broken, name="broken")
    assert dt.list_datasets() == ()
    wait_for(lambda: not segments(client), "no segment is left")
    assert isinstance(error.value.__cause__, RuntimeError)  # who looks at its traceback keeps nothing


def test_frames_dicts_and_delayed_partitions(client):
    dataframe = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(40.0), "b": np.arange(40), "c": np.arange(40) % 2})
    dt.publish_dataset(dataframe.from_pandas(frame, npartitions=3), name="frame")
    data = dt.get_dataset("frame")
    assert {name: array.tolist() for name, array in data.to_numpy().items()} == frame.to_dict("list")
    matrix, label = data.to_numpy(features=["b", "a"], label="c")
    assert matrix.tolist() == frame[["b", "a"]].to_numpy().tolist()
    assert label.tolist() == frame["c"].tolist()
    assert list(data.to_dask()) == ["a", "b", "c"]
    dt.publish_dataset(frame, name="pairs", features=["a", "b"], label="c")
    x, y = dt.get_dataset("pairs").to_numpy(features="x", label="y")
    assert (x.shape, y.tolist()) == ((40, 2), frame["c"].tolist())
    dt.publish_dataset({"u": np.arange(6), "v": da.ones((6, 2), chunks=4)}, name="dict")
    assert [array.shape for array in dt.get_dataset("dict").to_numpy().values()] == [(6,), (6, 2)]
    parts = [delayed(lambda i: (np.full((3, 2), i), np.full(3, i)))(i) for i in range(4)]
    dt.publish_dataset(parts, name="delayed")
    x, y = dt.get_dataset("delayed").to_numpy()
    assert (x.shape, y.tolist()) == ((12, 2), [i for i in range(4) for _ in range(3)])


# Without waiting


def test_an_asynchronous_client(client):
    x, y = numbers()

    async def use(address):
        async with Client(address, asynchronous=True) as own:
            await dt.publish_dataset(x, y, name="numbers", client=own)
            names = await dt.list_datasets(client=own)
            data = await dt.get_dataset("numbers", client=own)
            with pytest.raises(ValueError, match=r"to_numpy waits for Dask workers.*is asynchronous"):
                data.to_numpy()
            total = await own.compute(data.to_dask()[1].sum())
            persisted = await dt.persist(y, client=own)
            again = await own.compute(persisted.sum())
            result = await dt.train(read_all, roles={"worker": 1}, data=data, client=own)
            await dt.unpublish_dataset("numbers", client=own)
            return names, int(total), int(again), result.results["worker"], await dt.list_datasets(client=own)

    total = sum(range(ROWS))
    assert asyncio.run(use(client.scheduler.address)) == (("numbers",), total, total, [total], ())


def test_an_interrupt_leaves_nothing(client, wait_for):
    """What Ctrl-C does to a client that waits: the coroutine is cancelled."""

    def slow(block):
        time.sleep(0.5)
        return block

    async def cancelled(address):
        async with Client(address, asynchronous=True) as own:
            task = asyncio.ensure_future(
                dt.publish_dataset(da.ones(40, chunks=2).map_blocks(slow), name="n", client=own)
            )
            async with asyncio.timeout(60):
                while not any((await own.processing()).values()):
                    await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return own.futures

    assert asyncio.run(cancelled(client.scheduler.address)) == {}
    assert dt.list_datasets() == ()
    wait_for(lambda: not client.sync(client.scheduler.who_has), "nothing is computed any more")


def test_memory_goes_back_to_the_system(client, wait_for):
    rows = 1 << 17
    x = da.ones((rows, 32), chunks=(rows // 16, 32), dtype="f8")
    size = rows * 32 * 8
    dt.publish_dataset(x, name="large")
    wait([])
    given = client.run(_pool)
    assert sum(used for used, _ in given.values()) >= size
    assert sum(blocks for _, blocks in given.values()) >= size
    data = dt.get_dataset("large")
    assert data.to_numpy(shard=(0, 64)).sum() == size / 8 / 64
    del data
    dt.unpublish_dataset("large")
    wait_for(lambda: list(client.run(_pool).values()) == [(0, 0)] * 2, "the system has its memory back")
