"""Lines whose arrays travel behind the messages that they were put for."""

from __future__ import annotations

import socket
import threading

import numpy as np
import pytest

from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.channels import ask
from dask_train.transport.dialling import NetworkChannel

SLOT = ArraySlot([((3, 2), "f4"), ((), "i8"), ((0,), "f8"), ((4,), "i2")])
LONG_S = 60.0


@pytest.fixture
def ends(no_leaks):
    with no_leaks():
        made = [NetworkChannel(end, SLOT) for end in socket.socketpair()]
        yield tuple(made)
        for each in made:
            each.close()


def test_arrays_go_with_the_next_message_and_with_that_alone(ends):
    here, there = ends
    here.put(0, [np.arange(6).reshape(3, 2)])
    here.put(2, [np.empty(0), [1, 2, 3, 4]])
    assert not there.into[3].any(), "nothing was sent yet"
    here.send("first")
    here.send("second")
    assert there.receive(LONG_S) == "first"
    np.testing.assert_array_equal(there.into[0], np.arange(6).reshape(3, 2))
    assert there.into[3].tolist() == [1, 2, 3, 4]
    there.into[3][...] = 0
    assert there.receive(LONG_S) == "second"
    assert not there.into[3].any(), "it was sent once"


def test_what_is_put_twice_goes_as_it_was_put_last(ends):
    here, there = ends
    for value in (5, 6):
        here.put(1, [value])
    here.send(None)
    there.receive(LONG_S)
    assert there.into[1] == 6
    assert there.out[1] == 0, "each way has arrays of its own"


def test_a_message_whose_arrays_do_not_follow_is_not_taken(ends):
    here, there = ends
    super(NetworkChannel, here).send(("half of it", [3]))
    here.close()
    with pytest.raises(EOFError):
        there.receive(LONG_S)


def test_an_array_that_stops_half_way_is_waited_for_so_long(ends):
    here, there = ends
    super(NetworkChannel, here).send(("half of it", [3]))
    with pytest.raises(TimeoutError):
        there.receive(0.01)


def test_a_question_takes_the_time_of_its_own_not_what_was_left_for_dialling(no_leaks):
    """The last moment of the time for dialling was enough to be let in, not to send a model."""
    slot = ArraySlot([((2_000_000,), "f8")])
    with no_leaks():
        here, there = (NetworkChannel(end, slot) for end in socket.socketpair())
        here.connection.settimeout(1e-6)

        def answer() -> None:
            there.receive(LONG_S)
            there.send(float(there.into[0].sum()))

        answering = threading.Thread(target=answer)
        here.put(0, [np.ones(2_000_000)])
        answering.start()
        assert ask([here], ["sum"], LONG_S) == [2e6]
        answering.join(LONG_S)
        here.close()
        there.close()
