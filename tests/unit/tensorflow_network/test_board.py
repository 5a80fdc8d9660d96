"""What a board's local copy makes of the scheduler's answers."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_train.errors import ClosedError, DataError, RoleLostError
from dask_train.tensorflow_network.board import MAX_VALUE_BYTES, Board, board

LOOP = SimpleNamespace(add_callback=lambda _: None)


def _board(maxlen: int = 1000, peer: Any = None) -> Board:
    return Board(peer or SimpleNamespace(id="client", loop=LOOP), "scores", maxlen)


def _answer(first: int, *values: Any, ring: str = "r1", networks: Any = None) -> dict[str, Any]:
    pickled = tuple(pickle.dumps(value) for value in values)
    return {"ring": ring, "first": first, "values": pickled, "networks": networks or {}}


def test_answers_follow_each_other():
    scores = _board()
    scores._keep(_answer(0, "a", "b"))
    scores._keep(_answer(2))
    scores._keep(_answer(2, "c"))
    assert (list(scores), scores.count, len(scores), scores[-1], scores[:2]) == (["a", "b", "c"], 3, 3, "c", ["a", "b"])
    assert scores._cursor() == {"board": "scores", "maxlen": 1000, "who": "client", "ring": "r1", "since": 3}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=12), st.integers(1, 15))
def test_answers_may_overlap_and_overtake_each_other(spans, maxlen):
    scores, newest = _board(maxlen), 0
    for start, length in spans:
        first = min(start, newest)  # an answer begins where an earlier one ended, at the latest
        scores._keep(_answer(first, *range(first, first + length)))
        newest = max(newest, first + length)
    assert scores.count == newest
    assert list(scores) == list(range(newest))[-maxlen:]


def test_what_the_scheduler_no_longer_kept_is_counted():
    scores = _board()
    scores._keep(_answer(0, "a"))
    scores._keep(_answer(5, "f", "g"))
    assert (list(scores), scores.count) == (["a", "f", "g"], 7)


def test_another_ring_starts_anew():
    scores = _board()
    scores._keep(_answer(0, "a", "b"))
    scores._keep(_answer(0, "x", ring="r2"))
    assert (list(scores), scores.count) == (["x"], 1)


def test_repr_shows_the_last():
    scores = _board()
    assert repr(scores) == "<Board 'scores': 0 values, the last None>"
    scores._keep(_answer(0, 1.5))
    assert repr(scores) == "<Board 'scores': 1 values, the last 1.5>"


def test_a_value_that_can_not_be_read_here_is_told():
    scores = _board()
    broken = {**_answer(0), "values": (b"cnowhere\nThing\n.",)}
    with pytest.raises(DataError, match=r"A value on board 'scores' can't be unpickled here: ModuleNotFoundError"):
        scores._keep(broken)


def test_a_large_value_is_refused():
    with pytest.raises(ValueError, match=rf"A value of \d+ bytes was appended to board 'scores', which takes {10**5}"):
        _board().append(b"x" * MAX_VALUE_BYTES)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": 3}, TypeError, "name is a string, not 3"),
        ({"name": ""}, ValueError, "name is empty"),
        ({"name": "scores", "maxlen": 0}, ValueError, "maxlen is 0; a board keeps at least 1"),
        ({"name": "scores", "maxlen": 1.5}, ValueError, r"maxlen is 1\.5"),
        ({"name": "scores", "maxlen": True}, ValueError, "maxlen is True"),
        ({"name": "scores"}, ValueError, r"no Dask client here, .* Make a distributed\.Client first"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        board(**arguments)


def _waited(predicate: Any, *answers: dict[str, Any]) -> Board:
    """Wait on a board that is told these answers, the first before the wait begins."""

    async def run() -> Board:
        scores = _board()
        scores._keep(answers[0])
        waiting = asyncio.ensure_future(scores._wait_until(predicate, 0.2))
        for answer in answers[1:]:
            await asyncio.sleep(0)
            scores._keep(answer)
            scores._tell()
        return await waiting

    return asyncio.run(run())


def test_an_empty_board_has_no_last_value_yet():
    assert list(_waited(lambda s: s[-1] < 1, _answer(0), _answer(0, 2), _answer(1, 0))) == [2, 0]


def test_other_index_errors_are_the_predicates_own():
    with pytest.raises(IndexError):
        _waited(lambda s: s[5], _answer(0, "a"))


def test_a_loss_ends_a_wait_but_what_holds_already_counts():
    lost = {"n1": "ps 0 of network n1 is gone."}
    with pytest.raises(RoleLostError, match=r"ps 0 of network n1 is gone\. Close the network"):
        _waited(lambda s: len(s) > 1, _answer(0, "a", networks={"n1": ""}), _answer(1, networks=lost))
    assert list(_waited(lambda s: len(s) == 1, _answer(0, "a", networks=lost))) == ["a"]


def test_the_end_of_the_networks_ends_a_wait():
    with pytest.raises(ClosedError, match="Network n1 was closed while board 'scores' was awaited"):
        _waited(bool, _answer(0, networks={"n1": ""}), _answer(0))
    both = {"n1": "", "n2": ""}
    assert _waited(bool, _answer(0, networks=both), _answer(0, networks={"n2": ""}), _answer(0, "a"))
    assert _waited(bool, _answer(0), _answer(0, "a")), "without any network, values may come from anywhere"
