"""``train`` as a user runs it: results, scores, data, logs, and what a role process is given."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from dask_workers import own_dask_worker

import dask_train as dt

ROWS = 103


def rows_seen(session):
    seen = []
    for x, y in session.batches(epochs=2, batch_size=20, shuffle=True, seed=3):
        assert x.shape[1:] == (4,)
        assert (x[:, 0] == y).all()
        seen.append((y.tolist(), session.global_rows))
        session.report(rows=len(y))
    return seen


def data():
    y = da.arange(ROWS, chunks=17)
    return da.stack([y] * 4, axis=1).rechunk((30, 2)), y


@pytest.mark.parametrize("num_workers", [1, 3])
def test_every_row_once_an_epoch_in_the_same_global_batches(client, num_workers):
    result = dt.train(rows_seen, roles={"worker": num_workers}, data=data())
    ranks = result.results["worker"]
    batches = [sum((seen[k][0] for seen in ranks), []) for k in range(12)]
    assert [len(batch) for batch in batches] == [20] * 5 + [3] + [20] * 5 + [3]
    assert [seen[k][1] for k in range(12) for seen in ranks] == [len(b) for b in batches for _ in ranks]
    for epoch in (0, 6):
        assert sorted(sum(batches[epoch : epoch + 6], [])) == list(range(ROWS))
    assert batches[:6] != batches[6:]
    again = dt.train(rows_seen, roles={"worker": 2}, data=data()).results["worker"]
    assert [sorted(sum((seen[k][0] for seen in again), [])) for k in range(12)] == [sorted(batch) for batch in batches]
    assert len(result.scores) == 12 * num_workers
    ledger = result.ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (2 * ROWS, 2 * ROWS, 0, 0)
    assert [(line.rank, line.epoch) for line in ledger.lines] == [
        (rank, e) for rank in range(num_workers) for e in (0, 1)
    ]
    assert {(s["role"], s["attempt"]) for s in result.scores} == {("worker", 0)}


def test_roles_have_functions_of_their_own_and_results_by_rank(client):
    def worker(session):
        return session.role, session.rank, session.size, session.is_chief, session.attempt

    def scorer(session):
        session.wait_until_stopped()
        return session.is_chief

    result = dt.train({"worker": worker, "scorer": scorer}, roles={"ps": 1, "worker": 2, "scorer": 1})
    assert result.results == {
        "ps": [None],
        "worker": [("worker", 0, 2, True, 0), ("worker", 1, 2, False, 0)],
        "scorer": [False],
    }
    (attempt,) = result.attempts
    assert sorted(attempt.places) == ["ps/0", "scorer/0", "worker/0", "worker/1"]
    assert attempt.ended >= attempt.started


def test_one_worker_a_dask_worker_where_no_roles_are_named(client):
    assert dt.train(lambda session: session.size).results == {"worker": [2, 2]}


def test_data_of_several_shapes_and_roles(client):
    def worker(session):
        return [{name: array.sum() for name, array in batch.items()} for batch in session.batches(batch_size=100)]

    def scorer(session):
        return sum(len(x) for x in session.batches(batch_size=7, shuffle=False))

    result = dt.train(
        {"worker": worker, "scorer": scorer},
        roles={"worker": 1, "scorer": 1},
        data={"worker": {"a": np.ones((10, 3)), "b": da.zeros(10, chunks=3, dtype="i4")}, "scorer": np.ones(50)},
    )
    assert result.results == {"worker": [[{"a": 30.0, "b": 0}]], "scorer": [50]}


def test_a_published_collection_is_a_data_set(client):
    client.publish_dataset(numbers=da.arange(50, chunks=8))
    try:

        def worker(session):
            numbers = session.dataset("numbers")
            return [int(x.sum()) for x in numbers.batches(batch_size=50, shuffle=False)]

        def wrong(session):
            return session.dataset("letters")

        first, second = dt.train(worker, roles={"worker": 2}).results["worker"]
        assert first[0] + second[0] == sum(range(50))
        with pytest.raises(dt.RoleFailedError, match="No data set 'letters' is published; there are numbers"):
            dt.train(wrong, roles={"worker": 1})
    finally:
        client.unpublish_dataset("numbers")


def test_scores_come_live_none_merged_and_from_the_first_on(client):
    def worker(session):
        for step in range(20):
            session.report(step=step, loss=np.float32(1 / (step + 1)))
        while not session.should_stop():
            time.sleep(0.01)

    run = dt.train(worker, roles={"worker": 2}, wait=False)
    seen = []
    for score in run.scores():
        seen.append(score)
        if len(seen) == 40:
            run.stop("seen enough")
    assert [s["step"] for s in seen if s["rank"] == 0] == list(range(20))
    assert [s["step"] for s in run.scores() if s["rank"] == 1] == list(range(20))
    assert all(type(s["loss"]) is float and s["time"] > 0 for s in seen)
    assert run.result().stop_reason == "seen enough"
    assert run.result().scores == list(run.scores())


def test_output_by_role_live_and_afterwards(client, until):
    def worker(session):
        print(f"to stdout {session.rank}")
        print("to stderr", file=sys.stderr)
        os.system("echo from a child")
        session.report(here=1)
        session.wait_until_stopped()
        print("last words")

    run = dt.train(worker, roles={"worker": 2}, wait=False)
    until(run, 2)
    assert run.logs("worker", 1) == "to stdout 1\nto stderr\nfrom a child\n"
    assert run.logs("worker").splitlines()[:2] == ["[worker 0] to stdout 0", "[worker 0] to stderr"]
    run.stop()
    assert run.logs("worker", 0) == "to stdout 0\nto stderr\nfrom a child\nlast words\n"
    with pytest.raises(ValueError, match="no role 'ps'  in this run; it has worker=2"):
        run.logs("ps")


def test_a_role_process_has_its_share_of_the_host_and_a_folder(client):
    def worker(session):
        names = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "MKL_NUM_THREADS", "DASK_PARENT", "MY_DEVICES")
        (session.scratch / "file").write_text("x")
        return own_dask_worker(), [os.environ.get(n) for n in names], str(session.scratch), "distributed" in sys.modules

    def set_variable():
        os.environ["MY_DEVICES"] = "3"
        return os.getpid()

    pids = client.run(set_variable)
    one = dt.train(worker, roles={"worker": 1}).results["worker"][0]
    two = dt.train(worker, roles={"worker": 2}).results["worker"]
    cores = len(os.sched_getaffinity(0))
    assert one[1][:3] == [str(cores)] * 3
    assert [each[1][0] for each in two] == [str(max(1, cores // 2))] * 2
    assert {each[0] for each in two} == set(pids.values())
    assert {each[1][4] for each in two} == {"3"}
    assert not any(Path(each[2]).exists() for each in two)
    assert not any(each[3] for each in two)


def test_a_module_that_the_dask_workers_lack_is_named(client, tmp_path, monkeypatch):
    (tmp_path / "my_model_code.py").write_text("def worker(session):\n    return 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_model_code

    with pytest.raises(
        dt.LaunchError, match=r"has no module 'my_model_code'.*client.upload_file\('my_model_code.py'\)"
    ):
        dt.train(my_model_code.worker, roles={"worker": 1})
    client.upload_file(str(tmp_path / "my_model_code.py"))
    assert dt.train(my_model_code.worker, roles={"worker": 1}).results == {"worker": [42]}


def test_a_module_that_dask_workers_have_in_another_version_is_refused(client, tmp_path, monkeypatch):
    for folder, factor in (("here", 5), ("there", 3)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "kept_in_two_places.py").write_text(f"def scaled(x):\n    return {factor} * x\n")
    monkeypatch.syspath_prepend(tmp_path / "here")
    there = str(tmp_path / "there")
    client.run(lambda: sys.path.insert(0, there))
    try:
        from kept_in_two_places import scaled

        told = "has another version of module 'kept_in_two_places' than this process"
        with pytest.raises(dt.LaunchError, match=told):
            dt.train(scaled, roles={"worker": 1})
        with pytest.raises(dt.PredictionError, match=told):
            dt.predict(scaled, data()[0]).compute()
        (tmp_path / "there" / "kept_in_two_places.py").write_text(
            (tmp_path / "here" / "kept_in_two_places.py").read_text()
        )
        assert dt.predict(scaled, data()[0]).max().compute() == 5 * (ROWS - 1)
        for folder, factor in (("here", 7), ("there", 2)):
            (tmp_path / folder / "imported_by_it.py").write_text(f"FACTOR = {factor}\n")
            (tmp_path / folder / "imports_another.py").write_text(
                "import imported_by_it\n\n\ndef scaled(x):\n    return imported_by_it.FACTOR * x\n"
            )
        importlib.invalidate_caches()
        client.run(importlib.invalidate_caches)
        from imports_another import scaled

        with pytest.raises(dt.LaunchError, match="has another version of module 'imported_by_it' than this process"):
            dt.train(scaled, roles={"worker": 1})
    finally:
        client.run(lambda: sys.path.remove(there))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"function": 3}, TypeError, "function of role 'worker' is 3"),
        ({"roles": {"worker": 1, "scorer": 0}}, ValueError, "scorer=0 asks for no task"),
        ({"roles": {"scorer": 1}}, ValueError, "Role 'scorer' has no function"),
        ({"roles": {"worker": 1}, "data": np.ones(0)}, ValueError, "has no rows"),
        ({"roles": {"worker": 1}, "data": (np.ones(3), np.ones(4))}, ValueError, "3, 4 rows; they have to be the same"),
        ({"roles": {"worker": 1}, "data": np.array([{}])}, TypeError, "array of object"),
        ({"roles": {"worker": 1}, "framework": "tensorfow"}, ValueError, "'tensorfow'"),
        ({"roles": {"worker": 1, "ps": 1}, "framework": "torch"}, ValueError, "no parameter server"),
        ({"roles": {"worker": 1}, "recovery": "always"}, ValueError, "recovery is 'always'"),
        ({"roles": {"worker": 1}, "stop": "loss is small"}, ValueError, "loss is small"),
        ({"roles": {"worker": 1}, "on": "tcp://1"}, ValueError, "pass a list"),
        ({"roles": {"worker": 1}, "resources": {"GPU": -1}}, ValueError, "GPU=-1"),
        ({"roles": {"worker": 1}, "resources": {"worker": 1}}, ValueError, "may be meant by role or as a resource"),
        ({"data": {"worker": np.ones(3), "y": np.ones(3)}}, ValueError, "may be meant by role or as columns"),
        ({"data": {"worker": np.ones(3), "scorer": np.ones(3)}}, ValueError, "data for role 'scorer', which the run"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(client, state, arguments, error, text):
    with pytest.raises(error, match=text):
        dt.train(**{"function": lambda session: None, **arguments})


def test_a_function_that_cannot_travel(client):
    import threading

    lock = threading.Lock()
    with pytest.raises(TypeError, match="function of role 'worker' can't be pickled"):
        dt.train(lambda session: lock, roles={"worker": 1})


def test_data_that_cannot_be_computed_or_differs(client):
    def broken(block):
        raise ZeroDivisionError("no such rows")

    bad = da.ones((10, 2), chunks=5).map_blocks(broken, dtype=float)
    with pytest.raises(dt.DataError, match=r"data\['worker'\] can't be computed: ZeroDivisionError: no such rows"):
        dt.train(lambda session: None, roles={"worker": 1}, data=bad)


def test_values_go_to_roles_and_come_back_also_before_they_are_there(client):
    def worker(session):
        session.send((session.rank, session.receive()))
        session.send(session.receive(timeout_s=30).sum())
        with pytest.raises(dt.ClosedError, match="enough"):
            session.receive()

    run = dt.train(worker, roles={"worker": 2}, wait=False)
    run.send("for both")
    told = [run.receive(60) for _ in range(2)]
    assert sorted(told) == [("worker", rank, (rank, "for both")) for rank in range(2)]
    with pytest.raises(dt.StalledError, match="has sent a value within 0 s"):
        run.receive(0)
    run.send(np.arange(1_000_000), rank=1)  # more than a socket's buffer
    assert run.receive(60) == ("worker", 1, 499_999_500_000)
    with pytest.raises(ValueError, match="There is no role 'worker' 7"):
        run.send(1, rank=7)
    with pytest.raises(TypeError, match="can't be pickled"):
        run.send(threading.Lock())
    run.stop("enough")
    with pytest.raises(dt.ClosedError, match="is over: enough"):
        run.receive()
