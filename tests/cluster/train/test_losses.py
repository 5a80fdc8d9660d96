"""Roles and Dask workers that are lost: who is replaced, who goes on, and what the error says."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time

import numpy as np
import pytest

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
            (s["role"], s["rank"], s["attempt"]) == (role, rank, attempt) for s in run._driver.chronicle.scores[-100:]
        )

    wait_for(reported, f"a report of {role} {rank} in attempt {attempt}")


def test_only_the_lost_role_is_replaced_and_the_others_never_pause(client, until, wait_for):
    run = dt.train(beat, roles={"worker": 3}, wait=False)
    roles = until(run, 30)
    killed = time.time()
    os.kill(roles["worker", 1]["pid"], signal.SIGKILL)
    wait_for_attempt(run, wait_for, "worker", 1, 1)
    run.stop()
    result = run.result()
    assert [returned[0] for returned in result.results["worker"]] == [0, 1, 0]
    assert result.results["worker"][0] == (0, roles["worker", 0]["pid"])
    assert result.results["worker"][2] == (0, roles["worker", 2]["pid"])
    first, second = result.attempts
    assert first.reason == f"worker 1 is lost: its process {roles['worker', 1]['pid']} was killed by SIGKILL."
    assert first.ended - killed < 2
    assert list(second.places) == ["worker/1"]
    for key, scores in by_role(result.scores).items():
        if key != ("worker", 1):
            gaps = [b["time"] - a["time"] for a, b in itertools.pairwise(scores)]
            assert max(gaps) < 1.0, "a survivor paused"
    attempts = [score["attempt"] for score in by_role(result.scores)["worker", 1]]
    assert attempts == sorted(attempts)


def test_a_lost_dask_worker_takes_its_roles_and_they_start_elsewhere(client, until, wait_for, workers):
    run = dt.train(beat, roles={"worker": 2}, wait=False)
    roles = until(run, 20)
    address, other = roles["worker", 0]["address"], roles["worker", 1]["address"]
    assert address != other
    (pid,) = client.run(os.getpid, workers=[address]).values()
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    wait_for_attempt(run, wait_for, "worker", 0, 1)
    wait_for(lambda: len(workers(client)) == 2, "the nanny has started the Dask worker again")
    run.stop()
    result = run.result()
    assert result.results["worker"][1] == (0, roles["worker", 1]["pid"])
    assert result.attempts[0].reason == f"worker 0 is lost: the Dask worker {address} left the cluster."
    assert result.attempts[0].ended - killed < 2
    assert result.attempts[1].places["worker/0"] != address


def test_role_processes_die_with_their_dask_worker_even_with_the_gil_held(client, until, wait_for, is_alive, workers):
    def hold(session):
        import ctypes

        session.report(up=1)
        if session.rank:
            time.sleep(0.5)
            ctypes.PyDLL(None).sleep(60)  # PyDLL keeps the GIL
        session.wait_until_stopped()

    run = dt.train(hold, roles={"worker": 4}, recovery=None, wait=False)
    roles = until(run, 4)
    time.sleep(0.7)
    address = roles["worker", 1]["address"]
    doomed = [role["pid"] for role in roles.values() if role["address"] == address]
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()
    while any(map(is_alive, doomed)):
        assert time.monotonic() - started < 5, "a role outlived its Dask worker"
        time.sleep(0.001)
    assert len(doomed) == 2
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
    again = dt.train(worker, roles={"worker": 1}, data=np.arange(60), checkpoint=str(tmp_path / "kept"))
    assert again.results == {"worker": [(2 * sum(range(60)), 0)]}


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
        session.report(attempt_now=session.attempt)
        time.sleep(0.1)
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
