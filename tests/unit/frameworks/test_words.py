"""Ranks that are threads tell each other a word; strangers come, too."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from dask_train.errors import LaunchError
from dask_train.frameworks.ports import address_of, hold_port
from dask_train.frameworks.words import RankPlace, words_of_all


@pytest.fixture
def holder():
    with hold_port() as holder:
        yield holder


def told(holder, words, timeout_s=30.0):
    """What each rank hears."""
    meeting = address_of("127.0.0.1", holder)

    def hears(rank):
        own = holder if rank == 0 else None
        place = RankPlace(rank=rank, num_ranks=len(words), meeting=meeting, port_holder=own)
        return words_of_all(place, words[rank], timeout_s)

    with ThreadPoolExecutor(len(words)) as pool:
        return [*pool.map(hears, range(len(words)))]


@pytest.mark.parametrize("words", [["alone"], ["a", "b"], ["", 'ä "\n', "x" * 100_000]])
def test_each_hears_all_in_the_order_of_ranks(holder, words):
    assert told(holder, words) == [words] * len(words)


STRANGERS = [
    b"",
    b"GET / HTTP/1.1\r\n",
    b'{"rank": 7, "word": "x"}\n',
    b'{"rank": 0, "word": "x"}\n',
    b"[]\n",
    b"\xff\n",
]


@pytest.mark.parametrize("said", STRANGERS)
@pytest.mark.parametrize("stays", [True, False])
def test_a_stranger_holds_nobody_up_and_is_no_rank(holder, said, stays):
    holder.listen(8)  # so that the stranger is the first
    with ExitStack() as connected:
        stranger = connected.enter_context(socket.create_connection(("127.0.0.1", holder.getsockname()[1])))
        stranger.sendall(said)
        if not stays:
            stranger.close()
        assert told(holder, ["a", "b"], timeout_s=10) == [["a", "b"]] * 2


def test_brackets_without_end_are_no_line(holder):
    holder.listen(8)
    with socket.create_connection(("127.0.0.1", holder.getsockname()[1])) as stranger:
        stranger.sendall(b"[" * 200_000 + b"\n")
        assert told(holder, ["a", "b"], timeout_s=10) == [["a", "b"]] * 2


@pytest.mark.parametrize("rank", [0, 1])
def test_one_that_does_not_come_is_an_error_in_time(holder, rank):
    meeting = address_of("127.0.0.1", holder)
    place = RankPlace(rank=rank, num_ranks=2, meeting=meeting, port_holder=None if rank else holder)
    with pytest.raises(LaunchError, match=rf"Rank {rank} of 2 could not meet the others at {meeting} within 0.1 s"):
        words_of_all(place, "a", 0.1)
