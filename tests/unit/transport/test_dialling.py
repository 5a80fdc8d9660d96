"""Which way a line goes, and who tries again."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.ports import hold_port
from dask_train.transport import dialling
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.connections import Credentials
from dask_train.transport.dialling import dial, receptions

SLOT = ArraySlot([((2,), "f4")])
RUN = Credentials(key=b"run")
LONG_S = 60.0


@pytest.fixture
def ways(monkeypatch):
    """What is dialled: the way, and how many seconds were left; ``fails`` is how often nobody answers."""
    dialled: list[tuple[str, float]] = []
    fails = [0]

    def of(way: str) -> Any:
        def dial_there(address: str, slot: ArraySlot, credentials: Credentials, timeout_s: float) -> str:
            assert (slot, credentials) == (SLOT, RUN)
            dialled.append((way, timeout_s))
            if len(dialled) <= fails[0]:
                raise LaunchError("Nobody answers.")
            return f"a line to {address}"

        return dial_there

    for way in ("memory", "network"):
        monkeypatch.setattr(dialling, f"dial_{'in' if way == 'memory' else 'over'}_{way}", of(way))
    monkeypatch.setattr(dialling, "_AGAIN_S", 0.001)
    return dialled, fails


@pytest.mark.parametrize(
    ("address", "host", "way"),
    [
        ("10.0.0.1:80", "10.0.0.1", "memory"),
        ("10.0.0.1:80", "10.0.0.11", "network"),
        ("[::1]:80", "::1", "memory"),
        ("[::1]:80", "[::1]", "memory"),
        ("[::1]:80", "127.0.0.1", "network"),
    ],
)
def test_memory_is_for_one_host_alone(ways, address, host, way):
    assert dial(address, SLOT, host, RUN, LONG_S) == f"a line to {address}"
    assert [each for each, _ in ways[0]] == [way]


def test_who_is_sent_away_tries_again_with_what_is_left_of_the_time(ways):
    dialled, fails = ways
    fails[0] = 3
    dial("h:1", SLOT, "h", RUN, LONG_S)
    left = [seconds for _, seconds in dialled]
    assert len(left) == 4
    assert left == sorted(left, reverse=True)
    assert left[0] <= LONG_S


@pytest.mark.parametrize("timeout_s", [0.0, 0.02])
def test_nobody_tries_for_ever(ways, timeout_s):
    dialled, fails = ways
    fails[0] = 1 << 30
    with pytest.raises(LaunchError, match="Nobody answers"):
        dial("h:1", SLOT, "h", RUN, timeout_s)
    assert all(0.0 <= seconds <= timeout_s for _, seconds in dialled)


def test_where_one_way_can_not_be_listened_at_neither_is(no_leaks):
    with no_leaks(), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(LaunchError, match=f"A role can't listen at {address}"):
            receptions(address, SLOT, RUN)


def test_both_ways_lead_to_who_listens(no_leaks):
    with no_leaks(), hold_port() as port:
        address = f"127.0.0.1:{port.getsockname()[1]}"
        memory, network = receptions(address, SLOT, RUN)
        try:
            for host, reception in (("127.0.0.1", memory), ("10.0.0.1", network)):
                line = dial(address, SLOT, host, RUN, LONG_S)
                there = reception.next(LONG_S)
                line.send("hello")
                assert there.receive(LONG_S) == "hello"
                line.close()
                there.close()
        finally:
            memory.close()
            network.close()
        began = time.monotonic()
        with pytest.raises(LaunchError):
            dial(address, SLOT, "127.0.0.1", RUN, 0.01)
        assert time.monotonic() - began < LONG_S, "who listens no more is not waited for"
