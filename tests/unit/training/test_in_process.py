"""``roles={"worker": 0}``: the function is called in this process, with a session that works, and nothing is left."""

from __future__ import annotations

import os
import sys
import threading

import dask.array as da
import numpy as np
import pytest
from distributed import Client

import dask_train as dt
from dask_train.errors import ClosedError

X, Y = np.arange(30.0).reshape(15, 2), np.arange(15)


@pytest.fixture
def cold(pool):
    """The process's own pool, whose memory goes back at once."""
    pool.keep_warm_s = 0.05


def here(function, **settings):
    return dt.train(function, roles={"worker": 0}, **settings)


class BrokenError(Exception):
    """The user's own."""


def test_a_function_runs_in_this_thread_and_returns_the_very_object(cold, no_leaks):
    lock = threading.Lock()  # can't be pickled, and need not be

    def worker(session):
        lines = sys._getframe().f_back  # a debugger goes up from here
        rows = []
        for x, y in session.batches(epochs=2, batch_size=4, shuffle=False):
            rows += y.tolist()
            session.report(loss=float(x.sum()))
        (partition,) = session.partitions()
        total = session.all_reduce(np.array([3.0]), op="mean")
        session.barrier()
        _, other = next(session.dataset("other").batches(batch_size=3, shuffle=False))
        assert partition[0].shape == (15, 2)
        assert total == [3.0]
        assert (session.world_rank, session.world_size, session.size, session.is_chief) == (0, 1, 1, True)
        assert session.scratch.is_dir()
        return lock, rows, other.tolist(), threading.current_thread(), lines is not None, session.scratch

    logged = []
    with no_leaks():
        result = here(worker, data=(X, Y), datasets={"other": (X, Y + 100)}, log=logged.append)
        same, rows, other, thread, _, scratch = result.results["worker"][0]
    assert [score["loss"] for score in logged] == [score["loss"] for score in result.scores]
    assert same is lock
    assert thread is threading.current_thread()
    assert rows == [*range(15)] * 2
    assert other == [100, 101, 102]
    assert [score["loss"] for score in result.scores[:4]] == [28.0, 92.0, 156.0, 159.0]
    assert (result.ledger.read, result.ledger.trained) == (45 + 3, 45 + 3)
    assert result.stop_reason == ""
    assert not scratch.exists()


def test_the_order_of_rows_is_that_of_a_worker_elsewhere(pool):
    data = da.from_array(Y, chunks=(4, 4, 7))
    seen = here(lambda session: [y.tolist() for y in session.batches(epochs=2, batch_size=6, seed=5)], data=data)
    assert sorted(sum(seen.results["worker"][0], [])) == sorted([*range(15)] * 2)
    again = here(lambda session: [y.tolist() for y in session.batches(epochs=2, batch_size=6, seed=5)], data=data)
    assert again.results == seen.results


def test_what_is_raised_is_raised_as_it_is(cold, no_leaks):
    def worker(session):
        for _ in session.batches(batch_size=4):
            raise BrokenError("in hand")

    with no_leaks():
        with pytest.raises(BrokenError, match="in hand") as error:
            here(worker, data=X)
        assert error.traceback[-1].name == "worker"
        del error


def test_ctrl_c_leaves_what_there_is(pool):
    def worker(session):
        for number, _ in enumerate(session.batches(batch_size=4)):
            session.report(number=number)
            if number == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as error:
        here(worker, data=X)
    left = error.value.result
    del error
    assert (left.stop_reason, len(left.scores)) == ("it was interrupted", 3)
    assert (left.ledger.read, left.ledger.trained) == (12, 8)


def test_ctrl_c_while_a_log_is_waited_for_leaves_the_result(pool, monkeypatch):
    def interrupted(history, result):
        raise KeyboardInterrupt

    monkeypatch.setattr("dask_train.driver.history.History.deliver", interrupted)
    with pytest.raises(KeyboardInterrupt) as error:
        here(lambda session: 3, data=X)
    left = error.value.result
    del error
    assert (left.stop_reason, left.results) == ("", {"worker": [3]})


def test_rules_to_stop_by_are_asked_at_each_batch(pool):
    def worker(session):
        count = 0
        for count, _ in enumerate(session.batches(epochs=100, batch_size=5), 1):
            session.report(loss=1 / count)
            if session.should_stop():
                break
        return count

    result = here(worker, data=X, stop="loss < 0.15")
    assert result.results["worker"] == [7]
    assert "loss" in result.stop_reason
    assert here(worker, data=X, stop="steps >= 4").results["worker"] == [4]


def test_checkpoints_are_kept_and_gone_on_with(pool, tmp_path):
    def worker(session):
        folder = session.load_checkpoint()
        done = 0 if folder is None else int((folder / "done").read_text())
        for number in (done + 1, done + 2):
            session.save_checkpoint(lambda folder, number=number: (folder / "done").write_text(str(number)))
        return number

    for expected, resume in ((2, False), (4, True)):
        result = here(worker, checkpoint=tmp_path / "kept", resume=resume)
        assert result.results["worker"] == [expected]
    assert not list((tmp_path / "kept").glob("run-*.json")), "others may have the place at once"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"roles": {"worker": 0, "ps": 1}}, "role 'ps' would need a process"),
        ({"roles": {"worker": 0}, "streaming": True, "data": X}, "streaming=True"),
        ({"roles": {"worker": 0}, "wait": False}, "wait=False"),
        ({"roles": {"worker": 0}, "framework": "jax-distributed"}, "Pass framework='jax'"),
    ],
)
def test_what_can_not_be_here_is_refused_in_words(settings, words):
    with pytest.raises(ValueError, match=words):
        dt.train(lambda session: pytest.fail("not started"), **settings)


def test_nobody_else_is_waited_for():
    for wait in (lambda session: session.receive(), lambda session: session.wait_until_stopped()):
        with pytest.raises(ClosedError, match="nobody else"):
            here(wait)


def test_environment_and_process_group_of_torch_are_as_they_were(pool):
    distributed = pytest.importorskip("torch.distributed")
    before, rank = dict(os.environ), os.environ.get("RANK")

    def worker(session):
        (x,) = [x.sum() for x in session.batches(batch_size=15)]
        distributed.all_reduce(x)
        return float(x), distributed.get_world_size(), os.environ["WORLD_SIZE"]

    result = here(worker, data=X, framework="torch")
    assert result.results["worker"] == [(435.0, 1, "1")]
    assert (dict(os.environ), os.environ.get("RANK")) == (before, rank)
    assert not distributed.is_initialized()


def test_a_cluster_computes_and_takes_no_part(cold, local_clusters):
    with local_clusters() as make:
        cluster = make(n_workers=1, processes=False)
        with Client(cluster):
            data = da.from_array(Y, chunks=5).map_blocks(lambda block: block + 1, dtype=Y.dtype)
            dt.publish_dataset(data, name="there")

            def worker(session):
                assert not getattr(cluster.workers[0], "train_agents", {})
                own = [part.copy() for part in session.partitions()]
                there = [part.copy() for part in session.dataset("there").partitions()]
                return np.concatenate(own).tolist(), np.concatenate(there).tolist()

            result = here(worker, data=data)
            assert result.results["worker"] == [([*range(1, 16)],) * 2]
            with pytest.raises(dt.DataError, match="ZeroDivisionError"):
                here(worker, data=data.map_blocks(lambda block: 1 // 0, dtype=Y.dtype, meta=Y[:0]))
            dt.unpublish_dataset("there")
