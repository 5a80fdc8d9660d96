"""Roles and Dask workers that are lost: who is replaced, who goes on, and what the error says."""

from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest
from dask_workers import own_dask_worker

import dask_train as dt


def beat(session):
    """Reports 20 times a second until it is told to stop; what it returns tells its process."""
    while not session.should_stop():
        session.report(pid=os.getpid())
        time.sleep(0.05)
    return session.attempt, os.getpid()


def by_role(scores):
    found = {}
    for score in scores:
        found.setdefault((score["role"], score["rank"]), []).append(score)
    return found


def wait_for_attempt(run, wait_for, role, rank, attempt):
    def reported():
        return any(
            (s["role"], s["rank"], s["attempt"]) == (role, rank, attempt) for s in run._driver.history.scores[-100:]
        )

    wait_for(reported, f"a report of {role} {rank} in attempt {attempt}")


def test_only_the_lost_role_is_replaced_and_the_others_never_pause(client, until, wait_for, tmp_path):
    heard = tmp_path / "heard"

    def beat_once_others_are_heard(session):
        while session.attempt and not heard.exists():  # it is there sooner than the others report
            time.sleep(0.01)
        return beat(session)

    run = dt.train(beat_once_others_are_heard, roles={"worker": 3}, wait=False)
    roles = until(run, 30)
    os.kill(roles["worker", 1]["pid"], signal.SIGKILL)
    killed = time.time()

    def others_reported():
        return {0, 2} <= {score["rank"] for score in run._driver.history.scores if score["time"] > killed}

    wait_for(others_reported, "reports of the others")
    heard.touch()
    wait_for_attempt(run, wait_for, "worker", 1, 1)
    run.stop()
    result = run.result()
    assert [returned[0] for returned in result.results["worker"]] == [0, 1, 0]
    assert result.results["worker"][0] == (0, roles["worker", 0]["pid"])
    assert result.results["worker"][2] == (0, roles["worker", 2]["pid"])
    first, second = result.attempts
    assert first.reason == f"worker 1 is lost: its process {roles['worker', 1]['pid']} was killed by SIGKILL."
    assert list(second.places) == ["worker/1"]
    times = [(score["attempt"], score["time"]) for score in by_role(result.scores)["worker", 1]]
    lost, there_again = max(when for n, when in times if n == 0), min(when for n, when in times if n == 1)
    meanwhile = [score for score in result.scores if lost < score["time"] < there_again]
    assert set(by_role(meanwhile)) == {("worker", 0), ("worker", 2)}, "a survivor paused"
    attempts = [score["attempt"] for score in by_role(result.scores)["worker", 1]]
    assert attempts == sorted(attempts)


def test_a_lost_dask_worker_takes_its_roles_and_they_start_elsewhere(client, until, wait_for, workers):
    run = dt.train(beat, roles={"worker": 2}, wait=False)
    roles = until(run, 20)
    address, other = roles["worker", 0]["address"], roles["worker", 1]["address"]
    assert address != other
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)
    wait_for_attempt(run, wait_for, "worker", 0, 1)
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")
    run.stop()
    result = run.result()
    assert result.results["worker"][1] == (0, roles["worker", 1]["pid"])
    assert result.attempts[0].reason == f"worker 0 is lost: the Dask worker {address} left the cluster."
    assert result.attempts[1].places["worker/0"] != address
    asked_for = [key for key in client.refcount if run.id in str(key)]
    assert not asked_for, "get_dataset() asks the scheduler for it, which knows it no longer"


def test_role_processes_die_with_their_dask_worker_even_with_the_gil_held(
    client, until, wait_for, is_alive, workers, tmp_path
):
    def hold(session):
        import ctypes

        session.report(up=1)
        if session.rank:
            held = session.receive().encode()
            c = ctypes.PyDLL(None)  # it keeps the GIL
            c.creat(held, 0o600)
            c.sleep(60)
        session.wait_until_stopped()

    run = dt.train(hold, roles={"worker": 4}, recovery=None, wait=False)
    roles = until(run, 4)
    for rank in (1, 2, 3):
        run.send(str(tmp_path / str(rank)), rank=rank)
    wait_for(lambda: len(list(tmp_path.iterdir())) == 3, "they hold the GIL")
    address = roles["worker", 1]["address"]
    doomed = [role["pid"] for role in roles.values() if role["address"] == address]
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)
    assert len(doomed) == 2
    wait_for(lambda: not any(map(is_alive, doomed)), "no role outlives its Dask worker")
    with pytest.raises(dt.RoleLostError, match=f"are lost: the Dask worker {address} left the cluster"):
        run.result()
    wait_for(lambda: not any(is_alive(role["pid"]) for role in roles.values()), "all roles are gone")
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")


def test_the_ledger_counts_what_a_killed_role_had_done(client):
    """Each rank has 4 batches of 5 rows an epoch; rank 1 is killed with its third in hand, and begins again."""

    def worker(session):
        seen = 0
        for batch in session.batches(batch_size=10, shuffle=False):
            seen += len(batch)
            if session.rank == 1 and session.attempt == 0 and seen == 15:
                os.kill(os.getpid(), signal.SIGKILL)
        return seen

    result = dt.train(worker, roles={"worker": 2}, data=np.arange(40))
    assert result.results == {"worker": [20, 20]}
    ledger = result.ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (40 + 15, 40, 10, 0)
    assert [(line.rank, line.read, line.trained, line.repeated) for line in ledger.lines] == [
        (0, 20, 20, 0),
        (1, 35, 20, 10),
    ]


def test_a_killed_role_goes_on_from_its_checkpoint(client, tmp_path):
    """The sum over all rows, carried on: nothing is lost or added twice."""

    def worker(session):
        kept = session.load_checkpoint()
        total, start = (0, (0, 0)) if kept is None else json.loads((kept / "state").read_text())
        for number, batch in enumerate(session.batches(epochs=2, batch_size=7, start=tuple(start))):
            total += int(batch.sum())
            state = json.dumps([total, session.position])
            session.save_checkpoint(lambda folder, state=state: (folder / "state").write_text(state))
            if number == 4 and session.attempt < 2:
                os.kill(os.getpid(), signal.SIGKILL)
        return total, session.attempt

    result = dt.train(worker, roles={"worker": 1}, data=np.arange(60), checkpoint=tmp_path / "kept")
    assert result.results == {"worker": [(2 * sum(range(60)), 2)]}
    ledger = result.ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (120, 120, 0, 0)
    every = dt.Checkpoint(str(tmp_path / "kept"), every_steps=1)
    again = dt.train(worker, roles={"worker": 1}, data=np.arange(60), checkpoint=every, resume=True)
    assert again.results == {"worker": [(2 * sum(range(60)), 0)]}


@pytest.mark.parametrize(("victim", "dask_worker"), [(0, True), (1, True), (1, False)])
def test_what_a_checkpoint_holds_is_trained_though_the_account_of_it_is_lost(
    client, tmp_path, wait_for, workers, victim, dask_worker
):
    """Both ranks are in the third batch of four when the first one keeps a checkpoint; then one is killed."""

    def position(session):
        kept = session.load_checkpoint()
        return (0, 0) if kept is None else tuple(json.loads((kept / "state").read_text()))

    def worker(session):
        start = position(session)
        if session.attempt == 0:
            session.send("has seen that there is none")
            session.receive(30)
        for _ in session.batches(epochs=2, batch_size=10, start=start):
            if session.attempt == 0 and session.position == (0, 3):
                if session.rank == 0:
                    session.save_checkpoint(lambda folder: (folder / "state").write_text(json.dumps(session.position)))
                session.send("is in its third batch")
                session.receive(30)
                if session.rank == victim:
                    os.kill(own_dask_worker() if dask_worker else os.getpid(), signal.SIGKILL)
                session.wait_until_stopped()
        return start

    arguments = {"roles": {"worker": 2}, "data": np.arange(40), "recovery": "gang", "checkpoint": tmp_path / "kept"}
    run = dt.train(worker, wait=False, **arguments)
    for _ in range(2):
        assert {run.receive(30)[1], run.receive(30)[1]} == {0, 1}
        run.send("go on")
    result = run.result()
    assert result.results == {"worker": [(0, 3), (0, 3)]}
    assert len(result.attempts) == 2
    ledger = result.ledger
    assert (ledger.trained, ledger.repeated, ledger.dropped) == (80, 0, 0)
    assert [(line.rank, line.epoch, line.trained) for line in ledger.lines] == [
        (rank, epoch, 20) for rank in range(2) for epoch in range(2)
    ]

    def later(session):
        return sum(len(batch) for batch in session.batches(epochs=2, batch_size=10, start=position(session)))

    anew = dt.train(position, **{**arguments, "data": None})
    assert anew.results == {"worker": [(0, 0), (0, 0)]}, "only a run that resumes goes on with those of others"
    again = dt.train(later, **arguments, resume=True)
    assert again.results == {"worker": [25, 25]}, "another run goes on with it"
    assert (again.ledger.trained, again.ledger.repeated, again.ledger.dropped) == (80, 0, 0)
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")


@pytest.mark.parametrize(("place", "why"), [("nosuch://bucket", "Protocol not known"), ("{}/file", "is a file")])
def test_where_no_checkpoint_can_be_kept_nothing_starts(client, tmp_path, place, why):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"where no Dask worker can keep checkpoints. On tcp://.*{why}"):
        dt.train(lambda session: 1, roles={"worker": 1}, checkpoint=place.format(tmp_path))


def test_what_was_lost_without_a_checkpoint_is_done_again(client, wait_for, workers):
    def worker(session):
        for _ in session.batches(batch_size=10):
            if session.attempt == 0 and session.position == (0, 3):
                if session.rank == 1:
                    os.kill(own_dask_worker(), signal.SIGKILL)
                session.wait_until_stopped()

    result = dt.train(worker, roles={"worker": 2}, data=np.arange(40), recovery="gang")
    assert (result.ledger.trained, result.ledger.dropped) == (40, 0)
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")


def test_a_run_that_is_stopped_in_mid_epoch_says_what_was_dropped(client):
    def worker(session):
        for number, _ in enumerate(session.batches(batch_size=10)):
            if number == 2:
                break

    ledger = dt.train(worker, roles={"worker": 2}, data=np.arange(45)).ledger
    assert (ledger.read, ledger.trained, ledger.repeated, ledger.dropped) == (30, 30, 0, 15)


def test_a_gang_starts_again_as_a_whole_and_stale_messages_are_dropped(client, until, wait_for):
    run = dt.train(beat, roles={"worker": 2}, recovery="gang", wait=False)
    roles = until(run, 20)
    os.kill(roles["worker", 0]["pid"], signal.SIGKILL)
    wait_for_attempt(run, wait_for, "worker", 1, 1)
    run.stop()
    result = run.result()
    assert [attempt for attempt, _ in result.results["worker"]] == [1, 1]
    assert {pid for _, pid in result.results["worker"]}.isdisjoint(role["pid"] for role in roles.values())
    attempts = [score["attempt"] for score in result.scores]
    assert attempts == sorted(attempts)
    assert len(result.attempts) == 2


def test_peers_of_a_lost_rank_raise_and_the_loss_is_what_is_told(client, until):
    def reduce(session):
        import torch
        import torch.distributed

        while True:
            torch.distributed.all_reduce(torch.ones(2))
            session.report(pid=os.getpid())
            time.sleep(0.02)

    run = dt.train(reduce, roles={"worker": 2}, framework="torch", recovery=None, wait=False)
    roles = until(run, 10)
    os.kill(roles["worker", 1]["pid"], signal.SIGKILL)
    with pytest.raises(dt.RoleLostError, match=r"worker 1 is lost: its process .* was killed by SIGKILL"):
        run.result()


def test_too_many_losses_end_the_run_with_every_cause(client):
    def give_up(session):
        os.kill(os.getpid(), signal.SIGTERM if session.attempt else signal.SIGKILL)

    with pytest.raises(dt.RoleLostError) as raised:
        dt.train(give_up, roles={"worker": 1}, recovery=dt.RecoveryPolicy(scope="role", max_restarts=2))
    text = str(raised.value)
    assert "was killed by SIGTERM. The run had been mended 2 times before. Attempt 0: worker 0 is lost" in text
    assert text.count("SIGKILL") == 1
    assert text.count("SIGTERM") == 2
    assert "raise max_restarts" in text


def test_an_error_of_the_function_is_not_retried_unless_it_is_asked_for(client):
    def fail_once(session):
        if not session.attempt:
            raise OSError("the file was not there yet")
        return session.attempt

    with pytest.raises(dt.RoleFailedError, match="worker 0 raised OSError: the file was not there yet"):
        dt.train(fail_once, roles={"worker": 1})
    policy = dt.RecoveryPolicy(retry_errors=True)
    assert dt.train(fail_once, roles={"worker": 1}, recovery=policy).results == {"worker": [1]}
