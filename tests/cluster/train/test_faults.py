"""What can go wrong in a role or around it: who learns it, what the error says, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import dask
import pytest

import dask_train as dt
from dask_train.frameworks.jax.group import LEAVE_S


def test_a_role_that_raises(client):
    def worker(session):
        print("before the end")
        if session.rank == 1:
            raise ValueError("these labels can't be")
        session.wait_until_stopped()

    with pytest.raises(dt.RoleFailedError) as raised:
        dt.train(worker, roles={"worker": 2})
    assert str(raised.value).startswith("worker 1 raised ValueError: these labels can't be.")
    assert isinstance(raised.value.__cause__, ValueError)
    traceback, output, where = raised.value.__notes__
    assert 'raise ValueError("these labels can\'t be")' in traceback
    assert "dask_train/role/" not in traceback
    assert output == "The end of its output:\n[worker 1] before the end"
    assert "dask train logs worker-" in where


@pytest.mark.parametrize("status", [0, 3])
def test_a_role_that_exits_early(client, status):
    with pytest.raises(dt.RoleLostError, match=f"exited with status {status} before its function returned"):
        dt.train(lambda session: os._exit(status), roles={"worker": 1}, recovery=None)


def test_a_role_that_gives_up_with_sys_exit(client):
    with pytest.raises(dt.RoleFailedError, match="worker 0 raised SystemExit: 7"):
        dt.train(lambda session: sys.exit(7), roles={"worker": 1})


def test_a_stopped_rank_is_named_and_its_peer_is_shown_in_the_all_reduce(client, until):
    def reduce(session):
        import torch
        import torch.distributed

        while True:
            torch.distributed.all_reduce(torch.ones(2))
            session.report(x=1)
            time.sleep(0.02)

    with dask.config.set({"train.progress.timeout": "2s"}):
        run = dt.train(reduce, roles={"worker": 2}, framework="torch", recovery=None, wait=False)
        pid = until(run, 10)["worker", 1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(dt.StalledError) as raised:
            run.result()
    assert f"No role made progress for 2 s: worker 1 (process {pid}) does not answer: it is stopped" in str(
        raised.value
    )
    picture = next(note for note in raised.value.__notes__ if note.startswith("Run reduce-"))
    of_rank_0 = picture[picture.index("worker 0 on") : picture.index("worker 1 on")]
    assert "in all_reduce" in of_rank_0
    assert "in reduce" in of_rank_0


def test_diagnose_shows_a_role_that_holds_the_gil(client, until, wait_for):
    def hold(session):
        import ctypes

        session.report(up=1)
        session.receive()
        while True:
            ctypes.PyDLL(None).sleep(1000)

    with dask.config.set({"train.stop.timeout": "1s"}):
        run = dt.train(hold, roles={"worker": 1}, wait=False)
    until(run)
    run.send("hold it")
    wait_for(lambda: "in hold" in (shown := run.diagnose()) and "in receive" not in shown, "its stack")
    run.stop()
    assert run.result().results == {"worker": [None]}


def test_a_flood_of_output_blocks_nobody_and_its_end_is_kept(client):
    def flood(session):
        line = "x" * 1000 + "\n"
        for _ in range(20_000):
            sys.stdout.write(line * 10)
        print("the end")
        return True

    run = dt.train(flood, roles={"worker": 1}, wait=False)
    assert run.result().results == {"worker": [True]}
    assert run.logs("worker", 0).endswith("x\nthe end\n")
    assert len(run.logs("worker", 0)) <= 64_000


def test_a_result_that_cannot_be_pickled(client):
    def worker(session):
        import threading

        return threading.Lock()

    with pytest.raises(dt.RoleFailedError, match="it returned a lock, which can't be pickled"):
        dt.train(worker, roles={"worker": 1})


def test_a_burst_of_reports_arrives_whole(client):
    def burst(session):
        for n in range(100_000):
            session.report(n=n)

    result = dt.train(burst, roles={"worker": 1})
    assert [score["n"] for score in result.scores] == list(range(100_000))


def test_a_report_that_is_no_score(client):
    def worker(session):
        import numpy as np

        session.report(loss=np.zeros(3))

    with pytest.raises(dt.RoleFailedError, match=r"report\(loss=...\) was given a ndarray"):
        dt.train(worker, roles={"worker": 1})


PROGRAM = """
import os, sys, time
import dask
import dask_train as dt
from dask_train.frameworks.jax.group import LEAVE_S
from distributed import Client

def worker(session):
    session.report(pid=os.getpid())
    session.wait_until_stopped()

if __name__ == "__main__":
    {start}
    run = dt.train(worker, roles={{"worker": 2}}, wait=False)
    for score in run.scores():
        print(score["pid"], flush=True)
        if score["rank"] == 1:
            print("up", flush=True)
    {end}
"""


def program(start: str, end: str = "") -> subprocess.Popen[str]:
    code = textwrap.dedent(PROGRAM).format(start=start, end=end)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def pids_until_up(process: subprocess.Popen[str]) -> list[int]:
    pids = []
    for line in process.stdout:
        if line.strip() == "up":
            break
        pids.append(int(line))
    return pids


def test_a_client_that_is_killed_leaves_nothing(client, wait_for, is_alive, state):
    process = program(f"client = Client({client.scheduler.address!r})")
    with process:
        pids = pids_until_up(process)
        assert len(state(client)["runs"]) == 1
        process.kill()
        wait_for(lambda: not any(map(is_alive, pids)), "its roles are gone")
    wait_for(lambda: state(client)["runs"] == (), "its run is over")
    record = client.sync(client.scheduler.train_runs)["runs"][-1]
    assert record["summary"]["outcome"] == "its client left"
    assert dt.train(lambda session: 1, roles={"worker": 4}).results == {"worker": [1] * 4}


def test_a_client_that_is_stopped_loses_its_run(client, wait_for, is_alive, state):
    with program(
        f"client = Client({client.scheduler.address!r}); dask.config.set({{'train.client.timeout': '1s'}})"
    ) as process:
        pids = pids_until_up(process)
        process.send_signal(signal.SIGSTOP)
        wait_for(lambda: state(client)["runs"] == (), "its run is over")
        wait_for(lambda: not any(map(is_alive, pids)), "its roles are gone")
        process.kill()
    record = client.sync(client.scheduler.train_runs)["runs"][-1]
    assert record["summary"]["outcome"] == "nothing was heard of its client for 1 s (train.client.timeout)"


class BoomError(Exception):
    """What a signal's handler raises."""


def test_whatever_a_signal_raises_where_a_run_is_awaited_stops_it(client, state, is_alive):
    def handle(*_):
        raise BoomError

    pid = os.getpid()

    def worker(session):
        os.kill(pid, signal.SIGUSR1)
        session.wait_until_stopped()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(BoomError):
            dt.train(worker, roles={"worker": 1})
        assert state(client)["runs"] == ()
        run = dt.train(worker, roles={"worker": 1}, wait=False)
        with pytest.raises(BoomError):
            run.result()
        assert run.status()["outcome"] == "BoomError was raised where it was awaited"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_role_that_only_asks_whether_to_stop_hides_no_stopped_peer(client):
    """It is replaced where that may be; else the run ends."""

    def worker(session):
        if session.rank == 1:
            if session.attempt:
                session.stop("worker 1 was replaced")
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        while not session.should_stop():
            time.sleep(0.01)

    with dask.config.set({"train.progress.timeout": "2s"}):
        with pytest.raises(
            dt.StalledError, match=r"worker 1 \(process \d+\) does not answer: it is stopped by a signal"
        ):
            dt.train(worker, roles={"worker": 2}, recovery=None)
        assert dt.train(worker, roles={"worker": 2}).stop_reason == "worker 1 was replaced"


@pytest.mark.parametrize("recovery", [None, "role"])
def test_a_stopped_role_is_noticed_while_others_go_on(client, recovery):
    def worker(session):
        if session.rank == 1:
            if session.attempt:
                session.stop("worker 1 was replaced")
            else:
                os.kill(os.getpid(), signal.SIGSTOP)
        while not session.should_stop():
            session.report(x=1)
            time.sleep(0.05)

    with dask.config.set({"train.progress.timeout": "2s"}):
        if recovery:
            assert dt.train(worker, roles={"worker": 2}, recovery=recovery).stop_reason == "worker 1 was replaced"
            return
        with pytest.raises(
            dt.StalledError, match=r"worker 1 made no progress for 2 s: worker 1 \(process \d+\) does not"
        ):
            dt.train(worker, roles={"worker": 2}, recovery=recovery)


def test_a_run_whose_standard_error_nobody_reads_ends(client, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with suppress(BrokenPipeError), open(write, "w", buffering=1) as closed:
        monkeypatch.setattr(sys, "stderr", closed)
        result = dt.train(
            lambda session: session.report(loss=1.0), roles={"worker": 1}, stop="los < 0.1", progress=False
        )
        monkeypatch.undo()
        assert "stop looks at los, which was never reported" in result.notices[0]


def test_what_no_message_can_hold_ends_with_the_roles_own_words(client):
    def raises(session):
        session.notice("cannot read a\udcff.npy")
        raise FileNotFoundError("no file 'a\udcff.npy'")

    with pytest.raises(dt.RoleFailedError, match=r"worker 0 raised FileNotFoundError: no file 'a\\udcff.npy'"):
        dt.train(raises, roles={"worker": 1})
    with pytest.raises(
        dt.RoleFailedError, match=r"report\(seed=\.\.\.\) was given \d+; whole numbers have up to 64 bits"
    ):
        dt.train(lambda session: session.report(seed=2**70), roles={"worker": 1})


def test_a_run_that_nobody_holds_any_more_is_stopped(client, until, wait_for, state):
    runs = [dt.train(lambda session: session.wait_until_stopped(), roles={"worker": 1}, wait=False)]
    wait_for(lambda: runs[0].status()["phase"] == "running", "it runs")
    runs.clear()
    wait_for(lambda: state(client)["runs"] == (), "it is over")


def summed_on_all(session):
    """One sum over all ranks of jax.distributed."""
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    mesh = jax.make_mesh((jax.device_count(),), ("ranks",))
    mine = jax.make_array_from_process_local_data(NamedSharding(mesh, PartitionSpec("ranks")), np.ones(1, np.float32))
    return float(jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, PartitionSpec()))(mine))


class _AtUnpickling:
    """Is the number of XLA's threads that the environment names when this is unpickled."""

    def __reduce__(self):
        return os.getenv, ("NPROC",)


def test_the_error_of_a_rank_is_told_before_jax_aborts_the_others(client):
    def worker(session):
        for step in range(1000):
            if session.rank == 0 and step == 3:
                raise ValueError("these labels can't be")
            summed_on_all(session)

    with pytest.raises(dt.RoleFailedError, match="worker 0 raised ValueError: these labels can't be"):
        dt.train(worker, roles={"worker": 2}, framework="jax-distributed", recovery="gang")


@pytest.mark.slow
def test_a_rank_of_jax_that_returns_first_ends_no_other(client):
    threads = _AtUnpickling()

    def worker(session):
        assert threads == os.environ["NPROC"], "arrays that the function holds are made with the role's threads"
        total = summed_on_all(session)
        if session.rank == 0:
            print("without an end of its line", end="")
        else:
            time.sleep(LEAVE_S + 2)  # what leaving would take at most
        return total

    result = dt.train(worker, roles={"worker": 2}, framework="jax-distributed")
    assert (result.results, len(result.attempts)) == ({"worker": [2.0, 2.0]}, 1)
