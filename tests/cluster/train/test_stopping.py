"""When a run ends: rules, roles, clients; and that all of it ends in time."""

from __future__ import annotations

import os
import signal
import time
import uuid

import dask
import dask.array as da
import pytest

import dask_train as dt


def descend(session):
    step = 0
    while not session.should_stop():
        step += 1
        session.report(step=step, loss=1 / step)
        time.sleep(0.01)
    return step


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ("loss < 0.1", "loss is"),
        ("seconds > 0.5", "seconds"),
        (["loss < 0", "step >= 10"], "step is 10"),
        (lambda scores: scores[-1]["loss"] < 0.1, "lambda"),
        (dt.Patience("loss", 3, mode="max"), "loss"),
    ],
)
def test_rules(client, stop, reason):
    result = dt.train(descend, roles={"worker": 2}, stop=stop)
    assert reason in result.stop_reason
    assert all(type(step) is int for step in result.results["worker"])


def test_steps_are_batches(client):
    def worker(session):
        for _ in session.batches(epochs=1000, batch_size=2):
            if session.should_stop():
                return "stopped"
            time.sleep(0.005)
        return "at the end"

    result = dt.train(worker, roles={"worker": 2}, data=da.arange(20, chunks=5), stop="steps >= 50")
    assert "steps" in result.stop_reason
    assert result.results == {"worker": ["stopped", "stopped"]}


def test_a_rule_that_raises_ends_the_run_with_its_error(client):
    def rule(scores):
        raise ZeroDivisionError("in the rule")

    with pytest.raises(dt.DaskTrainError, match="The stop rule raised ZeroDivisionError") as raised:
        dt.train(descend, roles={"worker": 1}, stop=rule)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_role_stops_all(client):
    def worker(session):
        if session.rank == 1:
            session.stop("worker 1 has seen enough")
        session.wait_until_stopped()
        return session.should_stop()

    result = dt.train(worker, roles={"worker": 3})
    assert (result.stop_reason, result.results) == ("worker 1 has seen enough", {"worker": [True] * 3})


def test_roles_that_do_not_listen_are_killed_and_the_others_results_kept(client, until, is_alive):
    def worker(session):
        session.report(up=1)
        if session.rank:
            time.sleep(1000)
        session.wait_until_stopped()
        return "in order"

    run = dt.train(worker, roles={"worker": 2}, wait=False)
    roles = until(run, 2)
    run.stop("enough")
    assert run.result().results == {"worker": ["in order", None]}
    assert not any(is_alive(role["pid"]) for role in roles.values())
    run.stop()  # again does no harm


@pytest.mark.parametrize("wait", [True, False])
def test_an_interrupted_wait_leaves_what_there_is(client, wait):
    pid = os.getpid()

    def worker(session):
        session.report(up=1)
        os.kill(pid, signal.SIGINT)
        session.wait_until_stopped()
        return session.rank

    with pytest.raises(KeyboardInterrupt) as interrupt:  # noqa: PT012 - with wait=False the second waits
        run = dt.train(worker, roles={"worker": 1}, wait=wait, client=client)
        run.result()
    result = interrupt.value.result
    assert (result.results, result.stop_reason) == ({"worker": [0]}, "it was interrupted")
    assert [score["up"] for score in result.scores] == [1]


def test_the_scorer_and_the_parameter_server_end_with_the_workers(client):
    def worker(session):
        return session.rank

    def scorer(session):
        while not session.should_stop():
            session.report(score=1)
            time.sleep(0.01)
        return "saw the end"

    result = dt.train({"worker": worker, "scorer": scorer}, roles={"ps": 1, "worker": 2, "scorer": 1})
    assert result.results == {"ps": [None], "worker": [0, 1], "scorer": ["saw the end"]}
    assert result.stop_reason == ""


@pytest.mark.parametrize("end", ["is killed", "raises", "hangs"])
def test_what_was_trained_is_returned_whatever_becomes_of_the_scorer(client, end, capfd):
    def scorer(session):
        while not session.should_stop():
            time.sleep(0.01)
        if end == "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif end == "raises":
            raise ValueError("no scores")
        while True:
            session.report(score=1)
            time.sleep(0.01)

    with dask.config.set({"train.progress.timeout": "2s"}):
        result = dt.train({"worker": lambda _: "trained", "scorer": scorer}, recovery="gang")
    assert (result.results["worker"][0], result.results["scorer"]) == ("trained", [None])
    (notice,) = result.notices
    assert f"dask_train: {notice}" in capfd.readouterr().err
    assert notice.startswith("scorer 0 ")
    assert notice in result.attempts[-1].reason


def test_stopping_cancels_the_upstream_work(client, wait_for, tmp_path):
    def slow(block):
        time.sleep(0.5)
        (tmp_path / uuid.uuid4().hex).touch()
        return block

    num_blocks = 400  # 50 s on four threads
    data = da.ones((num_blocks, 2), chunks=(1, 2)).map_blocks(slow, dtype="f8")
    run = dt.train(lambda session: None, roles={"worker": 1}, data=data, wait=False)
    wait_for(lambda: any(client.processing().values()), "Dask computes")
    run.stop("not needed")
    wait_for(lambda: not client.sync(client.scheduler.who_has), "nothing of it is left")
    assert run.result().results == {"worker": [None]}
    assert len(list(tmp_path.iterdir())) < num_blocks


def test_processes_that_a_role_has_started_end_with_it(client, until, wait_for, is_alive):
    def worker(session):
        import subprocess

        child = subprocess.Popen(["sleep", "1000"])
        session.report(child=child.pid)
        if session.rank:
            session.wait_until_stopped()
        return os.getpid()

    run = dt.train(worker, roles={"worker": 2}, wait=False)
    children = []
    for score in run.scores():
        children.append(score["child"])
        if len(children) == 2:
            run.stop()
    wait_for(lambda: not any(map(is_alive, children)), "what the roles have started is gone")
