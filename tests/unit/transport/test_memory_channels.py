"""Lines through memory that two processes of a host share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dask_train.errors import LaunchError
from dask_train.transport.array_layout import ArraySlot
from dask_train.transport.connections import Credentials
from dask_train.transport.dialling import dial_in_memory, receive_in_memory

SLOT = ArraySlot([((3, 2), "f4"), ((), "i8"), ((0,), "f8")])
RUN = Credentials(key=b"run")
LONG_S = 60.0
NUMBERS = iter(range(1 << 30))


@pytest.fixture
def address():
    """A name that no other test has: nothing listens at the port."""
    return f"127.0.0.1:{os.getpid()}{next(NUMBERS)}"


def num_lines() -> int:
    """How many mappings this process has of lines' memory."""
    return Path("/proc/self/maps").read_text().count("memfd:dask-train-line")


@pytest.fixture
def line(address):
    """Both ends, the one that has dialled first."""
    reception = receive_in_memory(address, SLOT, RUN)
    ends = [dial_in_memory(address, SLOT, RUN, LONG_S), reception.next(LONG_S)]
    yield tuple(ends)
    for end in (*ends, reception):
        end.close()


def test_arrays_are_where_the_other_end_sees_them_and_nowhere_else(line):
    dialled, listened = line
    for out, into in ((dialled, listened), (listened, dialled)):
        out.put(0, [np.ones((3, 2)), 7])
        assert (into.into[0] == 1).all()
        assert into.into[1] == 7
    dialled.out[1][...] = 9
    assert (listened.into[1], listened.out[1], dialled.into[1]) == (9, 7, 7)


def test_memory_is_gone_with_both_ends(address):
    gc.collect()
    before = num_lines()
    reception = receive_in_memory(address, SLOT, RUN)
    ends = [dial_in_memory(address, SLOT, RUN, LONG_S), reception.next(LONG_S)]
    assert num_lines() == before + 2
    for end in ends:
        end.close()
    reception.close()
    ends.clear()
    del end, reception
    gc.collect()
    assert num_lines() == before


def test_a_name_is_told_to_who_knows_the_key_alone(address, no_leaks):
    with no_leaks():
        reception = receive_in_memory(address, SLOT, RUN)
        with pytest.raises(LaunchError, match=rf"Nobody answers as {address} on this host"):
            dial_in_memory(address, SLOT, Credentials(key=b"another run"), 0.0)
        reception.close()


def test_who_expects_other_arrays_is_no_line_and_leaves_nothing(address, no_leaks):
    """As where both ends have built different models; memory that is too small would be read beyond its end."""
    larger = ArraySlot([((1000, 1000), "f8")])
    with no_leaks():
        reception = receive_in_memory(address, SLOT, RUN)
        with pytest.raises(ValueError, match="greater than file size"):
            dial_in_memory(address, larger, RUN, LONG_S)
        reception.next(LONG_S).close()
        reception.close()


@settings(max_examples=25)
@given(
    values=hnp.arrays(st.sampled_from(["f2", "f4", "f8", "i4", "u1", "?"]), hnp.array_shapes(max_dims=3, min_side=0))
)
def test_any_array_arrives_as_it_was(values):
    slot = ArraySlot([((), "u1"), (values.shape, values.dtype)])
    address = f"127.0.0.1:{os.getpid()}{next(NUMBERS)}"
    reception = receive_in_memory(address, slot, RUN)
    dialled, listened = dial_in_memory(address, slot, RUN, LONG_S), reception.next(LONG_S)
    dialled.put(1, [values])
    np.testing.assert_array_equal(listened.into[1], values)
    for each in (dialled, listened, reception):
        each.close()
