"""Local clusters, deaf to Ctrl-C from their start; here without Dask workers, whose event loop they would inherit."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import suppress

import pytest
from distributed import Client

from dask_train.cluster import local
from dask_train.cluster.local import local_client, start_local_cluster


def blocked():
    """The signals that this thread does not hear."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


async def blocked_on_loop():
    return blocked()


def test_its_event_loop_does_not_hear_ctrl_c_and_this_thread_does(no_leaks):
    with no_leaks(), start_local_cluster(0) as cluster:
        assert signal.SIGINT in cluster.sync(blocked_on_loop)
        assert signal.SIGINT not in blocked()
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")


def test_who_blocks_it_does_so_afterwards():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with start_local_cluster(0):
            assert signal.SIGINT in blocked()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_ctrl_c_during_the_start_comes_right_after_it(monkeypatch):
    started = []

    def start(**settings):
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # other threads may hear what is the process's
        started.append(settings)

    monkeypatch.setattr(local, "LocalCluster", start)
    with pytest.raises(KeyboardInterrupt):
        start_local_cluster(2)
    (settings,) = started
    assert (settings["n_workers"], settings["threads_per_worker"], settings["processes"]) == (2, 1, True)
    assert signal.SIGINT not in blocked()


def test_a_start_that_fails_leaves_signals_as_they_were(monkeypatch):
    def fail(**_):
        assert signal.SIGINT in blocked()
        raise OSError("no port")

    monkeypatch.setattr(local, "LocalCluster", fail)
    with pytest.raises(OSError, match="no port"):
        start_local_cluster(2)
    assert signal.SIGINT not in blocked()


def test_settings_take_the_place_of_its_own(monkeypatch):
    found = {}
    monkeypatch.setattr(local, "LocalCluster", lambda **settings: found.update(settings))
    start_local_cluster(1)
    assert (found["silence_logs"], found.get("env")) == (logging.ERROR, None)
    start_local_cluster(1, silence_logs=False, env={"A": "1"})
    assert (found["silence_logs"], found["env"]) == (False, {"A": "1"})


def test_a_client_and_its_cluster_end_with_the_block(no_leaks):
    with no_leaks():
        with local_client(0) as client:
            assert isinstance(client, Client)
            assert client.status == "running"
            cluster = client.cluster
        assert (client.status, cluster.status.name) == ("closed", "closed")
        with suppress(ZeroDivisionError), local_client(0) as client:
            cluster = client.cluster
            raise ZeroDivisionError
        assert (client.status, cluster.status.name) == ("closed", "closed")
